// `#/compare?run=<place/table/index>&run=…`: pictures and films of the same name of several runs, under one slider.

import { ask } from "./api.js";
import { fill, h, later, tally } from "./dom.js";
import { remember, runLink } from "./frame.js";
import { badge, frame, runPicker, slider, stepsOf, trackedText } from "./parts.js";

const MAX_RUNS = 12;
const MAX_NAMES = 40;  // shown at once

export async function open(page, _path, query) {
  let runs = [...new Set(query.getAll("run"))].slice(0, MAX_RUNS);
  const stop = new AbortController();
  const area = h("div", { class: "compare" });
  const words = h("input", { type: "search", placeholder: "part of a name", "aria-label": "Names of files", value: query.get("name") ?? "" });
  const bar = h("div", { class: "strip sticky" });
  fill(page, h("div", { class: "runpage" }, h("h1", {}, "Files side by side"), bar, area));
  let found = [];
  let frames = [];
  const steps = slider([], (step) => frames.forEach((one) => one.show(step)), "Time-step of all files");

  function go(next) {
    runs = next;
    save();
    load();
  }
  function save() {
    const asked = new URLSearchParams();
    for (const run of runs) asked.append("run", run);
    if (words.value) asked.set("name", words.value);
    remember(asked);
  }
  async function load() {
    found = await Promise.all(runs.map(async (run) => {
      try {
        const [about, media] = await Promise.all([ask("run", { run }, stop.signal), ask("media", { run }, stop.signal)]);
        return { run, about, media };
      } catch (error) {
        if (error.name === "AbortError") throw error;
        return { run, error };
      }
    }));
    fill(bar, h("label", {}, "Name ", words), steps.node,
      runs.length < MAX_RUNS && runPicker(runs.at(-1) ?? "", "Add a run", (path) => go([...new Set([...runs, path])])));
    show();
  }
  function show() {
    const good = found.filter((one) => one.media);
    const all = tally(good.flatMap(({ media }) => media.groups.map((group) => group.name)));
    const fitting = all.filter(([name]) => name.toLowerCase().includes(words.value.toLowerCase()));
    const names = fitting.sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).map(([name]) => name);
    const shown = names.slice(0, MAX_NAMES);
    const groups = (name) => good.map((one) => one.media.groups.find((group) => group.name === name));
    steps.change(stepsOf(shown.flatMap(groups).filter(Boolean)));
    frames = [];
    const cell = (one, name) => {
      const group = one.media?.groups.find((each) => each.name === name);
      if (!group) return h("td", { class: "dim" }, "–");
      const made = frame(one.run, group);
      frames.push(made);
      made.show(steps.step());
      return h("td", {}, made.node);
    };
    fill(area,
      !runs.length && h("p", { class: "empty" }, "Choose runs: here, or in the list of runs by “Files”. Their pictures and films of the same name stand side by side."),
      runs.length > 0 && !names.length && h("p", { class: "empty" }, all.length ? "No file has such a name." : "These runs have no pictures, films or sounds."),
      runs.length > 0 && h("table", { class: "side" },
        h("thead", {}, h("tr", {}, found.map((one) => h("th", { scope: "col" },
          h("a", { href: runLink(one.run) }, one.about?.date ?? one.run), " ", one.about && badge(one.about.state), " ",
          h("button", { type: "button", class: "small", title: "Take away", "aria-label": `Take ${one.run} away`, onclick: () => go(runs.filter((run) => run !== one.run)) }, "×"),
          h("div", { class: "dim" }, one.about ? `${one.about.table}  ${trackedText(one.about)}` : one.error.message))))),
        h("tbody", {}, shown.map((name) => h("tr", {}, found.map((one) => cell(one, name)))))),
      names.length > shown.length && h("p", { class: "dim" }, `${names.length - shown.length} more names; say a part of the one you want`));
  }
  words.addEventListener("input", later(() => { save(); show(); }, 200));
  await load();
  return () => stop.abort();
}

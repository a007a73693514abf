// Pictures, films and sounds of a run, each over its time-steps.

import { ask, fileUrl } from "./api.js";
import { bytesText, fill, h, later, timeText } from "./dom.js";
import { heatMap } from "./heat_map.js";
import { follow, frame, section, slider, stepsOf, table } from "./parts.js";
import { isTable } from "./run_tables.js";

const PAUSE_MS = 6000;
const MAX_SHOWN = 500;  // other files in the table
const MAX_CARDS = 60;  // pictures and films shown at once
const MAX_INLINE = 12;  // beside the curves

/** One thing over its time-steps: {node, move(step)}. */
function card(path, group) {
  const one = frame(path, group);
  const steps = stepsOf([group]);
  const own = steps.length > 1 ? slider(steps, one.show, `Time-step of ${group.name}`) : null;
  return { node: h("div", {}, one.node, own?.node), move: (step) => { one.show(step); if (step !== undefined) own?.set(step); } };
}

/** Ask for a run's media now, and again while it lives: onFound(answer) whenever they are others. */
function followMedia({ path, signal, run }, onFound) {
  let known = "";
  let cost = 0;  // ms; a folder of 100,000 files is looked at less often
  async function load() {
    const begun = performance.now();
    const found = await ask("media", { run: path }, signal);
    cost = performance.now() - begun;
    const text = JSON.stringify([found.groups, found.count]);
    if (text !== known) onFound(found);
    known = text;
  }
  follow(load, run, () => Math.max(PAUSE_MS, 50 * cost), signal);
}

/** The media below the curves; nothing where there are none. `goTo` opens the tab with all of them. */
export function inlineMedia(context) {
  const grid = h("div", { class: "media" });
  const count = h("span", { class: "dim" });
  const more = h("button", { type: "button", class: "more", onclick: () => context.goTo("media") });
  const node = h("details", { open: true, hidden: true }, h("summary", {}, "Media ", count), grid, more);
  followMedia(context, ({ groups }) => {
    node.hidden = !groups.length;
    more.hidden = groups.length <= MAX_INLINE;
    more.textContent = `${groups.length - MAX_INLINE} more`;
    count.textContent = groups.length;
    fill(grid, groups.slice(0, MAX_INLINE).map((group) => card(context.path, group).node));
  });
  return node;
}

/** The distributions over time; nothing where there are none. */
export function distributions({ path, signal, run }) {
  const grid = h("div", { class: "grid" });
  const node = h("details", { open: true, hidden: true }, h("summary", {}, "Distributions"), grid);
  let known = null;
  const show = () => { node.hidden = !known.found.length; fill(grid, known.found.map(heatMap), known.names > known.found.length && h("p", { class: "dim" }, `the first ${known.found.length} of ${known.names}`)); };
  async function load() {
    known = await ask("histograms", { run: path }, signal);
    show();
  }
  window.addEventListener("themechange", () => { if (known) show(); }, { signal });
  follow(load, run, () => 5 * PAUSE_MS, signal);
  return node;
}

/** Fill the tab. */
export function mediaTab(context) {
  const { path, body, query, save, goTo } = context;
  const words = h("input", { type: "search", placeholder: "part of a name", "aria-label": "Names of files", value: query.get("name") ?? "", oninput: later(() => { save({ name: words.value }); if (found) build(); }, 150) });
  const grid = h("div", { class: "media" });
  const rest = h("div", {});
  let found = null;
  let shown = [];
  const all = slider([], (step) => shown.forEach((one) => one.move(step)), "Time-step of all files");
  function build() {
    const groups = found.groups.filter((group) => group.name.toLowerCase().includes(words.value.toLowerCase()));
    all.change(stepsOf(groups));
    shown = groups.slice(0, MAX_CARDS).map((group) => card(path, group));
    shown.forEach((one) => one.move(all.step()));
    fill(grid, shown.map((one) => one.node), !groups.length && h("p", { class: "empty" }, found.names ? "no name fits" : "no pictures, films or sounds yet"));
    fill(rest,
      groups.length > MAX_CARDS && h("p", { class: "dim" }, `${groups.length - MAX_CARDS} more names; say a part of the one you want`),
      found.names > found.groups.length && h("p", { class: "dim" }, `the first ${found.groups.length} of ${found.names} names`),
      found.cut && h("p", { class: "bad" }, `there are more than ${found.count} files; the others were not looked at`),
      found.passed > 0 && h("p", { class: "dim" }, `${found.passed} links, pipes or unreadable names are left out`),
      found.others.length > 0 && section(`Other files (${found.other_count})`, table(["name", "size", "time"], found.others.slice(0, MAX_SHOWN).map(([name, size, time]) => [isTable(name) ? h("button", { type: "button", class: "link", onclick: () => { save({ table: name }); goTo("tables"); } }, name) : fileLink(path, name), bytesText(size), timeText(time)]))));
  }
  fill(body, h("div", { class: "strip sticky" }, words, h("span", { class: "dim" }, "all:"), all.node,
    h("a", { href: `#/compare?run=${encodeURIComponent(path)}` }, "Side by side with other runs")), grid, rest);
  followMedia(context, (next) => { found = next; build(); });
}

function fileLink(path, name) {
  return h("a", { href: fileUrl("file", { run: path, kind: "results", path: name }), target: "_blank", rel: "noopener noreferrer" }, name);
}

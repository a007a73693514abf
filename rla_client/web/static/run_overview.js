// What a run's page opens on: its curves, media, use of the machine; its parameters, note, environment beside them.

import { ask, offline } from "./api.js";
import { fill, h, later, numberText, timeText } from "./dom.js";
import { runLink, tell } from "./frame.js";
import { badge, refill, section, table } from "./parts.js";
import { RunCurves } from "./run_curves.js";
import { environmentOf, plainText } from "./run_environment.js";
import { distributions, inlineMedia } from "./run_media.js";
import { systemCharts } from "./system.js";

const MAX_SHOWN = 500;  // rows of a table of names and values
const MAX_CHARS = 200;  // of a value in it: a list may have thousands
const SHARE = 50;  // values at a step are asked for again after this many times as long as they took

/** A name that breaks behind its parts. */
const brokenAt = (name) => name.split(/(?<=[/._])/).flatMap((part, at) => (at ? [h("wbr"), part] : [part]));

/** Fill the tab; gives what is told of later news: {update(run)}. */
export function overviewTab(context) {
  const { path, body, signal, run, goTo, query, save } = context;
  const samplesOf = (step) => { save({ step: String(step) }); goTo("samples"); };
  const curves = new RunCurves(run(), query, save, offline ? null : run().samples ? samplesOf : (step) => values.choose(step));
  const media = inlineMedia(context);
  const pairs = (all) => {
    const found = all.filter(([name, value]) => `${name} ${value}`.toLowerCase().includes(words.value.toLowerCase()));
    return [table(["name", "value"], found.slice(0, MAX_SHOWN).map(([name, value, more]) => [brokenAt(name), { class: "mono", node: [valueText(value), more && h("span", { class: "dim" }, more)] }])),
      found.length > MAX_SHOWN && h("p", { class: "dim" }, `${found.length - MAX_SHOWN} more; search for the one you want`),
      !found.length && h("p", { class: "dim" }, all.length ? "none fits" : "none")];
  };
  const values = valuesSection(context, pairs, media.move);
  const story = h("div", {});
  const listed = h("div", {});
  const words = h("input", { type: "search", placeholder: "find a name or value", "aria-label": "Search in parameters and values", value: query.get("find") ?? "",
    oninput: later(() => { save({ find: words.value }); parameters(); update(run()); }, 120) });
  const valueText = (value) => {
    const text = typeof value === "number" ? numberText(value) : String(value);
    return text.length > MAX_CHARS ? h("span", { title: `${text.length} characters; the file of the run has all` }, `${text.slice(0, MAX_CHARS)}…`) : text;
  };
  function parameters() {
    const now = run();
    fill(listed, pairs(now.parameters), now.parameter_count > now.parameters.length && h("p", { class: "dim" }, `the first ${now.parameters.length} of ${now.parameter_count}`));
  }
  function update(now) {
    curves.update(now);
    values.update(now);
    refill(story, [now.warnings, now.resumes, now.parents, now.children], () => storyOf(now, () => { save({ file: "warn.txt" }); goTo("logs"); }));
  }
  fill(body, h("div", { class: "overview" },
    h("div", { class: "main" }, curves.node, media.node, !offline && [distributions(context), systemPart(context)]),
    h("aside", { "aria-label": "About the run" }, h("div", { class: "strip" }, words),
      section("Parameters", listed), values.node, noteSection(path, run), story, section("Environment", environmentOf(context)))));
  parameters();
  update(run());
  window.addEventListener("themechange", () => curves.recolour(), { signal });
  signal.addEventListener("abort", () => curves.close());
  return { update };
}

/** The last values of the metrics, or those at a step: {node, update(run), choose(step)}; `pairs` makes the table, onStep(step) is told. */
function valuesSection({ path, signal, run, query, save }, pairs, onStep) {
  const title = h("span", {});
  const field = h("input", { type: "number", class: "online", step: "any", placeholder: "at step", title: "A step; a click on a curve chooses it, too", "aria-label": "Step of the values", value: query.get("at") ?? "", onchange: () => choose(field.value) });
  const clear = h("button", { type: "button", class: "small", onclick: () => choose("") }, "Last");
  const rows = h("div", {});
  const text = ([name, value]) => (name === "timestamp" ? timeText(value) : value);
  const asked = () => { const step = Number(query.get("at") || NaN); return Number.isFinite(step) ? step : null; };
  let last = {};  // step and last values of the run as they were asked for, the answer, when the next one may be asked for
  async function update(now) {
    const step = asked();
    title.textContent = step === null ? "Last values" : `Values at step ${numberText(step)}`;
    clear.hidden = step === null;
    if (step === null) { last = {}; fill(rows, pairs(now.metrics.map((one) => [one[0], text(one)]))); return; }
    const metrics = JSON.stringify(now.metrics);
    if (step !== last.step || (metrics !== last.metrics && performance.now() >= last.due)) {
      const begun = performance.now();
      const mine = last = { step, metrics, due: Infinity, found: step === last.step ? last.found : null };
      try { mine.found = await ask("values", { run: path, step }, signal); } catch (error) { mine.step = null; throw error; }
      mine.due = performance.now() + SHARE * (performance.now() - begun);
    }
    if (last.found) fill(rows, pairs(last.found.map((one) => [one[0], text(one), one[2] === last.step ? "" : `  step ${numberText(one[2])}`])));
  }
  function choose(step) {
    field.value = step;
    save({ at: field.value });
    onStep(asked() ?? Infinity);
    return update(run());
  }
  onStep(asked() ?? Infinity);
  return { node: h("section", { class: "part" }, h("h2", { class: "values" }, title, " ", clear, field), rows), update, choose };
}

function systemPart(context) {
  const grid = h("div", { class: "grid" });
  const node = h("details", { open: true, hidden: true }, h("summary", {}, "System"), grid);
  systemCharts(context, grid, (count) => { node.hidden = !count; });
  return node;
}

function storyOf(run, showWarnings) {
  return [
    run.warnings.length > 0 && section("Last warnings and alerts", h("pre", { class: "warnings" }, run.warnings.join("\n")), h("button", { type: "button", onclick: showWarnings }, "All of them")),
    run.resumes.length > 0 && section("Resumed with other parameters", table(["at step", "when", "parameter", "before", "then"], run.resumes.flatMap((one) =>
      Object.entries(one.changed).map(([name, values]) => [numberText(one.time_step), timeText(one.time), name, ...[0, 1].map((place) => plainText(values?.[place]))])))),
    (run.parents.length > 0 || run.children.length > 0) && section("Where it came from, and what came from it",
      table(["", "run", "at step", "state"], [
        ...run.parents.map((one) => [one.chain ? "continues" : "fork of", h("a", { href: runLink(one.path) }, one.index), numberText(one.step), ""]),
        ...run.children.map((one) => [one.chain ? "continued by" : "forked by", h("a", { href: runLink(one.path) }, one.index), "", badge(one.state)])])),
  ];
}

function noteSection(path, run) {
  const area = h("textarea", { rows: 3, "aria-label": "Note", readOnly: offline, oninput: () => { button.disabled = false; } });
  area.value = run().note;
  const button = h("button", { type: "button", class: "online", disabled: true, onclick: async () => {
    await ask("note", { run: path, note: area.value });
    button.disabled = true;
    tell("noted");
  } }, "Save note");
  return section("Note", area, button);
}

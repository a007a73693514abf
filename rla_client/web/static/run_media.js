// Pictures, films, sounds, pages and clouds of points of a run, each over its time-steps.

import { ask, fileUrl } from "./api.js";
import { arrange, bytesText, fill, h, later, timeText } from "./dom.js";
import { heatMap } from "./heat_map.js";
import { follow, frame, section, slider, stepsOf, table } from "./parts.js";
import { isTable } from "./run_tables.js";

const PAUSE_MS = 6000;
const MAX_SHOWN = 500;  // other files in the table
const MAX_CARDS = 60;  // pictures and films shown at once
const MAX_INLINE = 12;  // beside the curves

/** One thing over its time-steps: {node, move(step), change(group)}. */
function card(path, first) {
  const one = frame(path, first);
  const own = slider(stepsOf([first]), one.show, `Time-step of ${first.name}`);
  function change(group) {
    one.change(group);
    own.change(stepsOf([group]));
    one.show(own.step());
  }
  return { node: h("div", {}, one.node, own.node), change, move: (step) => { one.show(step); if (step !== undefined) own.set(step); } };
}

/** Cards in a node: {show(groups, step), move(step)}; those that stay keep the step that they are at, or follow the latest. */
function cards(path, node) {
  const known = new Map();
  const shown = new Set();
  return {
    show(groups, step) {
      shown.clear();
      for (const group of groups) {
        const key = `${group.kind} ${group.name}`;
        if (known.has(key)) known.get(key).change(group);
        else {
          known.set(key, card(path, group));
          known.get(key).move(step);
        }
        shown.add(known.get(key));
      }
      arrange(node, [...shown].map((one) => one.node));
    },
    move: (step) => shown.forEach((one) => one.move(step)),
  };
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

/** The media below the curves: {node, move(step)}, Infinity: to the latest; nothing where there are none. `goTo` opens the tab with all of them. */
export function inlineMedia(context) {
  const grid = h("div", { class: "media" });
  const count = h("span", { class: "dim" });
  const more = h("button", { type: "button", class: "more", onclick: () => context.goTo("media") });
  const node = h("details", { open: true, hidden: true }, h("summary", {}, "Media ", count), grid, more);
  const own = cards(context.path, grid);
  let at = Infinity;
  followMedia(context, ({ groups }) => {
    node.hidden = !groups.length;
    more.hidden = groups.length <= MAX_INLINE;
    more.textContent = `${groups.length - MAX_INLINE} more`;
    count.textContent = groups.length;
    own.show(groups.slice(0, MAX_INLINE), at);
  });
  return { node, move: (step) => own.move(at = step) };
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
  const none = h("p", { class: "empty" });
  const rest = h("div", {});
  const own = cards(path, grid);
  let found = null;
  const all = slider([], own.move, "Time-step of all files");
  function build() {
    const groups = found.groups.filter((group) => group.name.toLowerCase().includes(words.value.toLowerCase()));
    all.change(stepsOf(groups));
    own.show(groups.slice(0, MAX_CARDS), all.step());
    none.hidden = groups.length > 0;
    none.textContent = found.names ? "no name fits" : "no pictures, films, sounds, pages or clouds of points yet";
    fill(rest,
      groups.length > MAX_CARDS && h("p", { class: "dim" }, `${groups.length - MAX_CARDS} more names; say a part of the one you want`),
      found.names > found.groups.length && h("p", { class: "dim" }, `the first ${found.groups.length} of ${found.names} names`),
      found.cut && h("p", { class: "bad" }, `there are more than ${found.count} files; the others were not looked at`),
      found.passed > 0 && h("p", { class: "dim" }, `${found.passed} links, pipes or unreadable names are left out`),
      found.others.length > 0 && section(`Other files (${found.other_count})`, table(["name", "size", "time"], found.others.slice(0, MAX_SHOWN).map(([name, size, time]) => [isTable(name) ? h("button", { type: "button", class: "link", onclick: () => { save({ table: name }); goTo("tables"); } }, name) : fileLink(path, name), bytesText(size), timeText(time)]))));
  }
  fill(body, h("div", { class: "strip sticky" }, words, h("span", { class: "dim" }, "all:"), all.node,
    h("a", { href: `#/compare?run=${encodeURIComponent(path)}` }, "Side by side with other runs")), none, grid, rest);
  followMedia(context, (next) => { found = next; build(); });
}

function fileLink(path, name) {
  return h("a", { href: fileUrl("file", { run: path, kind: "results", path: name }), target: "_blank", rel: "noopener noreferrer" }, name);
}

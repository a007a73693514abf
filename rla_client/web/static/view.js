// A view of the page of runs is a link: what is chosen, filtered, grouped, drawn and zoomed stands in the address.

import { ask } from "./api.js";
import { dialog, fill, h } from "./dom.js";
import { remember, tell } from "./frame.js";

const MOST_RUNS = 200;  // that an address names
const text = { read: ([value = ""]) => value, write: (value) => [value] };
const number = { read: ([value]) => Math.max(Number(value) || 0, 0), write: (value) => [String(value)] };
const flag = { read: ([value]) => value === "1", write: (on) => (on ? ["1"] : []) };
const texts = { read: (values) => values.slice(0, MOST_RUNS), write: (values) => (values.length > MOST_RUNS ? [] : values) };
const zoom = {
  read([value]) {
    const ends = names(value).map(Number);
    return ends.length === 2 && ends[0] < ends[1] ? ends : null;
  },
  write: (ends) => (ends ? [ends.join(",")] : []),
};
const SETTINGS = {  // how each is read and written, and what it is where the address says nothing
  where: [text, ""], group: [text, ""], sort: [text, "-time"], column: [texts, []], only: [flag, false], show: [number, 20],
  run: [texts, []], hide: [texts, []], pin: [texts, []], archived: [flag, false], list: [text, ""], tab: [text, "curves"], target: [text, ""],
  x: [text, "time-step"], logX: [flag, false], logY: [flag, false], smooth: [number, 0], band: [text, "ci"],
  zoom: [zoom, null], metrics: [text, ""], wide: [texts, []], fold: [texts, []],
  ranks: [text, ""], clip: [flag, false], size: [text, "medium"], order: [texts, []], with: [texts, []], names: [text, ""],
};
export const DRAWN_ANEW = ["x", "logX", "logY", "smooth", "band", "zoom", "clip", "ranks"];  // settings whose change asks for all curves again
export const KEPT_OF_A_RUN = ["x", "logX", "logY", "smooth", "zoom", "clip", "ranks", "size", "metrics", "wide", "fold", "order", "with", "names"];  // that the address of a run's page has

/** Names that are separated by commas. */
export function names(list) {
  return (list ?? "").split(",").map((name) => name.trim()).filter(Boolean);
}

/** The settings of an address. */
export function readView(query) {
  return Object.fromEntries(Object.entries(SETTINGS).map(([name, [kind, silent]]) => (
    [name, query.has(name.toLowerCase()) ? kind.read(query.getAll(name.toLowerCase())) : structuredClone(silent)])));
}

/** Put some settings into the query of an address. */
export function putView(query, settings, names) {
  for (const name of names) {
    const [kind, silent] = SETTINGS[name];
    query.delete(name.toLowerCase());
    if (JSON.stringify(settings[name]) === JSON.stringify(silent)) continue;
    for (const value of kind.write(settings[name])) query.append(name.toLowerCase(), value);
  }
}

/** Write the settings into the address. */
export function writeView(settings) {
  const query = new URLSearchParams();
  putView(query, settings, Object.keys(SETTINGS));
  remember(query);
}

/** Named views, which are stored beside the database: open one, store the present one, remove one. */
export async function showViews() {
  const list = h("ul", { class: "views" });
  const field = h("input", { name: "view", placeholder: "name of this view", "aria-label": "Name of this view", autofocus: true, required: true });
  const change = async (name, query) => { show(await ask("view", { name, query })); tell(query === null ? "view removed" : "view stored"); };
  const show = (views) => fill(list, Object.entries(views).map(([name, query]) => h("li", {},
    h("a", { href: `#/runs?${query}`, onclick: () => box.close() }, name),
    h("button", { type: "button", class: "small", "aria-label": `Remove the view ${name}`, onclick: () => change(name, null) }, "×"))),
  !Object.keys(views).length && h("li", { class: "dim" }, "none yet"));
  const box = dialog("Views", "The address of this page is a link to what it shows. A name for it is stored beside the database:", list,
    h("form", { class: "strip", onsubmit: (event) => { event.preventDefault(); change(field.value.trim(), location.hash.split("?")[1] ?? ""); } },
      field, h("button", {}, "Store this view")));
  show(await ask("views"));
}

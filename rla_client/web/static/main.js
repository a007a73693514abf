// Opens the page that the address names: `#/runs?…`, `#/run/<place>/<table>/<index>`.

import { Refused } from "./api.js";
import { isDark } from "./colours.js";
import { dialog, fill, h, memory } from "./dom.js";
import { complain, here, keys, state, tell } from "./frame.js";

const OPEN = {
  runs: () => import("./runs.js"),
  run: () => import("./run.js"),
  compare: () => import("./compare.js"),
  machine: () => import("./machine.js"),
};
const KEYS = {  // on every page; [what it does, how]
  1: ["page of runs", () => { location.hash = "#/runs"; }], 2: ["files side by side", () => { location.hash = "#/compare"; }],
  3: ["the machine", () => { location.hash = "#/machine"; }], t: ["light or dark", () => document.getElementById("theme").click()], "?": ["these keys", showKeys],
};
const TYPED_IN = "input:not([type=checkbox], [type=range], [type=color]), textarea, select";
const page = document.getElementById("page");
let leave = null;
let turn = 0;  // of what is opened: a slow page that was left meanwhile must not take the next one's place

function showKeys() {
  const inside = { "← → + −": ["in a panel: move along x, zoom"], "↑ ↓": ["in the list: row by row; space selects"] };
  dialog("Keys", h("dl", { class: "facts" }, Object.entries({ ...state.keys, ...KEYS, ...inside }).map(([key, [what]]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)])));
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("dialog") || event.target.matches(TYPED_IN)) return;
  const known = { ...state.keys, ...KEYS };
  const found = Object.hasOwn(known, event.key) && !event.defaultPrevented ? known[event.key] : null;
  if (!found) return;
  event.preventDefault();
  found[1]();
});

// What nobody waits for fails here: handlers and timers need no words of their own for it.
window.addEventListener("unhandledrejection", (event) => {
  complain(event.reason);
  event.preventDefault();
});

async function show() {
  if (location.hash === state.shown && leave) return;
  state.shown = location.hash;
  leave?.();
  leave = () => {};
  tell("");
  keys({});
  const { name, path, query } = here();
  for (const link of document.querySelectorAll("#top nav a")) {
    link.toggleAttribute("aria-current", link.getAttribute("href") === `#/${name}`);
  }
  const own = ++turn;
  try {
    const module = await OPEN[name]();
    if (own !== turn) return;
    fill(page);
    const left = (await module.open(page, path, query)) ?? (() => {});
    if (own === turn) leave = left; else left();
  } catch (error) {
    if (own !== turn) return;
    fill(page, h("h1", { class: "unseen" }, "Nothing to show"), h("p", { class: "empty", role: "alert" }, error instanceof Refused ? error.message : `This page has a fault: ${error}`));
    if (!(error instanceof Refused)) throw error;
  }
}

const theme = memory.get("rla-theme");
if (theme) document.documentElement.dataset.theme = theme;
document.getElementById("theme").addEventListener("click", () => {
  const { dataset } = document.documentElement;
  dataset.theme = isDark() ? "light" : "dark";
  memory.set("rla-theme", dataset.theme);
  window.dispatchEvent(new Event("themechange"));
});
document.getElementById("keys").addEventListener("click", showKeys);
window.addEventListener("answered", () => tell(""));  // again, after it was said that nobody does
window.addEventListener("hashchange", show);
show();

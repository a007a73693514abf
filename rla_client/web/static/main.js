// Which page is shown: by what stands behind the # of the address, `#/runs?…`, `#/run/<place>/<table>/<index>`.

import { isDark } from "./colours.js";
import { dialog, fill, h, memory } from "./dom.js";
import { Refused } from "./api.js";

const PAGES = {
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
let known = KEYS;
let leave = null;
let shown = "";
let turn = 0;  // of what is opened: a slow page that was left meanwhile must not take the next one's place

/** The address behind the #: {name, path, query}. */
export function here() {
  const [path, query = ""] = (location.hash || document.documentElement.dataset.view || "").replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/");
  const decoded = (part) => { try { return decodeURIComponent(part); } catch { return part; } };
  return { name: Object.hasOwn(PAGES, name) ? name : "runs", path: rest.map(decoded).join("/"), query: new URLSearchParams(query) };
}

/** Write the query of this page into the address, without a new entry in the history. */
export function remember(query) {
  const { name, path } = here();
  const text = query.toString();
  const link = `#/${name}${path ? `/${path.split("/").map(encodeURIComponent).join("/")}` : ""}${text ? `?${text}` : ""}`;
  try { if (link !== location.hash) history.replaceState(null, "", link); } catch { /* a frame without an address */ }
  shown = location.hash;
}

/** The link of a run's page. */
export function runLink(path) {
  return `#/run/${path.split("/").map(encodeURIComponent).join("/")}`;
}

/** A message below the title; an empty text takes it away. */
export function tell(text, bad = false) {
  const news = document.getElementById("news");
  news.textContent = text;
  news.classList.toggle("bad", bad);
}

/** Say what went wrong, in the server's words. */
export function complain(error) {
  if (error?.name === "AbortError") return;
  tell(error instanceof Refused ? error.message : `the page has a fault: ${error.message ?? error}`, true);
  if (!(error instanceof Refused)) console.error(error);
}

/** Keys of the page that is shown. */
export function keys(own) { known = { ...own, ...KEYS }; }

function showKeys() {
  const inside = { "← → + −": ["in a panel: move along x, zoom"], "↑ ↓": ["in the list: row by row; space selects"] };
  dialog("Keys", h("dl", { class: "facts" }, Object.entries({ ...known, ...inside }).map(([key, [what]]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)])));
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("dialog") || event.target.matches(TYPED_IN)) return;
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
  if (location.hash === shown && leave) return;
  shown = location.hash;
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
    const module = await (PAGES[name] ?? PAGES.runs)();
    if (own !== turn) return;
    fill(page);
    const left = (await module.open(page, path, query)) ?? (() => {});
    if (own === turn) leave = left; else left();
  } catch (error) {
    if (own !== turn) return;
    fill(page, h("p", { class: "empty", role: "alert" }, error instanceof Refused ? error.message : `This page has a fault: ${error}`));
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
window.addEventListener("hashchange", show);
show();

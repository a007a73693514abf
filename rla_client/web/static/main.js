// Which page is shown: by what stands behind the # of the address, `#/runs?…`, `#/run/<place>/<table>/<index>`.

import { fill, h } from "./dom.js";
import { Refused } from "./api.js";

const PAGES = {
  runs: () => import("./runs.js"),
  run: () => import("./run.js"),
  compare: () => import("./compare.js"),
  machine: () => import("./machine.js"),
};
const page = document.getElementById("page");
let leave = null;
let shown = "";
let turn = 0;  // of what is opened: a slow page that was left meanwhile must not take the next one's place

/** The address behind the #: {name, path, query}. */
export function here() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/");
  const decoded = (part) => { try { return decodeURIComponent(part); } catch { return part; } };
  return { name: Object.hasOwn(PAGES, name) ? name : "runs", path: rest.map(decoded).join("/"), query: new URLSearchParams(query) };
}

/** Write the query of this page into the address, without a new entry in the history. */
export function remember(query) {
  const { name, path } = here();
  const text = query.toString();
  const link = `#/${name}${path ? `/${path.split("/").map(encodeURIComponent).join("/")}` : ""}${text ? `?${text}` : ""}`;
  if (link !== location.hash) history.replaceState(null, "", link);
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

async function show() {
  if (location.hash === shown && leave) return;
  shown = location.hash;
  leave?.();
  leave = () => {};
  tell("");
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

const theme = localStorage.getItem("rla-theme");
if (theme) document.documentElement.dataset.theme = theme;
document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("rla-theme", root.dataset.theme);
  window.dispatchEvent(new Event("themechange"));
});
window.addEventListener("hashchange", show);
show();

// The frame that all pages stand in: the address behind its #, the message below the title, keys.

import { Refused } from "./api.js";

const PAGES = ["runs", "run", "compare", "machine"];
export const state = { shown: "", keys: {} };  // the address whose page is open, and that page's own keys

/** The address behind the #: {name, path, query}. */
export function here() {
  const { view = "" } = document.documentElement.dataset;  // of a report: what it shows at first, and again by its links
  const [path, given] = (location.hash || view).replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/");
  const decoded = (part) => { try { return decodeURIComponent(part); } catch { return part; } };
  const page = PAGES.includes(name) ? name : "runs";
  return { name: page, path: rest.map(decoded).join("/"), query: new URLSearchParams(given ?? (page === "runs" ? view.split("?")[1] : "") ?? "") };
}

/** Write the query of this page into the address, without a new entry in the history. */
export function remember(query) {
  const { name, path } = here();
  const text = query.toString();
  const link = `#/${name}${path ? `/${path.split("/").map(encodeURIComponent).join("/")}` : ""}${text ? `?${text}` : ""}`;
  try { if (link !== location.hash) history.replaceState(null, "", link); } catch { /* a frame without an address */ }
  state.shown = location.hash;
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

/** Keys of the page that is shown: {key: [what it does, how]}. */
export function keys(own) { state.keys = own; }

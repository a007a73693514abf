// Tables that a run left in its results: sorted, filtered by column, searched.

import { ask, fileUrl } from "./api.js";
import { fill, h, later, numberText } from "./dom.js";
import { follow, nearest, slider, stepsOf } from "./parts.js";

const AT_ONCE = 100;  // rows
const PAUSE_MS = 10_000;
const TABLE = /\.(csv|tsv|jsonl|ndjson|parquet)$/i;

/** Whether a file is a table that this page shows. */
export function isTable(name) { return TABLE.test(name); }

const isNumber = (cell) => typeof cell === "number" || (typeof cell === "string" && cell.trim() !== "" && !Number.isNaN(Number(cell)));

/** Whether it is a confusion matrix, as `media/logged_media/confusion_matrix.py` writes it. */
const isConfusion = ([first, ...others]) => first === "actual" && others.length > 0 && others.every((name) => name.startsWith("predicted "));

/** How dark a cell of a confusion matrix is: its share of its row. */
function shade(row, at) {
  const share = at && Number(row[at]) / row.slice(1).reduce((sum, cell) => sum + Number(cell), 0);
  return share > 0 ? { background: `color-mix(in srgb, var(--accent) ${Math.round(share * 60)}%, transparent)` } : null;
}

/** Fill the tab. */
export function tablesTab({ path, body, signal, run, query, save }) {
  const view = h("div", {});
  const choice = h("select", { "aria-label": "Table", onchange: () => choose(groups.find(({ name }) => name === choice.value)) });
  const search = h("input", { type: "search", placeholder: "search in all columns", "aria-label": "Search in all columns", oninput: later(() => load(), 200) });
  const count = h("span", { class: "dim", role: "status" });
  const link = h("a", {}, "Save");
  const steps = slider([], (step) => open(nearest(group.files, step)[1]), "Time-step of the table");
  const bar = h("div", { class: "strip" }, choice, steps.node, search, link, count);
  let known = "";
  let groups = [];
  let group = null;  // the table over its time-steps
  let opened = null;  // {name, sort, down, filters, rows}
  let columns = "";  // that are shown

  async function look() {
    const found = await ask("media", { run: path }, signal);
    const text = JSON.stringify(found.tables);
    if (text === known) return;
    known = text;
    groups = found.tables;
    bar.hidden = !groups.length;
    fill(choice, groups.map(({ name }) => h("option", { value: name }, name)));
    if (!groups.length) { fill(view, h("p", { class: "empty" }, "no tables: CSV, TSV, JSON lines or Parquet files in its results")); return; }
    const same = group && groups.find(({ name }) => name === group.name);
    if (same) { choose(same); return; }
    const wanted = query.get("table");
    const own = groups.find(({ files }) => files.some(([, name]) => name === wanted));
    choose(own ?? groups[0], own ? wanted : null);
  }
  /** Show a table, one of its files or the one at the step of the slider, at first the latest. */
  function choose(next, name = null) {
    if (group?.name !== next.name) steps.change([]);
    group = next;
    choice.value = group.name;
    steps.change(stepsOf([group]));
    if (name) steps.set(group.files.find(([, own]) => own === name)[0]);
    open(name ?? nearest(group.files, steps.step())[1]);
  }
  function open(name) {
    if (opened?.group !== group.name) { opened = { group: group.name, sort: null, down: false, filters: {} }; columns = ""; }
    if (opened.name === name) return;
    Object.assign(opened, { name, rows: 0 });
    save({ table: name });
    link.href = fileUrl("file", { run: path, kind: "results", path: name, save: "1" });
    load();
  }
  async function load(more = false) {
    const { name, sort, down, filters } = opened;
    const from = more ? opened.rows : 0;
    let found;
    try { found = await ask("table", { run: path, path: name, search: search.value, filters, sort, down, from, count: AT_ONCE }, signal); } catch (error) {
      if (error.name === "AbortError") throw error;
      fill(view, h("p", { class: "bad" }, error.message));
      return;
    }
    if (opened.name !== name) return;
    opened.rows = from + found.rows.length;
    count.textContent = `${found.fitting === found.total ? "" : `${found.fitting} of `}${found.total} rows${found.cut ? ", the first ones of a larger file" : ""}`;
    const text = JSON.stringify(found.columns);
    if (!more && (!view.querySelector("tbody") || columns !== text)) build(found.columns);
    columns = text;
    const heads = view.querySelectorAll("th[aria-sort]");
    heads.forEach((head, at) => head.setAttribute("aria-sort", sort !== at ? "none" : down ? "descending" : "ascending"));
    const confusion = isConfusion(found.columns);
    const rows = found.rows.map((row) => h("tr", {}, row.map((cell, at) => h("td", { class: isNumber(cell) ? "number" : null, style: confusion ? shade(row, at) : null }, typeof cell === "number" ? numberText(cell) : cell === null ? "" : String(cell)))));
    if (!more) heads.forEach((head, at) => head.classList.toggle("number", isNumber(found.rows[0]?.[at])));
    const table = view.querySelector("tbody");
    if (more) table.append(...rows); else fill(table, rows);
    view.querySelector(".more").hidden = opened.rows >= found.fitting;
  }
  function build(columns) {
    const by = (at) => () => { opened.down = opened.sort === at && !opened.down; opened.sort = at; load(); };
    fill(view, h("div", { class: "wide-table", tabindex: "0", role: "region", "aria-label": "Rows" }, h("table", { class: "list data" }, h("thead", {},
      h("tr", {}, columns.map((name, at) => h("th", { scope: "col", "aria-sort": "none" }, h("button", { type: "button", class: "sort", onclick: by(at) }, name)))),
      h("tr", {}, columns.map((name, at) => h("td", {}, h("input", { type: "search", placeholder: "text, > 3", "aria-label": `Filter of ${name}`, size: 8, oninput: later((event) => { opened.filters[at] = event.target.value; load(); }, 250) }))))),
    h("tbody", {}))), h("button", { type: "button", class: "more", onclick: () => load(true) }, "More rows"));
  }
  fill(body, bar, view);
  follow(look, run, () => PAUSE_MS, signal);
}

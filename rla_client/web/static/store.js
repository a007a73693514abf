// The runs of the page: rows by number, as the server last told, and columns that were asked for beside them.

import { ask } from "./api.js";
import { tally } from "./dom.js";

export const ARCHIVED = "archived";  // the tag of runs that the list leaves out
const FIELDS = ["place", "table", "index", "state", "time", "step", "took", "host", "tags", "note", "display_name", "problem", "parts", "tracked", "metric", "value"];

export class Store {
  constructor() {
    this.rows = new Map();
    this.extra = new Map();  // column → Map(number → value)
    this.texts = new Map();  // column that runs are grouped by → Map(number → text): equal ones are the same group
    this.version = 0;
    this.boot = "";
    this.databases = [];
    this.problems = [];
  }

  /** Ask for what changed; whether anything did. */
  async refresh() {
    const told = await ask("runs", { since: this.boot ? this.version : 0 });
    if (this.boot && told.boot !== this.boot) location.reload();  // another server: the numbers are others
    this.boot = told.boot;
    this.version = told.version;
    this.databases = told.databases;
    this.problems = told.problems;
    for (const number of told.gone) this.rows.delete(number);
    told.number.forEach((number, at) => {
      const row = { number };
      for (const field of FIELDS) row[field] = told[field][at];
      row.path = `${row.place}/${row.table}/${row.index}`;
      this.rows.set(number, row);
    });
    const changed = told.number.length + told.gone.length > 0;
    if (changed && this.extra.size) await this.load([...this.extra.keys()], told.number, [...this.texts.keys()]);
    return changed;
  }

  /** Know the values of some columns, of all runs or of some; of `group` also the texts by which runs are grouped. */
  async load(names, numbers = null, group = []) {
    if (!names.length || (numbers && !numbers.length)) return;
    const told = await ask("columns", { names, numbers, group });
    names.forEach((name, place) => {
      if (!this.extra.has(name)) this.extra.set(name, new Map());
      const known = this.extra.get(name);
      told.number.forEach((number, at) => known.set(number, told.values[place][at]));
      if (!group.includes(name) || !told.texts[place]) return;
      if (!this.texts.has(name)) this.texts.set(name, new Map());
      told.number.forEach((number, at) => this.texts.get(name).set(number, told.texts[place][at]));
    });
  }

  /** The value of a column of a row. */
  value(row, name) {
    if (name === "run") return row.index.slice(0, 26);
    if (name === "tags") return row.tags.join(row.tags.some((tag) => tag.includes(" ")) ? ", " : " ");
    if (["table", "state", "time", "step", "took", "host", "note"].includes(name)) return row[name];
    if (this.extra.has(name)) return this.extra.get(name).get(row.number) ?? null;
    if (Object.hasOwn(row.tracked, name)) return row.tracked[name];
    return name === row.metric ? row.value : null;
  }

  /** Names that rows have without being asked for: tracked hyper-parameters, and likely metrics, the most frequent first. */
  own(rows) {
    const count = (names) => tally(names).map(([name]) => name);
    return { metrics: count(rows.map((row) => row.metric).filter(Boolean)), tracked: count(rows.flatMap((row) => Object.keys(row.tracked))) };
  }
}

/** Order of two values: numbers (also texts that spell one) by size, then texts, nothing last. */
export function compare(a, b) {
  const rank = (value) => {
    if (value === null || value === undefined || value === "") return [2, 0];
    const number = typeof value === "number" ? value : Number(value);
    return Number.isNaN(number) ? [1, String(value)] : [0, number];
  };
  const [ra, va] = rank(a);
  const [rb, vb] = rank(b);
  if (ra !== rb) return ra - rb;
  return va < vb ? -1 : va > vb ? 1 : 0;
}

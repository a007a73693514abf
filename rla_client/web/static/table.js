// The list of runs: only the rows that are seen are elements, so ten thousand scroll like ten.

import { stripes } from "./colours.js";
import { durationText, fill, h, later, memory, numberText, tally, timeText, whenFree } from "./dom.js";
import { runLink } from "./frame.js";
import { grip } from "./grip.js";
import { meanAndInterval } from "./numbers.js";
import { dateText } from "./run_names.js";
import { compare } from "./store.js";

const ROW = 26;  // pixels; the style sheet has the same
const BESIDE = 12;  // rows that are made above and below those that are seen
const TEXT = 13;  // pixels of letters, as the style sheet has them; dates are smaller
const DATE = 11;
const PADDING = 14;  // pixels beside a text; there are more beside a name
const MORE = 4;
const HEAD = 96;  // pixels up to which a column is as wide as its head; what it holds may make it wider
const WIDEST = { run: 380, note: 320 };  // pixels of a column, unasked
const WIDE = 215;  // of others
const SAMPLED = 300;  // rows that a column's width is taken from
const WIDTHS = "rla-widths";  // of columns that the user chose
const SPARK = 72;  // pixels of a small curve
const GAP = 6;  // pixels between the parts of a cell
const STATE = 86;  // pixels of a state, with what is beside it
const MARK = 24;  // pixels of a sign behind a text
const LEAST = 40;  // pixels of a column
const SWATCH = 16;  // pixels of a colour
const SIDE = 80;  // pixels of the fields before the columns
const MAY_DIFFER = 0.1;  // of the longest run
const SAMPLED_GROUPS = 50;  // likewise; a mean takes all runs of its group

function cellText(name, value) {
  if (name === "took") return durationText(value);
  if (name === "time") return timeText(value);
  return Array.isArray(value) ? value.join(" ") : typeof value === "object" && value ? JSON.stringify(value) : numberText(value);
}

const ink = document.createElement("canvas").getContext("2d");

/** Pixels that the widest of some texts takes; of those that are much shorter than the longest one nothing is measured. */
function widthOf(texts, size = TEXT, weight = "") {
  ink.font = `${weight} ${size}px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif`;
  const longest = Math.max(...texts.map((text) => text.length), 0);
  return Math.max(...[...new Set(texts)].filter((text) => text.length > longest * 0.7).map((text) => ink.measureText(text).width), 0);
}

/** What stands above a column: the end of a name with a path, where no other column has the same. */
function headText(name, columns) {
  const end = (one) => (one.includes("(") ? one : one.slice(one.lastIndexOf("/") + 1));
  return end(name) && columns.filter((one) => end(one) === end(name)).length === 1 ? end(name) : name;
}

/** What to say of runs that ended at different time-steps (`of_one_length` of database/compare/groups.py); empty otherwise. */
function unevenText(rows) {
  const steps = rows.map((row) => Number(row.step)).filter((step, at) => rows[at].step !== null && Number.isFinite(step));
  const [low, high] = [Math.min(...steps), Math.max(...steps)];
  return steps.length > 1 && high - low > MAY_DIFFER * Math.abs(high) ? `These runs ended at different steps, from ${numberText(low)} to ${numberText(high)}: their last values are averaged as they are` : "";
}

/**
 * The table. `view` has store, name(row), pinned, sparklines, fitList(where each column ends), columns(), sort, setSort(name), list() (rows and groups in order), chosen, hidden,
 * colours, groupColours, toggle(row, what, range), setColour(colours, name, colour), hover(row or null), markNear(), open groups.
 */
export class Table {
  constructor(view) {
    this.view = view;
    this.head = h("div", { class: "row head", role: "row" });
    this.body = h("div", { class: "rows", role: "rowgroup" });
    this.space = h("div", { class: "space" });
    this.none = h("p", { class: "empty", hidden: true });
    this.box = h("div", { id: "runs-table", role: "table", "aria-label": "Runs", tabindex: "0" }, this.head, h("div", { class: "sheet" }, this.space, this.body, this.none));
    this.box.addEventListener("scroll", () => this.paint(), { passive: true });
    this.box.addEventListener("keydown", (event) => this.key(event));
    this.observer = new ResizeObserver(later(() => this.paint(), 30));
    this.observer.observe(this.box);
    this.list = [];
    this.last = null;
    this.chosenWidths = JSON.parse(memory.get(WIDTHS) ?? "{}");
  }

  close() { this.observer.disconnect(); }

  /** Show the list and the columns as they are now. */
  update() { whenFree(this, () => this.show()); }

  show() {
    this.list = this.view.list();
    this.columns = this.view.columns();
    const groups = this.list.filter((one) => !one.row).slice(0, SAMPLED_GROUPS);
    const means = groups.map((one) => this.means(one));
    const rows = this.view.rows().slice(0, SAMPLED);
    this.widths = this.columns.map((name, at) => {
      if (Object.hasOwn(this.chosenWidths, name)) return this.chosenWidths[name];
      const head = Math.min(widthOf([headText(name, this.columns), ...(this.view.sort.name === name ? [`${headText(name, this.columns)} ↓`] : [])], TEXT, "600") + PADDING, HEAD);
      return Math.round(Math.max(head, Math.min(this.contentWidth(name, rows, groups, means, at) + PADDING, name === "run" ? this.mostOfNames() : WIDEST[name] ?? WIDE), LEAST));
    });
    this.setWidths();
    this.box.setAttribute("aria-rowcount", String(this.list.length + 1));
    this.box.setAttribute("aria-colcount", String(this.columns.length + 1));
    this.space.style.height = `${this.list.length * ROW}px`;
    this.none.hidden = this.list.length > 0;
    this.none.textContent = this.view.store.rows.size ? "No run fits the filter." : "No run is here yet. Start one:\n\n    from rla_client import logger\n\nIt appears here by itself.";
    this.heads();
    this.paint(true);
  }

  /** Pixels that what stands in a column takes. */
  contentWidth(name, rows, groups, means, at) {
    if (name === "trend") return SPARK;
    if (name === "run") {
      const given = rows.map((row) => this.view.name(row)).filter(Boolean);
      const marks = widthOf([`${rows.some((row) => this.view.pinned.has(row.number)) ? "★ " : ""}${rows.some((row) => row.problem) ? " ⚠" : ""}`]);
      const menu = matchMedia("(hover: none)").matches ? MARK : 0;  // it is always there
      const names = widthOf(rows.map((row) => this.view.name(row) || dateText(row))) + marks + menu + MORE;
      const dates = given.length ? widthOf(["00-00 00:00:00"], DATE) + 2 * GAP : 0;
      const dated = names + dates + PADDING <= this.mostOfNames() || new Set(given).size < given.length;  // else the names tell the runs apart
      this.box.classList.toggle("undated", !dated);
      return Math.max(names + (dated ? dates : 0), widthOf(groups.map((one) => `${one.label}  ${one.rows.length} runs`), TEXT, "600") + MARK);
    }
    const pill = name === "state" ? 2 * GAP : 0;
    return Math.max(widthOf(rows.map((row) => cellText(name, this.view.store.value(row, name)))) + pill, widthOf(means.map((one) => one[at])));
  }

  /** Pixels of the column of names, unasked: on a small screen the states stand beside it. */
  mostOfNames() {
    const room = matchMedia("(max-width: 900px)").matches ? this.box.clientWidth - SIDE - STATE : Infinity;
    return Math.max(Math.min(WIDEST.run, room), LEAST);
  }

  setWidths() {
    this.box.style.setProperty("--columns", `${SIDE}px ${this.widths.map((width) => `${width}px`).join(" ")}`);
    let edge = SIDE + this.box.offsetWidth - this.box.clientWidth;
    this.view.fitList(this.widths.map((width) => (edge += width)));
  }

  /** Make a column as wide as the user wants it; it stays so. */
  widen(name, width) {
    this.chosenWidths[name] = Math.max(Math.round(width), LEAST);
    memory.set(WIDTHS, JSON.stringify(this.chosenWidths));
    this.widths[this.columns.indexOf(name)] = this.chosenWidths[name];
    this.setWidths();
  }

  /** Let a column be as wide as what it holds. */
  loosen(name) {
    delete this.chosenWidths[name];
    memory.set(WIDTHS, JSON.stringify(this.chosenWidths));
    this.update();
  }

  heads() {
    const { sort } = this.view;
    const rows = this.view.rows();
    const count = rows.filter((row) => this.view.chosen.has(row.number)).length;
    const choose = h("input", { type: "checkbox", checked: count > 0 && count === rows.length, indeterminate: count > 0 && count < rows.length, title: "Select all that fit, or none", "aria-label": "Select all runs that fit", onclick: () => this.view.chooseAll() });
    fill(this.head, h("div", { class: "cell tools", role: "columnheader", "aria-label": "Selection" }, choose), this.columns.map((name) => {
      const [order, arrow] = sort.name !== name ? ["none", ""] : sort.down ? ["descending", " ↓"] : ["ascending", " ↑"];
      const sortable = name !== "trend";
      const by = () => { if (sortable) this.view.setSort(name); };
      return h("div", {
        class: "cell", role: "columnheader", tabindex: sortable ? "0" : null, title: sortable ? `Sort by ${name}` : "The likely metric over the steps", dataset: { column: name }, "aria-sort": sortable ? order : null,
        onclick: by, onkeydown: (event) => { if (event.key === "Enter") by(); },
      }, headText(name, this.columns), arrow, grip(`Width of ${name}`, () => this.widths[this.columns.indexOf(name)], (width) => this.widen(name, width), { class: "grip", onclick: (event) => event.stopPropagation(), ondblclick: () => this.loosen(name) }));
    }));
  }

  paint(anew = false) {
    // after a filter, the place where the rows were may be below the last one
    const top = Math.min(this.box.scrollTop, Math.max((this.list.length + 1) * ROW - this.box.clientHeight, 0));
    const first = Math.max(Math.floor(top / ROW) - BESIDE, 0);
    const last = Math.min(Math.ceil((top + this.box.clientHeight) / ROW) + BESIDE, this.list.length);
    if (!anew && this.first === first && this.end === last) return;
    this.first = first;
    this.end = last;
    this.body.style.transform = `translateY(${first * ROW}px)`;
    const { activeElement } = document;
    const focus = activeElement?.closest?.(".row")?.dataset.number;
    const own = focus === undefined ? "" : activeElement.classList[0] ?? "choose";
    fill(this.body, this.list.slice(first, last).map((one, place) => (one.row ? this.row(one, first + place) : this.group(one, first + place))));
    this.view.markNear();
    if (focus !== undefined) this.body.querySelector(`[data-number="${focus}"] .${own}`)?.focus({ preventScroll: true });
  }

  row({ row, inside }, place) {
    const { view } = this;
    const hidden = view.hidden.has(row.number);
    const drawn = view.isDrawn(row);
    const name = `${view.name(row)} ${dateText(row)}`.trim();
    const chosen = view.chosen.has(row.number);
    const toggle = (event) => { view.toggle(row, "chosen", event.shiftKey ? this.last : null); this.last = row; };
    const does = hidden ? "Show" : "Hide";
    return h("div", {
      class: `row${chosen ? " chosen" : ""}${hidden ? " off" : ""}${inside ? " inside" : ""}`, role: "row", dataset: { number: row.number },
      "aria-rowindex": String(place + 2), "aria-selected": String(chosen), onmouseenter: () => view.hover(row), onmouseleave: () => view.hover(null),
    },
    h("div", { class: "cell tools", role: "cell" },
      h("input", { type: "checkbox", class: "choose", checked: chosen, "aria-label": `Select ${name}`, onclick: toggle }),
      h("button", { type: "button", class: "eye", title: `${does} its curves`, "aria-pressed": String(hidden), "aria-label": `${does} the curves of ${name}`, onclick: () => view.toggle(row, "hidden") }, hidden ? "○" : "●"),
      this.colour(view.colours, row.path, name, view.colours.line(row.path), drawn)),
    this.columns.map((column) => this.cell(row, column)));
  }

  /** What chooses a colour, dashed as its line; `name` as it is read, hidden where nothing is drawn. */
  colour(colours, key, name, { dash }, drawn = true) {
    return h("input", {
      type: "color", class: "colour", value: colours.of(key), title: "Its colour", "aria-label": `Colour of ${name}`, disabled: !drawn,
      style: { visibility: drawn ? "visible" : "hidden", maskImage: dash ? stripes(dash, "#000", SWATCH) : null }, onchange: (event) => this.view.setColour(colours, key, event.target.value),
    });
  }

  cell(row, column) {
    const value = this.view.store.value(row, column);
    const text = cellText(column, value);
    const number = typeof value === "number" || (typeof value === "string" && value !== "" && !Number.isNaN(Number(value)));
    if (column === "run") return this.nameCell(row);
    if (column === "trend") return h("div", { class: "cell trend", role: "cell" }, this.view.sparklines.of(row, this.view.colours.line(row.path)));
    const inside = column === "state" ? h("span", { class: `state ${value ?? "unknown"}` }, value ?? "unknown") : text;
    return h("div", { class: `cell${number ? " number" : ""}`, role: "cell", title: text }, inside);
  }

  /** The name of a run, its date, and what opens its menu. */
  nameCell(row) {
    const { view } = this;
    const name = view.name(row);
    const date = dateText(row);
    const about = [name || date, `${row.table}/${row.index}`, row.parts, row.problem].filter(Boolean).join("\n");
    const more = h("button", { type: "button", class: "more-of online", title: "Rename, tag, pin, hide, archive", "aria-label": `Actions for ${name || date}`, "aria-haspopup": "menu", onclick: async () => (await import("./run_actions.js")).openActions(more, `Actions for ${name || date}`, view, [row]) }, "⋯");
    return h("div", { class: "cell name", role: "cell" },
      view.pinned.has(row.number) && h("span", { class: "pin", title: "pinned" }, "★ "),
      h("a", { href: runLink(row.path), title: about }, name || date, row.problem ? " ⚠" : ""), name && h("span", { class: "dim date" }, ` ${date}`), more);
  }

  /** What a group shows in each column: the mean over its runs, or what they have in common. */
  means(one) {
    const { view } = this;
    return this.columns.map((column) => {
      if (["run", "trend", "time", "note", "tags"].includes(column)) return "";
      if (column === "state") return tally(one.rows.map((row) => row.state ?? "unknown")).map(([name, count]) => `${count} ${name}`).join(", ");
      const values = one.rows.map((row) => view.store.value(row, column)).filter((value) => value !== null && value !== "");
      const numbers = values.map(Number).filter(Number.isFinite);
      if (new Set(values.map(String)).size === 1) return cellText(column, values[0]);
      if (numbers.length < 2 || numbers.length < values.length) return "";
      const [mean, interval] = meanAndInterval(numbers);
      return column === "took" ? durationText(mean) : `${numberText(mean)} ± ${numberText(Number(interval.toPrecision(2)))} (95 %)`;
    });
  }

  group(one, place) {
    const { view } = this;
    const means = this.means(one);
    const uneven = unevenText(one.rows);
    return h("div", { class: "row group", role: "row", "aria-rowindex": String(place + 2), dataset: { group: one.label } },
      h("div", { class: "cell tools", role: "cell" },
        h("button", { type: "button", class: "fold", "aria-expanded": String(one.open), "aria-label": `${one.open ? "Fold" : "Unfold"} ${one.label}`, onclick: () => view.fold(one.label) }, one.open ? "▾" : "▸"),
        this.colour(view.groupColours, one.label, one.label, view.groupColours.groupLine(one.label))),
      this.columns.map((column, at) => h("div", { class: `cell${!at ? " label" : column !== "state" && Number.isFinite(parseFloat(means[at])) ? " number" : ""}`, role: "cell", title: at ? (means[at].includes(" ± ") ? `${means[at]}: mean over the runs, ± half of its 95 % interval (Student's t)` : means[at]) : one.label },
        at ? means[at] : [h("b", {}, one.label), h("span", { class: "dim" }, ` ${one.rows.length} run${one.rows.length === 1 ? "" : "s"}`), uneven && h("span", { class: "warn", title: uneven, role: "img", "aria-label": uneven }, " ⚠")])),
    );
  }

  key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 20, PageUp: -20 }[event.key];
    if (!step || event.target.matches("input:not([type=checkbox])")) return;
    if (event.target.closest("[role=separator]")) return;
    const rows = [...this.body.querySelectorAll(".row[data-number] .choose")];
    const at = rows.indexOf(document.activeElement?.closest(".row")?.querySelector(".choose"));
    this.box.scrollTop += at < 0 ? 0 : step * ROW;
    this.paint();
    const again = [...this.body.querySelectorAll(".row[data-number] .choose")];
    (again[Math.min(Math.max((at < 0 ? 0 : at + step), 0), again.length - 1)])?.focus({ preventScroll: true });
    event.preventDefault();
  }
}

/** Rows in the order of a column; of equals the newest first. */
export function sorted(rows, sort, store) {
  const keyed = rows.map((row) => [sort.name === "run" ? row.time : store.value(row, sort.name), row]);
  const nothing = (value) => value === null || value === undefined || value === "";
  keyed.sort(([a, x], [b, y]) => {
    const order = nothing(a) || nothing(b) ? nothing(a) - nothing(b) : compare(a, b) * (sort.down ? -1 : 1);
    return order || y.time - x.time;
  });
  return keyed.map(([, row]) => row);
}

// The page of runs: the list on one side, the panels of what is drawn on the other, and the line that filters both.

import { ask, offline } from "./api.js";
import { Colours } from "./colours.js";
import { completing, offered } from "./complete.js";
import { control, CurveTools } from "./curve_tools.js";
import { fill, h, later, memory } from "./dom.js";
import { keys, tell } from "./frame.js";
import { Panels } from "./panels.js";
import { ARCHIVED, compare, Store } from "./store.js";
import { differingNames, labelsOf, nameOf } from "./run_names.js";
import { Sparklines } from "./sparkline.js";
import { grip } from "./grip.js";
import { sorted, Table } from "./table.js";
import { DRAWN_ANEW, names, readView, showViews, writeView } from "./view.js";

const MOST_PARAMETERS = 12;  // columns of hyper-parameters that are shown unasked
const MOST_COMPARED = 2000;  // runs up to which the page asks by itself what differs among them
const MOST_LIKELY = 2;
const MOST_DIFFERING = 100;
const NARROWEST = 120;  // pixels of the list
const SHARE = 0.48;  // of the page that the list takes by itself, at most
const FEWER = 0.42;  // the same where two panels then stand beside each other
const TWO_PANELS = 730;  // pixels that these take with what is around them
const LIST_WIDTH = "rla-list-width";

class Runs {
  constructor(query) {
    this.store = new Store();
    this.colours = new Colours("rla-colours");
    this.groupColours = new Colours("rla-group-colours");
    this.chosen = new Set();
    this.hidden = new Set();
    this.pinned = new Set();
    this.differing = [];  // hyper-parameters that are not the same in the listed runs
    this.sparklines = new Sparklines(() => this.table.update());
    this.unfolded = new Set();
    this.settings = readView(query);
    this.fits = null;  // numbers that pass the filter; null: all
    this.names = { fields: [], hyper: [], metrics: [], values: {} };
  }

  // What is shown ---------------------------------------------------------------------------------

  /** Whether the list of runs is seen. */
  get listed() { return this.settings.list === ""; }

  get groupBy() { return names(this.settings.group); }

  get group() { return this.groupBy.length ? this.groupBy : null; }

  get sort() { return { name: this.settings.sort.replace(/^-/, ""), down: this.settings.sort.startsWith("-") }; }

  /** Rows that pass the filter, in order. */
  rows() {
    if (this.sortedRows) return this.sortedRows;
    const rows = sorted([...this.store.rows.values()].filter((row) => (this.fits?.has(row.number) ?? true) && this.inList(row)), this.sort, this.store);
    const pinned = rows.filter((row) => this.pinned.has(row.number));
    this.sortedRows = pinned.length ? [...pinned, ...rows.filter((row) => !this.pinned.has(row.number))] : rows;
    return this.sortedRows;
  }

  /** Whether a run is not put away, or those that are shall be seen. */
  inList(row) { return this.settings.archived || !row.tags.includes(ARCHIVED); }

  /** Tracked hyper-parameters that the listed runs do not share. */
  get differingTracked() { return this.differingKeys ??= differingNames(this.rows()); }

  /** What a run is called in the list; empty where only its date tells it. */
  name(row) { return nameOf(row, this.differingTracked); }

  /** Rows whose curves are drawn: the selected ones, else the first so many, grouped: all. */
  drawn() {
    if (this.drawnRows) return this.drawnRows;
    const rows = this.rows();
    const chosen = rows.filter((row) => this.chosen.has(row.number));
    const seen = (chosen.length ? chosen : rows).filter((row) => !this.hidden.has(row.number));
    this.drawnRows = chosen.length || this.group || this.settings.tab === "parameters" ? seen : seen.slice(0, Math.max(this.settings.show, 1));
    this.drawnSet = new Set(this.drawnRows.map((row) => row.number));
    return this.drawnRows;
  }

  isDrawn(row) { this.drawn(); return this.drawnSet.has(row.number); }

  likely() { return this.store.own(this.drawn()).metrics[0]; }

  columns() {
    const rows = this.rows();
    const own = this.store.own(rows);
    const several = (field) => new Set(rows.map((row) => row[field])).size > 1;
    const values = [...(offline || this.group ? [] : ["trend"]), ...own.metrics.slice(0, MOST_LIKELY), ...(several("table") || several("place") ? ["table"] : [])];
    const fixed = ["run", ...(this.group ? [...values, "state"] : ["state", ...values])];  // the states of a group are long
    const tags = rows.some((row) => row.tags.some((tag) => tag !== ARCHIVED)) ? ["tags"] : [];
    const notes = rows.some((row) => row.note) ? ["note"] : [];
    const differing = rows.length > 1 ? [...this.differingTracked, ...this.differing] : own.tracked;
    const parameters = this.settings.only ? [] : [...new Set(differing)].slice(0, MOST_PARAMETERS);
    const rest = ["step", "took", ...(several("host") ? ["host"] : [])];
    return [...new Set([...fixed, ...parameters, ...this.settings.column, ...rest, ...tags, ...notes])];
  }

  /** Rows and heads of groups, as the table shows them. */
  list() {
    if (!this.group) return this.rows().map((row) => ({ row }));
    const groups = Map.groupBy(this.rows(), (row) => this.groupLabel(row));
    const values = (rows) => this.groupBy.map((name) => this.store.value(rows[0], name));
    const ordered = [...groups].sort(([, a], [, b]) => {
      const [left, right] = [values(a), values(b)];
      return left.map((value, at) => compare(value, right[at])).find((order) => order) ?? 0;
    });
    return ordered.flatMap(([label, rows]) => {
      const open = this.unfolded.has(label);
      return [{ label, rows, open }, ...(open ? rows.map((row) => ({ row, inside: true })) : [])];
    });
  }

  /** What a run's group is called: alike for those that the server has in one group (`database/compare/group_key.py`). */
  groupLabel(row) {
    return this.groupBy.map((name) => {
      const text = this.store.texts.get(name)?.get(row.number) ?? "None";
      return `${name}=${text.includes("=") || text.startsWith('"') ? JSON.stringify(text) : text}`;
    }).join(", ");
  }

  /** What a run's curve is called: no other drawn run has the same text. */
  label(row) {
    this.labels ??= this.makeLabels();
    return this.labels.get(row.number) ?? this.name(row);
  }

  makeLabels() {
    const table = this.columns().includes("table");
    const more = (row) => [table ? row.table : "", this.store.databases.length > 1 ? `[${row.place}]` : ""].filter(Boolean).join(" ");
    return labelsOf(this.drawn(), differingNames(this.drawn()), more);
  }

  // What is done ----------------------------------------------------------------------------------

  /** Something changed that the list or the curves show. */
  update(curves = true) {
    this.sortedRows = this.drawnRows = this.labels = this.differingKeys = null;
    this.table.update();
    this.remember();
    const rows = this.rows().length;
    const there = [...this.store.rows.values()];
    const away = there.filter((row) => row.tags.includes(ARCHIVED)).length;
    const all = there.length - (this.settings.archived ? 0 : away);
    this.archived.hidden = !away;
    this.archived.textContent = this.settings.archived ? "Leave out archived" : `${away} archived`;
    this.actions.hidden = !this.chosen.size;
    this.actions.textContent = `Selected: ${this.chosen.size} ▾`;
    this.learnDiffering();
    fill(this.count, `${rows === all ? "" : `${rows} of `}${all} run${all === 1 ? "" : "s"}`, `, ${this.drawn().length} drawn${this.group && this.settings.tab === "curves" ? " in bands" : ""}`);
    this.differs.disabled = this.drawn().length < 2;
    this.differs.classList.toggle("on", this.settings.only);
    this.files.hidden = this.drawn().length === 0;
    this.files.href = `#/compare?${new URLSearchParams(this.drawn().slice(0, 8).map((row) => ["run", row.path]))}`;
    this.curveTools.update(this.group !== null);
    if (curves) this.panels.ask();
  }

  remember() {
    const paths = (numbers) => [...numbers].map((number) => this.store.rows.get(number)?.path).filter(Boolean);
    this.settings.run = paths(this.chosen);
    this.settings.hide = paths(this.hidden);
    this.settings.pin = paths(this.pinned);
    writeView(this.settings);
  }

  /** Fetch what the view needs that is not known yet, and show it; a filter that is wrong leaves the list as it is. */
  async apply(curves = true) {
    const { where, column } = this.settings;
    try {
      const grouped = this.groupBy.filter((name) => !this.store.texts.has(name));
      const unknown = column.filter((name) => !this.store.extra.has(name));
      const load = this.store.load([...new Set([...grouped, ...unknown])], null, grouped);
      const [found] = await Promise.all([where ? ask("fitting", { where }) : null, load]);
      if (where !== this.settings.where) return;  // typed on meanwhile
      this.fits = found && new Set(found);
      this.wrong("");
    } catch (error) {
      this.wrong(error.message);
      if (this.sortedRows) return;
    }
    this.update(curves);
  }

  wrong(text) {
    this.error.textContent = text;
    if (text) this.input.setAttribute("aria-invalid", "true"); else this.input.removeAttribute("aria-invalid");
  }

  /** The server has a later version of the list. */
  async changed(version) {
    this.told = version;
    if (this.refreshing) return;
    this.refreshing = true;
    try {
      while (this.told > this.store.version) {
        this.told = 0;  // until it tells of another one
        const before = new Set(this.drawn().map((row) => row.number));
        const labels = this.drawn().map((row) => this.label(row)).join("\n");
        if (!await this.store.refresh()) continue;
        await this.apply(false);
        const now = this.drawn();
        if (now.length !== before.size || now.some((row) => !before.has(row.number)) || this.settings.tab !== "curves") { this.panels.ask(); continue; }
        if (now.map((row) => this.label(row)).join("\n") !== labels) this.panels.recolour();
        await this.panels.learn();
      }
    } finally { this.refreshing = false; }
  }

  /** Change settings; the panels ask again where they would show something else. */
  async set(changes) {
    Object.assign(this.settings, "x" in changes || "logX" in changes ? { zoom: null } : {}, changes);
    const some = (...names) => names.some((name) => name in changes);
    if (some("where", "group", "column")) { await this.apply(!some("column")); return; }
    if (some("list")) this.foldList();
    if (some("ranks")) this.panels.ask();
    else if (some(...DRAWN_ANEW)) this.panels.change();
    else if (some("metrics", "order", "with")) this.panels.layout();
    else if (some("size")) this.panels.resize();
    this.update(some("show", "tab", "target", "sort", "archived"));
  }

  async regroup(group) {
    await this.knowNames();
    const known = new Set([...this.names.fields, ...this.names.hyper, ...this.names.metrics]);
    const unknown = names(group).filter((name) => !known.has(name));
    await this.set({ group: unknown.length ? "" : group.trim() });
    if (unknown.length) this.error.textContent = `no run has ${unknown.join(", ")} to group by`;
  }

  setSort(name) { return this.set({ sort: `${(this.sort.name === name ? !this.sort.down : name !== "run") ? "-" : ""}${name}` }); }

  setColumns(column) { return this.set({ column }); }

  toggle(row, what, from = null) {
    const set = this[what];
    const on = !set.has(row.number);
    const rows = this.rows();
    const [a, b] = [from ?? row, row].map(({ number }) => rows.findIndex((one) => one.number === number));
    for (const one of a < 0 || b < 0 ? [row] : rows.slice(Math.min(a, b), Math.max(a, b) + 1)) {
      if (on) set.add(one.number); else set.delete(one.number);
    }
    this.update();
  }

  /** Select these runs and no others. */
  choose(numbers) {
    this.chosen = new Set(numbers);
    this.update();
  }

  chooseAll() {
    const rows = this.rows();
    this.choose(rows.every((row) => this.chosen.has(row.number)) ? [] : rows.map((row) => row.number));
  }

  fold(label) {
    if (!this.unfolded.delete(label)) this.unfolded.add(label);
    this.table.update();
  }

  setColour(colours, name, colour) { colours.set(name, colour); this.recolour(); }

  /** Draw all again in other colours. */
  recolour() { this.table.update(); this.panels.recolour(); }

  /** The mouse is over a row. */
  hover(row) { this.panels.highlight(row && this.isDrawn(row) ? { number: row.number } : null); }

  /** A curve stands out, or none: its row does, too. */
  onHover(curve) {
    this.near = curve && (curve.label !== undefined ? `[data-group="${CSS.escape(curve.label)}"]` : `[data-number="${curve.number}"]`);
    this.markNear();
  }

  markNear() {
    for (const node of this.table.body.querySelectorAll(".near")) node.classList.remove("near");
    if (this.near) this.table.body.querySelector(this.near)?.classList.add("near");
  }

  /** Know what differs among the listed runs, for their columns; after what is seen first. */
  learnDiffering() {
    this.askDiffering ??= later(async () => {
      const numbers = this.rows().map((row) => row.number);
      const key = numbers.length > MOST_COMPARED ? "" : numbers.toSorted((a, b) => a - b).join();
      if (this.closed || this.compared === key) return;
      this.compared = key;
      const found = key ? (await ask("differing", { numbers })).slice(0, MOST_PARAMETERS) : [];
      await this.store.load(found.filter((name) => !this.store.extra.has(name) && !this.differingTracked.includes(name)));
      if (this.compared !== key || found.join() === this.differing.join()) return;
      this.differing = found;
      this.table.update();
    }, 1500);
    this.askDiffering();
  }

  async showDiffering() {
    if (this.settings.only) { await this.set({ only: false, column: this.before ?? [] }); return; }
    this.before = this.settings.column;
    const found = await ask("differing", { numbers: this.drawn().map((row) => row.number) });
    tell(found.length ? "" : "These runs have the same hyper-parameters.");
    await this.set({ only: true, column: found.slice(0, MOST_DIFFERING) });
  }

  described() {
    const whole = !this.chosen.size && !this.hidden.size && (this.group !== null || this.drawn().length === this.rows().length);
    return { whole, where: this.settings.where, logY: this.settings.logY };
  }

  async showCommand(text) { (await import("./command_dialog.js")).showCommand(text); }

  async showColumns() {
    await this.knowNames();
    const known = [...new Set([...this.names.hyper, ...this.names.metrics, ...(offline ? [] : this.names.metrics.flatMap((name) => [`max(${name})`, `min(${name})`])), ...this.names.fields])];
    (await import("./choose_dialog.js")).chooseNames("Columns", known, this.settings.column, (chosen) => this.setColumns(chosen));
  }

  // What it is made of ----------------------------------------------------------------------------

  build() {
    this.curveTools = new CurveTools(this);
    const field = (name, props, read) => this.curveTools.field(name, props, read);
    const button = (name, title, text, onclick) => h("button", { type: "button", name, title, onclick }, text);
    this.error = h("p", { class: "bad error", role: "alert" });
    this.count = h("span", { class: "dim", role: "status" });
    this.input = field("where", { class: "where mono", placeholder: "lr == 0.001 and state == 'finished'", "aria-label": "Filter", onfocus: () => this.knowNames() });
    const group = h("input", { name: "group", value: this.settings.group, placeholder: "lr, env", "aria-label": "Group by", spellcheck: "false", onchange: () => this.regroup(group.value) });
    this.differs = button("differs", "Only hyper-parameters that are not the same in the drawn runs", "What differs", () => this.showDiffering());
    this.actions = button("actions", "Name, tag, pin, hide or archive the selected runs", "", async () => (await import("./run_actions.js")).openActions(this.actions, "Actions for the selected runs", this, this.rows().filter((row) => this.chosen.has(row.number))));
    this.actions.setAttribute("aria-haspopup", "menu");
    this.archived = button("archived", "Runs that were put away", "", () => this.set({ archived: !this.settings.archived }));
    this.folder = button("list", "Show or hide the list (l)", "☰", () => this.set({ list: this.settings.list === "folded" ? "" : "folded" }));
    this.folder.setAttribute("aria-label", "List of runs");
    this.files = h("a", { class: "button", title: "Pictures and videos of the drawn runs, side by side" }, "Files");
    this.targets = h("datalist", { id: "target-metrics" });
    const numbers = (input) => Number(input.value) || 0;
    const bar = h("div", { class: "bar" }, this.folder,
      h("span", { class: "online" },
        control("Filter", completing(this.input, (text, caret) => offered(this.names, text, caret), () => this.set({ where: this.input.value.trim() }))),
        control("Group by", completing(group, (text, caret) => offered({ hyper: [...this.names.hyper, "table", "host", "state", "tags"] }, text, caret, String), () => this.regroup(group.value)))),
      this.differs, button("columns", "Which columns the list has", "Columns…", () => this.showColumns()), this.files,
      h("span", { class: "online" }, button("views", "Named views (v)", "Views…", () => showViews()), this.actions), this.archived, this.count);
    const tab = (name, text) => h("button", { type: "button", role: "tab", name: `tab-${name}`, "aria-selected": String(this.settings.tab === name), onclick: () => this.turn(name) }, text);
    this.tabs = h("span", { class: "tabs online", role: "tablist", "aria-label": "What is drawn" }, tab("curves", "Curves"), tab("parameters", "Hyper-parameters"));
    this.tools = h("div", { class: "bar tools", dataset: { tab: this.settings.tab } }, this.tabs,
      h("span", { class: "of-parameters" }, control("Metric", field("target", { list: "target-metrics", "aria-label": "Metric that the hyper-parameters are drawn against", placeholder: "the likely one" }), this.targets)),
      h("span", { class: "of-curves" }, this.curveTools.nodes, control("Curves", field("show", { type: "number", min: "1", max: "5000", title: "How many are drawn while none is selected" }, numbers))));
    this.table = new Table(this);
    this.panels = new Panels(this);
    this.left = h("div", { class: "left" }, this.table.box);
    const right = h("div", { class: "right" }, this.tools, this.panels.node);
    this.node = h("div", { id: "runs", class: this.settings.list === "none" ? "alone" : "" }, h("h1", { class: "unseen" }, "Runs"), bar, this.error, h("div", { class: "halves" }, this.left, this.divider(), right));
    this.foldList();
    return this.node;
  }

  /** Show the list, or leave its place to the curves. */
  foldList() {
    const folded = this.settings.list === "folded";
    this.node.classList.toggle("folded", folded);
    this.folder.setAttribute("aria-expanded", String(!folded));
    this.panels.fitNames();
  }

  /** Give the list the width of whole columns (a number that is cut reads as another one), or the one that the user chose. */
  fitList(ends) {
    const chosen = Number(memory.get(LIST_WIDTH));
    const beside = innerWidth - TWO_PANELS;
    const most = Math.round(beside > innerWidth * FEWER ? Math.min(beside, innerWidth * SHARE) : innerWidth * SHARE);
    const basis = `${Math.max(chosen || (ends.findLast((end) => end <= most) ?? most), NARROWEST)}px`;
    if (this.left.style.flexBasis !== basis) this.left.style.flexBasis = basis;
  }

  /** What makes the list wider, by mouse or by keys; a double click lets its columns say how wide it is. */
  divider() {
    const { left } = this;
    const wide = (width) => { memory.set(LIST_WIDTH, String(Math.max(width, NARROWEST))); this.fitList([]); };
    return grip("Width of the list", () => left.clientWidth, wide, { class: "divider", title: "Drag to make the list wider; double-click: as wide as its columns", ondblclick: () => { memory.set(LIST_WIDTH, ""); this.table.update(); } });
  }

  /** Show the curves, or the hyper-parameters. */
  turn(tab) {
    for (const node of this.tabs.children) node.setAttribute("aria-selected", String(node.name === `tab-${tab}`));
    this.tools.dataset.tab = tab;
    return this.set({ tab });
  }

  async open(page) {
    page.append(this.build());
    this.stop = new AbortController();
    window.addEventListener("themechange", () => this.recolour(), this.stop);
    keys({
      "/": ["go to the filter", () => this.input.focus()], m: ["find metrics", () => this.tools.querySelector("[name=metrics]").focus()],
      a: ["select all runs that fit, or none", () => this.chooseAll()], 0: ["reset the zoom", () => this.set({ zoom: null })], v: ["named views", () => showViews()],
      l: ["show or hide the list", () => this.folder.click()], c: ["curves", () => this.turn("curves")], h: ["hyper-parameters", () => this.turn("parameters")], d: ["what differs", () => this.showDiffering()],
    });
    await this.store.refresh();
    document.getElementById("where").textContent = this.store.databases.join("   ");
    if (this.store.problems.length) tell(this.store.problems.join("\n"), true);
    for (const row of this.store.rows.values()) {
      if (this.settings.run.includes(row.path)) this.chosen.add(row.number);
      if (this.settings.hide.includes(row.path)) this.hidden.add(row.number);
      if (this.settings.pin.includes(row.path)) this.pinned.add(row.number);
    }
    const { where, column, tab } = this.settings;
    if (!where && !column.length && !this.group && tab === "curves" && !document.hidden) this.panels.begin();
    await this.apply();
    setTimeout(() => this.knowNames(), 1500);  // after the first curves
  }

  /** Know what can be completed. */
  async knowNames() {
    this.asking ??= ask("names");
    this.names = await this.asking;
    const options = (list) => list.map((name) => h("option", { value: name }));
    this.curveTools.know(this.names.metrics);
    fill(this.targets, options(this.names.metrics));
  }

  close() {
    this.closed = true;
    this.stop.abort();
    this.panels.close();
    this.table.close();
  }
}

/** Open the page; returns what closes it. */
export async function open(page, _, query) {
  const runs = new Runs(query);
  window.rla = runs;
  await runs.open(page);
  return () => runs.close();
}

// The page of runs: the list on one side, the panels of what is drawn on the other, and the line that filters both.

import { ask, offline } from "./api.js";
import { Colours } from "./colours.js";
import { completing, offered } from "./complete.js";
import { dialog, fill, h, later } from "./dom.js";
import { keys, tell } from "./frame.js";
import { Panels } from "./panels.js";
import { compare, Store } from "./store.js";
import { sorted, Table } from "./table.js";
import { names, readView, showViews, writeView } from "./view.js";

const MOST_TRACKED = 12;  // columns of tracked hyper-parameters that are shown unasked
const MOST_LIKELY = 2;
const MOST_DIFFERING = 100;
const BANDS = { ci: "mean, 95 % CI", iqm: "IQM, 95 % CI", stderr: "mean ± std. error", std: "mean ± std", median: "median, quartiles", range: "mean, min to max", none: "mean" };
const DRAWN_ANEW = ["x", "logX", "logY", "smooth", "band", "zoom"];  // settings whose change asks for all curves again
const NARROWEST = 120;  // pixels of the list

class Runs {
  constructor(query) {
    this.store = new Store();
    this.colours = new Colours("rla-colours");
    this.groupColours = new Colours("rla-group-colours");
    this.chosen = new Set();
    this.hidden = new Set();
    this.unfolded = new Set();
    this.settings = readView(query);
    this.fits = null;  // numbers that pass the filter; null: all
    this.names = { fields: [], hyper: [], metrics: [], values: {} };
  }

  // What is shown ---------------------------------------------------------------------------------

  get groupBy() { return names(this.settings.group); }

  get group() { return this.groupBy.length ? this.groupBy : null; }

  get sort() { return { name: this.settings.sort.replace(/^-/, ""), down: this.settings.sort.startsWith("-") }; }

  /** Rows that pass the filter, in order. */
  rows() {
    this.sortedRows ??= sorted([...this.store.rows.values()].filter((row) => this.fits?.has(row.number) ?? true), this.sort, this.store);
    return this.sortedRows;
  }

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
    const fixed = ["run", ...(several("table") || several("place") ? ["table"] : []), "state", ...own.metrics.slice(0, MOST_LIKELY), "step", "took", ...(several("host") ? ["host"] : [])];
    const tags = rows.some((row) => row.tags.length) ? ["tags"] : [];
    const notes = rows.some((row) => row.note) ? ["note"] : [];
    const parameters = this.settings.only ? [] : own.tracked.slice(0, MOST_TRACKED);
    return [...new Set([...fixed, ...parameters, ...this.settings.column, ...tags, ...notes])];
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

  /** What a run's group is called: alike for those that the server has in one group (`database/compare/grouping.py`). */
  groupLabel(row) {
    return this.groupBy.map((name) => {
      const text = this.store.texts.get(name)?.get(row.number) ?? "None";
      return `${name}=${text.includes("=") || text.startsWith('"') ? JSON.stringify(text) : text}`;
    }).join(", ");
  }

  label(row) {
    const tracked = Object.entries(row.tracked).map(([key, value]) => `${key}=${value}`).join(" ");
    const day = row.index.slice(5, 10).replace("/", "-");
    return `${day} ${row.index.slice(11, 19).replaceAll("-", ":")}${tracked ? ` ${tracked}` : ""}${this.columns().includes("table") ? ` ${row.table}` : ""}${this.store.databases.length > 1 ? ` [${row.place}]` : ""}`;
  }

  // What is done ----------------------------------------------------------------------------------

  /** Something changed that the list or the curves show. */
  update(curves = true) {
    this.sortedRows = null;
    this.drawnRows = null;
    this.table.update();
    this.remember();
    const rows = this.rows().length;
    const all = this.store.rows.size;
    fill(this.count, `${rows === all ? "" : `${rows} of `}${all} run${all === 1 ? "" : "s"}`, `, ${this.drawn().length} drawn${this.group && this.settings.tab === "curves" ? " in bands" : ""}`);
    this.differs.disabled = this.drawn().length < 2;
    this.differs.classList.toggle("on", this.settings.only);
    this.files.hidden = this.drawn().length === 0;
    this.files.href = `#/compare?${new URLSearchParams(this.drawn().slice(0, 8).map((row) => ["run", row.path]))}`;
    this.unzoom.hidden = !this.settings.zoom;
    this.band.disabled = !this.group;
    if (curves) this.panels.ask();
  }

  remember() {
    const paths = (numbers) => [...numbers].map((number) => this.store.rows.get(number)?.path).filter(Boolean);
    this.settings.run = paths(this.chosen);
    this.settings.hide = paths(this.hidden);
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
        if (!await this.store.refresh()) continue;
        await this.apply(false);
        const now = this.drawn();
        if (now.length !== before.size || now.some((row) => !before.has(row.number)) || this.settings.tab !== "curves") { this.panels.ask(); continue; }
        await this.panels.learn();
      }
    } finally { this.refreshing = false; }
  }

  /** Change settings; the panels ask again where they would show something else. */
  async set(changes) {
    Object.assign(this.settings, "x" in changes || "logX" in changes ? { zoom: null } : {}, changes);
    const some = (...names) => names.some((name) => name in changes);
    if (some("where", "group", "column")) { await this.apply(!some("column")); return; }
    if (some(...DRAWN_ANEW)) this.panels.change();
    else if (some("metrics")) this.panels.layout();
    this.update(some("show", "tab", "target", "sort"));
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

  /** The mouse is near a curve. */
  onHover(curve) {
    for (const node of this.table.body.querySelectorAll(".near")) node.classList.remove("near");
    if (!curve) return;
    const name = curve.label !== undefined ? `[data-group="${CSS.escape(curve.label)}"]` : `[data-number="${curve.number}"]`;
    this.table.body.querySelector(name)?.classList.add("near");
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

  showCommand(text) {
    const field = h("textarea", { readonly: true, rows: 4, "aria-label": "Command" }, text);
    dialog("The same picture by command", field, h("button", { type: "button", autofocus: true, onclick: async () => {
      try { await navigator.clipboard.writeText(text); tell("copied"); } catch { field.select(); }
    } }, "Copy"));
  }

  async showColumns() {
    await this.knowNames();
    const known = [...new Set([...this.names.hyper, ...this.names.metrics, ...(offline ? [] : this.names.metrics.flatMap((name) => [`max(${name})`, `min(${name})`])), ...this.names.fields])];
    const chosen = new Set(this.settings.column);
    const search = h("input", { type: "search", placeholder: "find a column", "aria-label": "Find a column", oninput: () => draw() });
    const box = h("div", { class: "choices" });
    const draw = () => {
      const text = search.value.toLowerCase();
      const found = known.filter((name) => name.toLowerCase().includes(text)).sort((a, b) => chosen.has(b) - chosen.has(a)).slice(0, 200);
      fill(box, found.map((name) => h("label", {}, h("input", { type: "checkbox", checked: chosen.has(name), value: name, onchange: (event) => { if (event.target.checked) chosen.add(name); else chosen.delete(name); } }), ` ${name}`)));
    };
    draw();
    const shown = dialog("Columns", search, box, h("button", { type: "button", onclick: () => { shown.close(); this.setColumns([...chosen]); } }, "Show"));
    shown.classList.add("columns");
  }

  // What it is made of ----------------------------------------------------------------------------

  /** A field of one setting: {type, name, …} as of an input, and when it counts. */
  field(name, props, read = (input) => input.value.trim()) {
    const value = this.settings[name];
    const event = props.type === "search" || name === "where" ? "oninput" : "onchange";
    const change = (happened) => this.set({ [name]: read(happened.target) });
    return h("input", { name, value: String(value), checked: value === true, spellcheck: "false", ...props, [event]: event === "oninput" ? later(change, 200) : change });
  }

  build() {
    const control = (label, ...input) => h("label", { class: "control" }, h("span", {}, label), input);
    const check = (label, name) => h("label", { class: "control" }, this.field(name, { type: "checkbox" }, (input) => input.checked), ` ${label}`);
    const button = (name, title, text, onclick) => h("button", { type: "button", name, title, onclick }, text);
    this.error = h("p", { class: "bad error", role: "alert" });
    this.count = h("span", { class: "dim", role: "status" });
    this.input = this.field("where", { class: "where mono", placeholder: "lr == 0.001 and state == 'finished'", "aria-label": "Filter", onfocus: () => this.knowNames() });
    const group = h("input", { name: "group", value: this.settings.group, placeholder: "lr, env", "aria-label": "Group by", spellcheck: "false", onchange: () => this.regroup(group.value) });
    this.differs = button("differs", "Only hyper-parameters that are not the same in the drawn runs", "What differs", () => this.showDiffering());
    this.files = h("a", { class: "button", title: "Pictures and videos of the drawn runs, side by side" }, "Files");
    this.band = h("select", { name: "band", onchange: (event) => this.set({ band: event.target.value }) }, Object.entries(BANDS).map(([value, text]) => h("option", { value, selected: value === this.settings.band }, text)));
    this.unzoom = button("unzoom", "Show all of x again (0)", "Reset zoom", () => this.set({ zoom: null }));
    this.xs = h("datalist", { id: "x-columns" });
    this.targets = h("datalist", { id: "target-metrics" });
    const numbers = (input) => Number(input.value) || 0;
    const bar = h("div", { class: "bar" },
      h("span", { class: "online" },
        control("Filter", completing(this.input, (text, caret) => offered(this.names, text, caret), () => this.set({ where: this.input.value.trim() }))),
        control("Group by", completing(group, (text, caret) => offered({ hyper: [...this.names.hyper, "table", "host", "state", "tags"] }, text, caret, String), () => this.regroup(group.value)))),
      this.differs, button("columns", "Which columns the list has", "Columns…", () => this.showColumns()), this.files,
      h("span", { class: "online" }, button("views", "Named views (v)", "Views…", () => showViews())), this.count);
    const tab = (name, text) => h("button", { type: "button", role: "tab", name: `tab-${name}`, "aria-selected": String(this.settings.tab === name), onclick: () => this.turn(name) }, text);
    this.tabs = h("span", { class: "tabs online", role: "tablist", "aria-label": "What is drawn" }, tab("curves", "Curves"), tab("parameters", "Hyper-parameters"));
    this.tools = h("div", { class: "bar tools", dataset: { tab: this.settings.tab } }, this.tabs,
      h("span", { class: "of-parameters" }, control("Metric", this.field("target", { list: "target-metrics", "aria-label": "Metric that the hyper-parameters are drawn against", placeholder: "the likely one" }), this.targets)),
      h("span", { class: "of-curves" },
        h("span", { class: "online" }, control("x", this.field("x", { list: "x-columns", "aria-label": "Column of the x axis" }, (input) => input.value.trim() || "time-step"), this.xs)),
        check("log x", "logX"), check("log y", "logY"),
        h("span", { class: "online" }, control("Smooth", this.field("smooth", { type: "range", min: "0", max: "50", step: "1", "aria-label": "Smoothing in points" }, numbers)), control("Bands", this.band)),
        control("Curves", this.field("show", { type: "number", min: "1", max: "5000", title: "How many are drawn while none is selected" }, numbers)),
        this.field("metrics", { type: "search", placeholder: "find metrics", "aria-label": "Find metrics" }, (input) => input.value), this.unzoom));
    this.table = new Table(this);
    this.panels = new Panels(this);
    const left = h("div", { class: "left" }, this.table.box);
    const right = h("div", { class: "right" }, this.tools, this.panels.node);
    this.node = h("div", { id: "runs", class: this.settings.list === "none" ? "alone" : "" }, bar, this.error, h("div", { class: "halves" }, left, this.divider(left), right));
    return this.node;
  }

  /** What makes the list wider, by mouse or by keys. */
  divider(left) {
    const node = h("div", { class: "divider", role: "separator", tabindex: "0", "aria-orientation": "vertical", "aria-label": "Width of the list", title: "Drag to make the list wider" });
    const wide = (width) => { left.style.flexBasis = `${Math.max(width, NARROWEST)}px`; };
    node.addEventListener("pointerdown", (down) => {
      node.setPointerCapture(down.pointerId);
      const begun = left.clientWidth - down.clientX;
      node.onpointermove = (event) => wide(begun + event.clientX);
    });
    node.addEventListener("pointerup", () => { node.onpointermove = null; });
    node.addEventListener("keydown", (event) => {
      const by = { ArrowRight: 40, ArrowLeft: -40 }[event.key];
      if (by) wide(left.clientWidth + by);
    });
    return node;
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
      c: ["curves", () => this.turn("curves")], h: ["hyper-parameters", () => this.turn("parameters")], d: ["what differs", () => this.showDiffering()],
    });
    await this.store.refresh();
    document.getElementById("where").textContent = this.store.databases.join("   ");
    if (this.store.problems.length) tell(this.store.problems.join("\n"), true);
    for (const row of this.store.rows.values()) {
      if (this.settings.run.includes(row.path)) this.chosen.add(row.number);
      if (this.settings.hide.includes(row.path)) this.hidden.add(row.number);
    }
    await this.apply();
    setTimeout(() => this.knowNames(), 1500);  // after the first curves
  }

  /** Know what can be completed. */
  async knowNames() {
    this.asking ??= ask("names");
    this.names = await this.asking;
    const options = (list) => list.map((name) => h("option", { value: name }));
    fill(this.xs, options(["time-step", "timestamp", "elapsed", "row", ...this.names.metrics]));
    fill(this.targets, options(this.names.metrics));
  }

  close() {
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

// The page of runs: the list on one side, the panels of what is drawn on the other, and the line that filters both.

import { ask } from "./api.js";
import { Colours } from "./colours.js";
import { completing, spelled, wordAt } from "./complete.js";
import { fill, h, later } from "./dom.js";
import { complain, remember, tell } from "./main.js";
import { Panels } from "./panels.js";
import { compare, Store } from "./store.js";
import { sorted, Table } from "./table.js";

const DRAWN = 20;  // curves that are drawn while nothing is selected
const MOST_TRACKED = 12;  // columns of tracked hyper-parameters that are shown unasked
const MOST_LIKELY = 2;
const BANDS = { ci: "mean, 95 % CI", iqm: "IQM, 95 % CI", stderr: "mean ± std. error", std: "mean ± std", median: "median, quartiles", range: "mean, min to max", none: "mean" };

const list = (text) => (text ?? "").split(",").map((name) => name.trim()).filter(Boolean);

class Runs {
  constructor(query) {
    this.store = new Store();
    this.colours = new Colours("rla-colours");
    this.groupColours = new Colours("rla-group-colours");
    this.chosen = new Set();
    this.hidden = new Set();
    this.unfolded = new Set();
    this.where = query.get("where") ?? "";
    this.groupText = query.get("group") ?? "";
    this.asked = query.getAll("column").slice(0, 100);
    this.only = query.get("only") === "1";
    this.show = Math.max(Number(query.get("show")) || DRAWN, 1);
    const sort = query.get("sort") ?? "-time";
    this.sort = { name: sort.replace(/^-/, ""), down: sort.startsWith("-") };
    const zoom = list(query.get("zoom")).map(Number);
    this.settings = {
      x: query.get("x") ?? "time-step", logX: query.get("logx") === "1", logY: query.get("logy") === "1",
      smooth: Math.max(Number(query.get("smooth")) || 0, 0), band: Object.hasOwn(BANDS, query.get("band") ?? "") ? query.get("band") : "ci",
      zoom: zoom.length === 2 && zoom[0] < zoom[1] ? zoom : null, search: query.get("metrics") ?? "",
    };
    this.wanted = new Set(query.getAll("run"));
    this.fits = null;  // numbers that pass the filter; null: all
    this.names = { fields: [], hyper: [], metrics: [], values: {} };
  }

  // What is shown ---------------------------------------------------------------------------------

  get groupBy() { return list(this.groupText); }

  get group() { return this.groupBy.length ? this.groupBy : null; }

  /** Rows that pass the filter, in order. */
  rows() {
    if (this.sortedRows) return this.sortedRows;
    let rows = [...this.store.rows.values()];
    if (this.fits) rows = rows.filter((row) => this.fits.has(row.number));
    this.sortedRows = sorted(rows, this.sort, this.store);
    return this.sortedRows;
  }

  /** Rows whose curves are drawn: the selected ones, else the first so many, grouped: all. */
  drawn() {
    if (this.drawnRows) return this.drawnRows;
    const rows = this.rows();
    const chosen = rows.filter((row) => this.chosen.has(row.number));
    const seen = (some) => some.filter((row) => !this.hidden.has(row.number));
    this.drawnRows = chosen.length ? seen(chosen) : this.group ? seen(rows) : seen(rows).slice(0, this.show);
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
    const parameters = this.only ? [] : own.tracked.slice(0, MOST_TRACKED);
    return [...new Set([...fixed, ...parameters, ...this.asked, ...tags, ...notes])];
  }

  /** Rows and heads of groups, as the table shows them. */
  list() {
    if (!this.group) return this.rows().map((row) => ({ row }));
    const groups = new Map();
    for (const row of this.rows()) {
      const label = this.groupLabel(row);
      if (!groups.has(label)) groups.set(label, []);
      groups.get(label).push(row);
    }
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

  groupLabel(row) { return this.groupBy.map((name) => `${name}=${this.valueText(row, name)}`).join(", "); }

  valueText(row, name) {
    const value = this.store.value(row, name);
    if (typeof value === "number") return Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(6)));
    return value === null ? "None" : value === true ? "True" : value === false ? "False" : String(value);
  }

  label(row) {
    const tracked = Object.entries(row.tracked).map(([key, value]) => `${key}=${value}`).join(" ");
    const day = row.index.slice(5, 10).replace("/", "-");
    return `${day} ${row.index.slice(11, 19).replaceAll("-", ":")}${tracked ? ` ${tracked}` : ""}${this.columns().includes("table") ? ` ${row.table}` : ""}${this.store.databases.length > 1 ? ` [${row.place}]` : ""}`;
  }

  colour(row) { return this.colours.of(row.path); }

  groupColour(label) { return this.groupColours.of(label); }

  // What is done ----------------------------------------------------------------------------------

  /** Something changed that the list or the curves show. */
  update(curves = true) {
    this.sortedRows = null;
    this.drawnRows = null;
    this.table.update();
    this.remember();
    const rows = this.rows().length;
    const all = this.store.rows.size;
    fill(this.count, `${rows === all ? "" : `${rows} of `}${all} run${all === 1 ? "" : "s"}`, `, ${this.drawn().length} drawn${this.group ? " in bands" : ""}`);
    this.differs.disabled = this.drawn().length < 2;
    this.files.hidden = this.drawn().length === 0;
    this.files.href = `#/compare?${new URLSearchParams(this.drawn().slice(0, 8).map((row) => ["run", row.path]))}`;
    if (curves) this.panels.ask();
  }

  remember() {
    const { settings } = this;
    const query = new URLSearchParams();
    const put = (name, value) => { if (value) query.set(name, value); };
    put("where", this.where);
    put("group", this.groupText);
    put("sort", this.sort.name === "time" && this.sort.down ? "" : `${this.sort.down ? "-" : ""}${this.sort.name}`);
    for (const name of this.asked) query.append("column", name);
    put("only", this.only ? "1" : "");
    put("show", this.show === DRAWN ? "" : String(this.show));
    if (this.chosen.size <= 50) for (const number of this.chosen) if (this.store.rows.has(number)) query.append("run", this.store.rows.get(number).path);
    put("x", settings.x === "time-step" ? "" : settings.x);
    put("logx", settings.logX ? "1" : "");
    put("logy", settings.logY ? "1" : "");
    put("smooth", settings.smooth ? String(settings.smooth) : "");
    put("band", settings.band === "ci" ? "" : settings.band);
    put("zoom", settings.zoom?.join(",") ?? "");
    put("metrics", settings.search);
    remember(query);
  }

  /** The server has a later version of the list. */
  async changed(version) {
    if (version <= this.store.version || this.refreshing) return;
    this.refreshing = true;
    try {
      const before = new Set(this.drawn().map((row) => row.number));
      if (await this.store.refresh()) {
        if (this.where) this.fits = new Set(await ask("fitting", { where: this.where }));
        this.update(false);
        const now = this.drawn();
        if (now.length !== before.size || now.some((row) => !before.has(row.number))) this.panels.ask();
        else await this.panels.learn();
      }
    } catch (error) { complain(error); } finally { this.refreshing = false; }
  }

  async filter(text) {
    this.where = text.trim();
    this.error.textContent = "";
    this.input.removeAttribute("aria-invalid");
    try {
      this.fits = this.where ? new Set(await ask("fitting", { where: this.where })) : null;
    } catch (error) {
      this.error.textContent = error.message;
      this.input.setAttribute("aria-invalid", "true");
      return;
    }
    this.update();
  }

  async regroup(text) {
    this.groupText = text.trim();
    this.error.textContent = "";
    await this.knowNames();
    const known = new Set([...this.names.fields, ...this.names.hyper, ...this.names.metrics]);
    const unknown = this.groupBy.filter((name) => !known.has(name));
    if (unknown.length) {
      this.error.textContent = `no run has ${unknown.join(", ")} to group by`;
      this.groupText = "";
    }
    try {
      await this.store.load(this.groupBy.filter((name) => !this.store.extra.has(name)));
    } catch (error) { complain(error); }
    this.band.disabled = !this.group;
    this.update();
  }

  async setSort(name) {
    this.sort = { name, down: this.sort.name === name ? !this.sort.down : name !== "run" };
    this.update();
  }

  toggle(row, what, from = null) {
    const set = this[what];
    const on = !set.has(row.number);
    const rows = this.rows();
    const [a, b] = [rows.indexOf(from ?? row), rows.indexOf(row)];
    for (const one of a < 0 ? [row] : rows.slice(Math.min(a, b), Math.max(a, b) + 1)) {
      if (on) set.add(one.number); else set.delete(one.number);
    }
    this.update();
  }

  chooseAll() {
    const rows = this.rows();
    const all = rows.every((row) => this.chosen.has(row.number));
    for (const row of rows) { if (all) this.chosen.delete(row.number); else this.chosen.add(row.number); }
    this.update();
  }

  fold(label) {
    if (!this.unfolded.delete(label)) this.unfolded.add(label);
    this.table.update();
  }

  setColour(row, colour) { this.colours.set(row.path, colour); this.table.update(); this.panels.recolour(); }

  setGroupColour(label, colour) { this.groupColours.set(label, colour); this.table.update(); this.panels.recolour(); }

  /** The mouse is over a row. */
  hover(row) { this.panels.highlight(row && this.isDrawn(row) ? { number: row.number } : null); }

  /** The mouse is near a curve. */
  onHover(curve) {
    for (const node of this.table.body.querySelectorAll(".near")) node.classList.remove("near");
    if (!curve) return;
    const name = curve.label !== undefined ? `[data-group="${CSS.escape(curve.label)}"]` : `[data-number="${curve.number}"]`;
    this.table.body.querySelector(name)?.classList.add("near");
  }

  onZoom(range) {
    this.settings.zoom = range;
    this.unzoom.hidden = !range;
    this.remember();
    for (const panel of this.panels.panels.values()) panel.change();
  }

  setting(name, value) {
    this.settings[name] = value;
    if (name === "x" || name === "logX") this.onZoom(null);
    else if (name === "search") this.panels.layout();
    else for (const panel of this.panels.panels.values()) panel.change();
    this.remember();
  }

  async showDiffering() {
    if (this.only) { this.only = false; this.asked = this.before ?? []; this.differs.classList.remove("on"); this.update(false); return; }
    const found = await ask("differing", { numbers: this.drawn().map((row) => row.number) });
    await this.store.load(found.slice(0, 100));
    this.only = true;
    this.before = this.asked;
    this.asked = found.slice(0, 100);
    this.differs.classList.add("on");
    tell(found.length ? "" : "These runs have the same hyper-parameters.");
    this.update(false);
  }

  async setColumns(names) {
    await this.store.load(names.filter((name) => !this.store.extra.has(name)));
    this.asked = names;
    this.update(false);
  }

  described() {
    const rows = this.drawn();
    const whole = !this.chosen.size && !this.hidden.size && (this.group || rows.length === this.rows().length);
    return {
      x: this.settings.x, group: this.group, band: this.settings.band, smooth: this.settings.smooth, range: this.settings.zoom, logX: this.settings.logX, logY: this.settings.logY,
      where: whole ? this.where : "", runs: whole ? [] : rows.map((row) => row.index.slice(0, 26)),
      root: this.store.databases[rows[0]?.place ?? 0],
    };
  }

  showCommand(text) {
    const field = h("textarea", { readonly: true, rows: 4, "aria-label": "Command" }, text);
    const dialog = h("dialog", {}, h("h3", {}, "The same picture by command"), field, h("p", {}, h("button", { type: "button", autofocus: true, onclick: async () => {
      try { await navigator.clipboard.writeText(text); tell("copied"); } catch { field.select(); }
    } }, "Copy"), " ", h("button", { type: "button", onclick: () => dialog.close() }, "Close")));
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
  }

  async showColumns() {
    await this.knowNames();
    const known = [...new Set([...this.names.hyper, ...this.names.metrics, ...this.names.metrics.flatMap((name) => [`max(${name})`, `min(${name})`]), ...this.names.fields])];
    const chosen = new Set(this.asked);
    const search = h("input", { type: "search", placeholder: "find a column", "aria-label": "Find a column", oninput: () => draw() });
    const box = h("div", { class: "choices" });
    const draw = () => {
      const text = search.value.toLowerCase();
      const found = known.filter((name) => name.toLowerCase().includes(text)).sort((a, b) => chosen.has(b) - chosen.has(a)).slice(0, 200);
      fill(box, found.map((name) => h("label", {}, h("input", { type: "checkbox", checked: chosen.has(name), value: name, onchange: (event) => { if (event.target.checked) chosen.add(name); else chosen.delete(name); } }), ` ${name}`)));
    };
    draw();
    const dialog = h("dialog", { class: "columns" }, h("h3", {}, "Columns"), search, box, h("p", {}, h("button", { type: "button", onclick: () => { dialog.close(); this.setColumns([...chosen]).catch(complain); } }, "Show"), " ", h("button", { type: "button", onclick: () => dialog.close() }, "Cancel")));
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
  }

  // What it is made of ----------------------------------------------------------------------------

  offer(text, caret) {
    const { start, word, values } = wordAt(text, caret);
    if (values) {
      const known = Object.hasOwn(this.names.values, values) ? this.names.values[values] : [];
      const found = known.filter((value) => value.includes(word.replace(/^['"]/, "")));
      return { start, words: found.map((value) => ({ text: value, kind: values })) };
    }
    const plain = word.replaceAll("`", "").toLowerCase();
    const words = [["hyper", "parameter"], ["metrics", "metric"], ["fields", "field"]].flatMap(([kind, said]) => (
      this.names[kind].map((name) => ({ name, text: spelled(name), kind: said }))
    ));
    const found = words.filter(({ name }) => name.toLowerCase().includes(plain) && name.toLowerCase() !== plain);
    found.sort((a, b) => b.name.toLowerCase().startsWith(plain) - a.name.toLowerCase().startsWith(plain));
    return { start, words: word || !text ? found : [] };
  }

  offerGroup(text, caret) {
    const start = text.lastIndexOf(",", caret - 1) + 1;
    const word = text.slice(start, caret).trim().toLowerCase();
    const names = [...this.names.hyper, "table", "host", "state", "tags"];
    return { start, words: names.filter((name) => name.toLowerCase().includes(word) && name !== word).map((name) => ({ text: name })) };
  }

  build() {
    const { settings } = this;
    const control = (label, input) => h("label", { class: "control" }, h("span", {}, label), input);
    const check = (label, name) => h("label", { class: "control" }, h("input", { type: "checkbox", name, checked: settings[name], onchange: (event) => this.setting(name, event.target.checked) }), ` ${label}`);
    this.error = h("p", { class: "bad error", role: "alert" });
    this.count = h("span", { class: "dim", role: "status" });
    const filter = later(() => this.filter(this.input.value), 250);
    this.input = h("input", { name: "where", class: "where mono", value: this.where, placeholder: "lr == 0.001 and state == 'finished'", "aria-label": "Filter", spellcheck: "false", oninput: filter, onfocus: () => this.knowNames().catch(complain) });
    this.groupInput = h("input", { name: "group", value: this.groupText, placeholder: "lr, env", "aria-label": "Group by", spellcheck: "false", onchange: () => this.regroup(this.groupInput.value) });
    this.differs = h("button", { type: "button", name: "differs", class: this.only ? "on" : "", title: "Only hyper-parameters that are not the same in the drawn runs", onclick: () => this.showDiffering().catch(complain) }, "What differs");
    this.files = h("a", { class: "button", title: "Pictures and videos of the drawn runs, side by side" }, "Files");
    this.band = h("select", { name: "band", disabled: !this.group, onchange: (event) => this.setting("band", event.target.value) }, Object.entries(BANDS).map(([value, text]) => h("option", { value, selected: value === settings.band }, text)));
    this.unzoom = h("button", { type: "button", name: "unzoom", hidden: !settings.zoom, onclick: () => this.onZoom(null) }, "Reset zoom");
    const x = h("input", { name: "x", value: settings.x, list: "x-columns", "aria-label": "Column of the x axis", onchange: (event) => this.setting("x", event.target.value.trim() || "time-step") });
    this.xs = h("datalist", { id: "x-columns" });
    const smooth = h("input", { type: "range", name: "smooth", min: "0", max: "50", step: "1", value: String(settings.smooth), "aria-label": "Smoothing in points", onchange: (event) => this.setting("smooth", Number(event.target.value)) });
    const bar = h(
      "div", { class: "bar" },
      control("Filter", completing(this.input, (text, caret) => this.offer(text, caret), filter)),
      control("Group by", completing(this.groupInput, (text, caret) => this.offerGroup(text, caret), () => this.regroup(this.groupInput.value))),
      this.differs, h("button", { type: "button", name: "columns", onclick: () => this.showColumns().catch(complain) }, "Columns…"), this.files, this.count,
    );
    const tools = h(
      "div", { class: "bar tools" },
      control("x", [x, this.xs]), check("log x", "logX"), check("log y", "logY"), control("Smooth", smooth), control("Bands", this.band),
      control("Curves", h("input", { type: "number", name: "show", min: "1", max: "5000", value: String(this.show), title: "How many are drawn while none is selected", onchange: (event) => { this.show = Math.max(Number(event.target.value) || DRAWN, 1); this.update(); } })),
      h("input", { type: "search", name: "metrics", placeholder: "find metrics", "aria-label": "Find metrics", value: settings.search, oninput: later((event) => this.setting("search", event.target.value), 200) }),
      this.unzoom,
    );
    this.table = new Table(this);
    this.panels = new Panels(this);
    const divider = h("div", { class: "divider", role: "separator", "aria-orientation": "vertical", title: "Drag to make the list wider" });
    const left = h("div", { class: "left" }, this.table.box);
    divider.addEventListener("pointerdown", (down) => {
      divider.setPointerCapture(down.pointerId);
      const begun = left.clientWidth;
      const move = (event) => { left.style.flexBasis = `${Math.max(begun + event.clientX - down.clientX, 120)}px`; };
      divider.addEventListener("pointermove", move);
      divider.addEventListener("pointerup", () => divider.removeEventListener("pointermove", move), { once: true });
    });
    this.node = h("div", { id: "runs" }, bar, this.error, h("div", { class: "halves" }, left, divider, h("div", { class: "right" }, tools, this.panels.node)));
    return this.node;
  }

  async open(page) {
    page.append(this.build());
    this.recolour = () => this.panels.recolour();
    window.addEventListener("themechange", this.recolour);
    await this.store.refresh();
    document.getElementById("where").textContent = this.store.databases.join("   ");
    if (this.store.problems.length) tell(this.store.problems.join("\n"), true);
    for (const row of this.store.rows.values()) if (this.wanted.has(row.path)) this.chosen.add(row.number);
    const needed = [...new Set([...this.groupBy, ...this.asked])];
    const before = [this.store.load(needed)];
    if (this.where) before.push(ask("fitting", { where: this.where }).then((found) => { this.fits = new Set(found); }, (error) => { this.error.textContent = error.message; }));
    await Promise.all(before);
    this.update();
    setTimeout(() => this.knowNames().catch(complain), 1500);  // after the first curves
  }

  /** Know what can be completed. */
  async knowNames() {
    this.asking ??= ask("names");
    this.names = await this.asking;
    fill(this.xs, ["time-step", "timestamp", "elapsed", "row", ...this.names.metrics].map((name) => h("option", { value: name })));
  }

  close() {
    window.removeEventListener("themechange", this.recolour);
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

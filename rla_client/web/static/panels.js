// The panels: one a metric, in sections by prefix, drawn when they come into sight, followed while runs go on. Of
// hyper-parameters one that has all of them beside each other, and one for each against the metric.

import { ask, askNumbers, offline, stream } from "./api.js";
import { Chart } from "./chart.js";
import { fill, h, later, numberText, save, whenFree } from "./dom.js";
import { toPng, toSvg } from "./export.js";
import { complain } from "./frame.js";
import { table } from "./parts.js";

const HEIGHT = 230;
const AT_ONCE = 30;  // panels of a section, and sections, before "more" is asked for
const LEGENDS = 60;
const TRIES_MS = 3000;  // until a stream that broke is opened again, or a page without a stream asks
const STREAMS = 4;  // open at once in one browser; it has six connections to a server, for all pages together
const SHARE = 60;  // what all panels in sight cost the server is asked for again after this many times as long
const STEP = 0.2;  // of what a panel shows: how far a key moves it
const CLOCKS = ["time-step", "timestamp"];

/** Which section a metric stands in. */
const prefixOf = (metric) => (metric.includes("/") ? metric.slice(0, metric.indexOf("/")) : "");

/** A panel; `what`: {key, title, question (of the server), body}. */
class Panel {
  constructor(panels, what) {
    Object.assign(this, what);
    this.panels = panels;
    this.seen = false;
    this.stale = true;
    this.chart = null;
    this.head = null;
    this.new = new Map();  // run → [[x, y], …] since the last answer; y that is not finite as text
    const tell = () => this.box.setAttribute("aria-label", `${this.title}: ${this.chart?.words() ?? "nothing is drawn"}`);
    this.box = h("div", { class: "plot", role: "img", tabindex: "0", "aria-label": this.title, onkeydown: (event) => this.press(event), onfocus: tell });
    this.legend = h("div", { class: "legend", role: "group", "aria-label": "Curves" });
    this.said = h("p", { class: "said dim" });
    const { title, key } = this;
    const curves = this.question === "curves" && !offline;
    const button = (text, name, onclick, props = {}) => h("button", { type: "button", title: name, "aria-label": name, onclick, ...props }, text);
    this.node = h("section", { class: `panel${panels.settings.wide.includes(key) ? " wide" : ""}`, dataset: { metric: key }, "aria-label": title },
      h("header", {}, h("h3", { title }, title), h("span", { class: "buttons" },
        ["PNG", "SVG", curves && "CSV"].filter(Boolean).map((kind) => button(kind, `Save as ${kind}`, () => this.save(kind))),
        curves && button("⌘", "Command line", async () => panels.page.showCommand(await ask("command", { ...panels.asked(), ...panels.page.described(), metric: key }))),
        button("⤢", "Wide", () => panels.keep("wide", key, this.node.classList.toggle("wide"))))),
      this.box, this.said, this.legend,
    );
    this.node.panel = this;
    Object.defineProperty(this.node, "chart", { get: () => this.chart });
    this.draw = later(() => this.paint(), 120);
    this.again = later(() => this.load(), 50);
    this.observer = new ResizeObserver(() => { if (this.box.clientWidth) this.chart?.resize(this.box.clientWidth, HEIGHT); });
    this.observer.observe(this.box);
  }

  close() { this.controller?.abort(); this.observer.disconnect(); this.chart?.close(); clearTimeout(this.waiting); }

  /** What it shows is another thing now. */
  change() { this.stale = true; if (this.seen) this.again(); }

  see(seen) {
    this.seen = seen;
    if (seen && this.stale) this.load();
  }

  async load() {
    if (!this.seen || !this.box.clientWidth) return;
    this.controller?.abort();
    const controller = this.controller = new AbortController();
    this.stale = false;
    this.new.clear();
    const asked = { ...this.panels.asked(), ...this.body, width: Math.round(this.box.clientWidth * Math.min(devicePixelRatio, 2)) };
    this.panels.loading += 1;
    try {
      const { head, data } = await askNumbers(this.question, asked, controller.signal);
      if (head.boot !== this.panels.store.boot) { location.reload(); return; }
      this.head = head;
      this.asked = asked;
      this.base = data;
      this.cursors = new Map(Object.entries(head.cursors ?? {}).map(([number, rows]) => [Number(number), rows ?? 0]));
      this.show();
      this.panels.painted();
    } catch (error) {
      if (error.name === "AbortError") return;
      this.chart?.close();
      this.chart = null;
      this.said.textContent = error.message;
    } finally {
      this.panels.loading -= 1;
      this.panels.follow();
    }
  }

  /** Load again, but not so often that the server does nothing else. */
  soon() {
    if (this.waiting) return;
    this.waiting = setTimeout(() => { this.waiting = 0; this.change(); }, Math.max(3000, (this.head?.cost ?? 0) * 1000 * SHARE * this.panels.inSight));
  }

  curves() {
    return this.head.curves.map((curve) => (
      { ...this.panels.describe(curve), marks: [...(curve.marks ?? []), ...(this.new.get(curve.number) ?? []).filter(([, y]) => typeof y === "string")], odd: curve.odd }));
  }

  show() {
    const { head } = this;
    const { logX, logY, zoom: range } = this.panels.settings;
    const curves = this.curves();
    this.chart?.close();
    this.chart = null;
    fill(this.box);
    const lacking = head.lacking ? `${head.lacking} of ${head.lacking + head.curves.reduce((sum, curve) => sum + (curve.numbers?.length ?? 1), 0)} runs have no ${head.metric}` : "";
    const below = logY && !head.options && this.base.slice(1).some((ys) => ys.some((y) => y !== null && y <= 0)) ? "values of 0 and below are left out: log y" : "";
    this.said.textContent = head.curves.length ? [head.said, lacking, below].filter(Boolean).join("; ") : `none of these runs has numbers for ${[...new Set([head.metric, head.x])].filter(Boolean).join(" and ")}`;
    if (!head.curves.length) { fill(this.legend); return; }
    this.chart = new Chart(this.box, {
      width: this.box.clientWidth, height: HEIGHT, x: head.x, sync: head.options ? this.key : this.question, onZoom: (asked) => this.zoom(asked), onFocus: (at) => this.panels.near(this, at),
      ...(head.options ?? { logX, logY, range }),
    }, curves, this.base, head.kind === "bands");
    if (head.options) { fill(this.legend); return; }
    const on = (at) => () => this.panels.highlight(at === null ? null : head.curves[at]);
    fill(this.legend, curves.slice(0, LEGENDS).map((curve, at) => h(
      "button", { type: "button", class: "entry", title: curve.label, onmouseenter: on(at), onmouseleave: on(null), onfocus: on(at), onblur: on(null) },
      h("span", { class: "swatch", style: { borderTop: `3px ${curve.dash ? "dashed" : "solid"} ${curve.colour}` } }), curve.label,
      curve.odd ? h("span", { class: "bad" }, ` ${Object.entries(curve.odd).map(([kind, count]) => `${count} ${kind}`).join(", ")}`) : null,
    )), curves.length > LEGENDS ? h("span", { class: "dim" }, ` and ${curves.length - LEGENDS} more`) : null);
  }

  /** A part of x was chosen: all panels show it; of points it selects the runs. */
  zoom(range) {
    const { page } = this.panels;
    if (this.question === "curves") { page.set({ zoom: range }); return; }
    const [xs, ...series] = this.base;
    const inside = (ys) => ys.some((y, at) => y !== null && xs[at] >= range[0] && xs[at] <= range[1]);
    if (this.question === "scatter") page.choose(range ? this.head.curves.filter((_, at) => inside(series[at])).map((curve) => curve.number) : []);
  }

  /** Keys of a panel: arrows move along x, + and − zoom. */
  press(event) {
    const by = { ArrowLeft: [-STEP, -STEP], ArrowRight: [STEP, STEP], "+": [STEP, -STEP], "-": [-STEP, STEP] }[event.key];
    if (!by || !this.chart || this.question !== "curves") return;
    event.preventDefault();
    const [to, from] = this.panels.settings.logX ? [Math.log, Math.exp] : [Number, Number];
    const { min, max } = this.chart.plot.scales.x;
    const [low, high] = [to(min), to(max)];
    const range = [from(low + by[0] * (high - low)), from(high + by[1] * (high - low))];
    if (range.every(Number.isFinite)) this.zoom(range);
  }

  /** New rows of one run. */
  add(number, from, xs, ys) {
    if (!this.head) return;
    const known = this.cursors.get(number);
    if (known === undefined || from > known) return;
    const skip = known - from;
    this.cursors.set(number, from + xs.length);
    if (this.head.kind === "bands") { if (skip < xs.length) this.soon(); return; }
    const [low, high] = this.asked.range ?? [-Infinity, Infinity];
    if (!xs.slice(skip).some((x) => x >= low && x <= high)) return;
    if (this.asked.smooth > 0 || this.asked.range) { this.soon(); return; }
    const points = this.new.get(number) ?? [];
    for (let at = skip; at < xs.length; at += 1) {
      if (typeof xs[at] === "number" && ys[at] !== null) points.push([xs[at], ys[at]]);
    }
    this.new.set(number, points);
    this.draw();
  }

  /** Draw the answer and what came since. */
  paint() {
    if (!this.chart) return;
    const news = [...this.new.values()].flat();
    if (news.length > this.base[0].length * Math.max(this.base.length / 2, 2) + 2000) { this.change(); return; }
    const places = new Map(this.head.curves.map((curve, at) => [curve.number, at + 1]));
    const xs = [...new Set([...this.base[0], ...news.map(([x]) => x)])].sort((a, b) => a - b);
    const at = new Map(xs.map((x, place) => [x, place]));
    const data = [xs, ...this.base.slice(1).map((column) => {
      const wider = new Array(xs.length).fill(null);
      column.forEach((y, place) => { if (y !== null) wider[at.get(this.base[0][place])] = y; });
      return wider;
    })];
    for (const [number, points] of this.new) {
      if (!places.has(number)) continue;
      for (const [x, y] of points) if (typeof y === "number") data[places.get(number)][at.get(x)] = y;
    }
    this.chart.update(data, this.curves());
    this.panels.painted();
  }

  highlight(curve) {
    if (!this.chart) return;
    const at = curve === null ? -1 : this.head.curves.findIndex((one) => (
      curve.label !== undefined ? one.label === curve.label : one.number === curve.number || one.numbers?.includes(curve.number)
    ));
    this.chart.focus(at);
    [...this.legend.children].forEach((entry, place) => entry.classList.toggle("on", place === at));
  }

  async save(kind) {
    if (!this.chart) return;
    const { runs, x, metric } = this.asked;
    const content = { PNG: () => toPng(this), SVG: () => toSvg(this), CSV: () => ask("csv", { runs, x, metric }, undefined, "text") }[kind];
    save(`${this.title.replace(/[^\w.-]+/g, "_").slice(0, 80) || "panel"}.${kind.toLowerCase()}`, await content(), kind === "SVG" ? "image/svg+xml" : "text/csv");
  }
}

/**
 * All panels. `page` has store, settings (see `view.js`), drawn() (rows), group (names or null), label(row), colours, groupColours,
 * set(changes), choose(numbers), described() for the command, onHover(curve).
 */
export class Panels {
  constructor(page) {
    this.page = page;
    this.panels = new Map();
    this.open = new Map();  // section → how many panels of it
    this.sections = AT_ONCE;
    this.count = 0;
    this.node = h("div", { id: "panels" });
    this.observer = new IntersectionObserver((entries) => {
      for (const entry of entries) entry.target.panel.see(entry.isIntersecting);
      this.follow();
    }, { rootMargin: "200px" });
    this.turned = () => { if (document.hidden) this.controller?.abort(); else this.watch(); };
    document.addEventListener("visibilitychange", this.turned);
    this.follow = later(() => { if (!this.loading) this.watch(); }, 400);
    this.loading = 0;
    this.ask = later(() => this.update(), 30);
  }

  get store() { return this.page.store; }

  get settings() { return this.page.settings; }

  get inSight() { return [...this.panels.values()].filter((panel) => panel.seen).length; }

  get numbers() { return this.page.drawn().map((row) => row.number); }

  close() {
    this.controller?.abort();
    this.closed = true;
    document.removeEventListener("visibilitychange", this.turned);
    for (const panel of this.panels.values()) panel.close();
  }

  /** What every panel asks for. */
  asked() {
    const { x, logX: log, smooth, zoom: range, band } = this.settings;
    return { runs: this.numbers, x, log, smooth, range, group: this.page.group, band };
  }

  /** All panels show another thing now. */
  change() { for (const panel of this.panels.values()) panel.change(); }

  /** The runs, or how they are shown, changed: ask again, and lay out the panels of their metrics. */
  async update() {
    this.change();
    const { tab, target } = this.settings;
    const key = JSON.stringify([this.numbers, tab, target]);
    if (tab === "parameters") this.weights = await ask("importance", { runs: this.numbers, metric: target || this.page.likely() || "" });
    else if (key !== this.key) {
      const likely = this.page.likely();
      this.counts = null;
      if (!this.metrics && likely) { this.metrics = [likely]; this.layout(); }  // the first curve need not wait for the others
      await this.learn();
    }
    this.key = key;
    whenFree(this, () => this.layout());
    this.follow();
  }

  /** Runs have more rows: they may have more metrics. */
  async learn() {
    const counts = await ask("metrics", { numbers: this.numbers });
    for (const panel of this.panels.values()) if (this.counts && counts[panel.key] !== this.counts[panel.key]) panel.change();  // other runs have it
    this.counts = counts;
    const found = Object.keys(counts).filter((name) => !CLOCKS.includes(name));
    if (found.join("\n") === (this.metrics ?? []).join("\n")) return;
    this.metrics = found;
    whenFree(this, () => this.layout());
  }

  layout() {
    const kept = new Set();
    const focus = document.activeElement;  // before the panels are taken out of the page
    const nodes = this.settings.tab === "parameters" ? this.ofParameters(kept) : this.ofCurves(kept);
    fill(this.node, nodes);
    if (focus?.isConnected) focus.focus({ preventScroll: true });
    for (const [key, panel] of this.panels) {
      if (kept.has(key)) continue;
      this.observer.unobserve(panel.node);
      panel.close();
      this.panels.delete(key);
    }
  }

  ofCurves(kept) {
    const search = this.settings.metrics.toLowerCase();
    const metrics = (this.metrics ?? []).filter((name) => name.toLowerCase().includes(search));
    const likely = this.page.likely();
    if (!metrics.length) return h("p", { class: "empty" }, this.page.drawn().length ? (search ? "No metric has this in its name." : "These runs have no metrics with numbers yet.") : "No run is chosen.");
    const first = (list) => list.includes(likely);
    const sections = [...Map.groupBy(metrics, prefixOf)].sort(([, a], [, b]) => first(b) - first(a));
    const panels = (list) => list.sort((a, b) => (b === likely) - (a === likely)).map((metric) => ({ key: metric, title: metric, question: "curves", body: { metric } }));
    return [
      sections.slice(0, this.sections).map(([prefix, list]) => this.section(prefix, panels(list), kept)),
      this.more(sections.length - this.sections, " groups of metrics", () => { this.sections += AT_ONCE; }),
    ];
  }

  ofParameters(kept) {
    const { metric, names, runs, problem } = this.weights ?? {};
    if (!names?.length) return h("p", { class: "empty" }, problem ?? "");
    const body = { metric };
    const panels = names.map(({ name, rho, importance }) => ({
      key: `scatter ${name}`, title: `${name}: importance ${importance.toFixed(2)}${rho === null ? "" : `, ρ = ${rho.toFixed(2)}`}`, question: "scatter", body: { ...body, parameter: name } }));
    const weights = h("details", {}, h("summary", {}, `Importance for ${metric} in ${runs} runs`), table(["hyper-parameter", "importance", "Spearman's ρ", "runs"],
      names.map(({ name, rho, importance, runs: own }) => [name, h("span", {}, h("meter", { min: "0", max: "1", value: String(importance), "aria-label": `Importance of ${name}` }), ` ${importance.toFixed(2)}`), numberText(rho === null ? null : Number(rho.toFixed(3))), String(own)])));
    weights.open = true;
    return [weights, this.section(metric, [{ key: "parallel", title: `${metric} and hyper-parameters`, question: "parallel", body: { ...body, parameters: names.map(({ name }) => name) } }, ...panels], kept)];
  }

  more(count, of, change) {
    return count > 0 && h("button", { type: "button", class: "more", onclick: () => { change(); this.layout(); } }, `${count} more${of}`);
  }

  section(prefix, list, kept) {
    const most = this.open.get(prefix) ?? AT_ONCE;
    const grid = h("div", { class: "grid" }, list.slice(0, most).map((what) => {
      kept.add(what.key);
      if (this.panels.get(what.key)?.title !== what.title) {
        this.panels.get(what.key)?.close();
        this.panels.set(what.key, new Panel(this, what));
        this.observer.observe(this.panels.get(what.key).node);
      }
      const panel = this.panels.get(what.key);
      panel.body = what.body;
      return panel.node;
    }));
    return h("details", { open: !this.settings.fold.includes(prefix), ontoggle: (event) => this.keep("fold", prefix, !event.target.open) },
      h("summary", {}, prefix || "metrics", h("span", { class: "dim" }, ` ${list.length}`)), grid,
      this.more(list.length - most, "", () => this.open.set(prefix, most + AT_ONCE)));
  }

  /** Whether a name is among those of a setting. */
  keep(setting, name, on) {
    if (this.settings[setting].includes(name) === on) return;
    this.settings[setting] = on ? [...this.settings[setting], name] : this.settings[setting].filter((one) => one !== name);
    this.page.remember();
  }

  /** Hold one of the browser's streams while `work` runs; where all are held, work(true): ask once. */
  async slot(work, place = 0) {
    if (!navigator.locks) return work(false);
    if (place === STREAMS) return work(true);
    return navigator.locks.request(`rla-stream-${place}`, { ifAvailable: true }, (lock) => (lock ? work(false) : this.slot(work, place + 1)));
  }

  /** Follow what is new, for the panels in sight, while the page is seen. */
  async watch() {
    this.controller?.abort();
    if (this.closed || document.hidden || offline) return;
    const controller = this.controller = new AbortController();
    const cursors = Object.create(null);
    for (const panel of this.panels.values()) {
      if (panel.seen && panel.cursors?.size) cursors[panel.key] = Object.fromEntries(panel.cursors);
    }
    try {
      await this.slot((once) => stream("live", { version: this.store.version, x: this.settings.x, cursors, once }, (type, data) => {
        if (type === "rows") for (const [metric, ys] of Object.entries(data.y)) this.panels.get(metric)?.add(data.number, data.from, data.x, ys);
        else if (type === "anew") for (const panel of this.panels.values()) { if (panel.cursors?.has(data.number)) panel.soon(); }
        else if (type === "version") this.page.changed(data.version);
      }, controller.signal));
    } catch (error) {
      if (error.name === "AbortError") return;
      complain(error);
    }
    if (!controller.signal.aborted) setTimeout(() => { if (this.controller === controller) this.watch(); }, TRIES_MS);
  }

  /** A panel was drawn. */
  painted() {
    this.count += 1;
    document.documentElement.dataset.painted = String(this.count);
  }

  /** Label, colour and dash of a curve of an answer. */
  describe(curve) {
    const { page } = this;
    const row = this.store.rows.get(curve.number ?? curve.numbers[0]);
    if (curve.numbers) {
      curve.label = row ? page.groupLabel(row) : curve.label;  // as the list has it, to the letter
      return { label: `${curve.label} (${curve.numbers.length})`, ...page.groupColours.line(curve.label), width: 2 };
    }
    return row ? { label: page.label(row), ...page.colours.line(row.path) } : { label: `run ${curve.number}`, colour: "#777777" };
  }

  near(panel, at) { this.page.onHover(at < 0 ? null : panel.head.curves[at]); }

  highlight(curve) { for (const panel of this.panels.values()) if (panel.seen) panel.highlight(curve); }

  /** Draw all again in other colours. */
  recolour() { for (const panel of this.panels.values()) if (panel.head && panel.chart) { panel.show(); panel.draw(); } }
}

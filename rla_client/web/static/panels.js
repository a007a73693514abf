// The panels: one a metric, in sections by prefix, drawn when they come into sight, followed while runs go on.

import { ask, askNumbers, stream } from "./api.js";
import { Chart } from "./chart.js";
import { fill, h, later, save } from "./dom.js";
import { toCommand, toPng, toSvg } from "./export.js";
import { complain } from "./main.js";

const HEIGHT = 230;
const AT_ONCE = 30;  // panels of a section, and sections, before "more" is asked for
const LEGENDS = 60;
const TRIES_MS = 3000;  // until a stream that broke is opened again, or a page without a stream asks
const STREAMS = 4;  // open at once in one browser; it has six connections to a server, for all pages together
const SHARE = 60;  // what all panels in sight cost the server is asked for again after this many times as long

const nothing = (value) => (Number.isNaN(value) ? null : value);

/** Which section a metric stands in. */
const prefixOf = (metric) => (metric.includes("/") ? metric.slice(0, metric.indexOf("/")) : "");

class Panel {
  constructor(panels, metric) {
    this.panels = panels;
    this.metric = metric;
    this.seen = false;
    this.stale = true;
    this.chart = null;
    this.head = null;
    this.new = new Map();  // run → [[x, y], …] since the last answer
    this.box = h("div", { class: "plot" });
    this.legend = h("div", { class: "legend", role: "list" });
    this.said = h("p", { class: "said dim" });
    this.node = h(
      "section", { class: "panel", dataset: { metric }, "aria-label": metric },
      h("header", {}, h("h3", { title: metric }, metric), h("span", { class: "buttons" },
        ["PNG", "SVG", "CSV", "⌘"].map((what) => h("button", { type: "button", title: what === "⌘" ? "The same as a command line" : `Save as ${what}`, "aria-label": what === "⌘" ? "Command line" : `Save as ${what}`, onclick: () => this.save(what).catch(complain) }, what)),
        h("button", { type: "button", title: "Wide", "aria-label": "Wide", onclick: () => { this.node.classList.toggle("wide"); } }, "⤢"))),
      this.box, this.said, this.legend,
    );
    this.node.panel = this;
    Object.defineProperty(this.node, "chart", { get: () => this.chart });
    this.draw = later(() => this.paint(), 120);
    this.again = later(() => this.load(), 50);
    this.observer = new ResizeObserver(() => {
      if (this.chart && this.box.clientWidth) { this.chart.resize(this.box.clientWidth, HEIGHT); }
    });
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
    const { settings } = this.panels;
    const asked = { ...this.panels.asked(), metric: this.metric, width: Math.round(this.box.clientWidth * Math.min(devicePixelRatio, 2)) };
    this.panels.loading += 1;
    try {
      const { head, buffer, start } = await askNumbers("curves", asked, controller.signal);
      if (head.boot !== this.panels.store.boot) { location.reload(); return; }
      this.head = head;
      this.asked = asked;
      this.base = read(head, buffer, start);
      this.cursors = new Map(Object.entries(head.cursors).map(([number, rows]) => [Number(number), rows ?? 0]));
      this.show(settings);
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
    return this.head.curves.map((curve) => {
      const told = this.panels.describe(curve);
      return { ...told, marks: [...(curve.marks ?? []), ...(this.marks?.get(curve.number) ?? [])], odd: curve.odd };
    });
  }

  show(settings) {
    const { head } = this;
    this.marks = new Map();
    const curves = this.curves();
    this.chart?.close();
    this.chart = null;
    fill(this.box);
    const lacking = head.lacking ? `${head.lacking} of ${head.lacking + head.curves.reduce((sum, curve) => sum + (curve.numbers?.length ?? 1), 0)} runs have no ${this.metric}` : "";
    this.said.textContent = head.curves.length ? lacking : "none of these runs has numbers for it";
    if (!head.curves.length) { fill(this.legend); return; }
    this.chart = new Chart(this.box, {
      width: this.box.clientWidth, height: HEIGHT, x: head.x, logX: settings.logX, logY: settings.logY, sync: "panels",
      range: settings.zoom, onZoom: (range) => this.panels.zoom(range), onFocus: (at) => this.panels.near(this, at),
    }, curves, this.base, head.kind === "bands");
    fill(this.legend, curves.slice(0, LEGENDS).map((curve, at) => h(
      "button",
      {
        type: "button", role: "listitem", class: "entry", title: curve.label,
        onmouseenter: () => this.panels.highlight(head.curves[at]), onmouseleave: () => this.panels.highlight(null),
        onfocus: () => this.panels.highlight(head.curves[at]), onblur: () => this.panels.highlight(null),
      },
      h("span", { class: "swatch", style: { background: curve.colour } }), curve.label,
      curve.odd ? h("span", { class: "bad" }, ` ${Object.entries(curve.odd).map(([kind, count]) => `${count} ${kind}`).join(", ")}`) : null,
    )), curves.length > LEGENDS ? h("span", { class: "dim" }, ` and ${curves.length - LEGENDS} more`) : null);
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
      if (typeof xs[at] !== "number" || ys[at] === null) continue;
      if (typeof ys[at] === "number") points.push([xs[at], ys[at]]);
      else {
        const kind = ys[at].includes("nan") ? "nan" : ys[at];
        this.marks.set(number, [...(this.marks.get(number) ?? []), [xs[at], kind]]);
      }
    }
    this.new.set(number, points);
    this.draw();
  }

  /** Draw the answer and what came since. */
  paint() {
    if (!this.chart) return;
    const places = new Map(this.head.curves.map((curve, at) => [curve.number, at + 1]));
    const more = [...this.new.values()].reduce((sum, points) => sum + points.length, 0);
    if (more > this.base[0].length * Math.max(this.base.length / 2, 2) + 2000) { this.change(); return; }
    const xs = [...new Set([...this.base[0], ...[...this.new.values()].flat().map(([x]) => x)])].sort((a, b) => a - b);
    const at = new Map(xs.map((x, place) => [x, place]));
    const data = [xs, ...this.base.slice(1).map((column) => {
      const wider = new Array(xs.length).fill(null);
      column.forEach((y, place) => { if (y !== null) wider[at.get(this.base[0][place])] = y; });
      return wider;
    })];
    for (const [number, points] of this.new) {
      if (!places.has(number)) continue;
      for (const [x, y] of points) data[places.get(number)][at.get(x)] = y;
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

  async save(what) {
    const name = this.metric.replace(/[^\w.-]+/g, "_").slice(0, 80) || "panel";
    if (what === "⌘") { this.panels.showCommand(toCommand({ ...this.panels.described(), metric: this.metric })); return; }
    if (!this.chart) return;
    if (what === "PNG") save(`${name}.png`, await toPng(this));
    else if (what === "SVG") save(`${name}.svg`, toSvg(this), "image/svg+xml");
    else {
      const { runs, x } = this.asked;
      save(`${name}.csv`, await ask("csv", { runs, x, metric: this.metric }, undefined, "text"), "text/csv");
    }
  }
}

/** The series of an answer: [xs, ys…] with null where a series has no point. */
function read(head, buffer, start) {
  const xs = Array.from(new Float64Array(buffer, start, head.points));
  const Kind = head.wide ? Float64Array : Float32Array;
  const size = head.points * Kind.BYTES_PER_ELEMENT;
  const from = start + head.points * 8;
  const series = [];
  for (let at = 0; at < head.series; at += 1) {
    const bytes = from + at * size;
    const column = bytes % Kind.BYTES_PER_ELEMENT ? new Kind(buffer.slice(bytes, bytes + size)) : new Kind(buffer, bytes, head.points);
    series.push(Array.from(column, nothing));
  }
  return [xs, ...series];
}

/**
 * All panels. `page` has store, settings (x, logX, logY, smooth, band, zoom, search), drawn() (rows), group (names or null),
 * colour(row), groupColour(label), described() for the command, onZoom(range), onHover(row).
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
    this.ask = later(() => this.update().catch(complain), 30);
  }

  get store() { return this.page.store; }

  get settings() { return this.page.settings; }

  get inSight() { return [...this.panels.values()].filter((panel) => panel.seen).length; }

  close() {
    this.controller?.abort();
    this.closed = true;
    document.removeEventListener("visibilitychange", this.turned);
    for (const panel of this.panels.values()) panel.close();
  }

  /** What every panel asks for. */
  asked() {
    const { settings } = this;
    return {
      runs: this.page.drawn().map((row) => row.number), x: settings.x, log: settings.logX, smooth: settings.smooth,
      range: settings.zoom, group: this.page.group, band: settings.band,
    };
  }

  /** The runs, or how they are shown, changed: ask again, and lay out the panels of their metrics. */
  async update() {
    const numbers = this.page.drawn().map((row) => row.number);
    const key = JSON.stringify(numbers);
    for (const panel of this.panels.values()) panel.change();
    if (key !== this.key) {
      this.key = key;
      const likely = this.page.likely();
      if (!this.metrics && likely) { this.metrics = [likely]; this.layout(); }  // the first curve need not wait for the others
      const found = await ask("metrics", { numbers });
      this.metrics = Object.keys(found).filter((name) => !["time-step", "timestamp"].includes(name));
    }
    this.layout();
    this.follow();
  }

  /** Runs have more rows: they may have more metrics. */
  async learn() {
    const found = Object.keys(await ask("metrics", { numbers: this.page.drawn().map((row) => row.number) })).filter((name) => !["time-step", "timestamp"].includes(name));
    if (found.join("\n") === (this.metrics ?? []).join("\n")) return;
    this.metrics = found;
    this.layout();
  }

  layout() {
    const search = this.settings.search.toLowerCase();
    let metrics = (this.metrics ?? []).filter((name) => name.toLowerCase().includes(search));
    const likely = this.page.likely();
    const sections = new Map();
    for (const metric of metrics) {
      const prefix = prefixOf(metric);
      if (!sections.has(prefix)) sections.set(prefix, []);
      sections.get(prefix).push(metric);
    }
    for (const list of sections.values()) list.sort((a, b) => (b === likely) - (a === likely));
    const ordered = [...sections].sort(([, a], [, b]) => b.includes(likely) - a.includes(likely));
    const kept = new Set();
    const nodes = ordered.slice(0, this.sections).map(([prefix, list], place) => this.section(prefix, list, place, kept));
    if (ordered.length > this.sections) nodes.push(h("button", { type: "button", class: "more", onclick: () => { this.sections += AT_ONCE; this.layout(); } }, `${ordered.length - this.sections} more groups of metrics`));
    if (!metrics.length) nodes.push(h("p", { class: "empty" }, this.page.drawn().length ? (search ? "No metric has this in its name." : "These runs have no metrics with numbers yet.") : "No run is chosen."));
    const focus = document.activeElement;
    fill(this.node, nodes);
    if (focus?.isConnected) focus.focus({ preventScroll: true });
    for (const [metric, panel] of this.panels) {
      if (kept.has(metric)) continue;
      this.observer.unobserve(panel.node);
      panel.close();
      this.panels.delete(metric);
    }
  }

  section(prefix, list, place, kept) {
    const most = this.open.get(prefix) ?? AT_ONCE;
    const grid = h("div", { class: "grid" }, list.slice(0, most).map((metric) => {
      kept.add(metric);
      if (!this.panels.has(metric)) {
        const panel = new Panel(this, metric);
        this.panels.set(metric, panel);
        this.observer.observe(panel.node);
      }
      return this.panels.get(metric).node;
    }));
    const more = list.length > most ? h("button", { type: "button", class: "more", onclick: () => { this.open.set(prefix, most + AT_ONCE); this.layout(); } }, `${list.length - most} more`) : null;
    const closed = this.folded ??= new Set();
    return h("details", { open: !closed.has(prefix), ontoggle: (event) => { if (event.target.open) closed.delete(prefix); else closed.add(prefix); } },
      h("summary", {}, prefix || "metrics", h("span", { class: "dim" }, ` ${list.length}`)), grid, more);
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
    if (this.closed || document.hidden) return;
    const controller = this.controller = new AbortController();
    const cursors = {};
    for (const panel of this.panels.values()) {
      if (panel.seen && panel.cursors?.size) cursors[panel.metric] = Object.fromEntries(panel.cursors);
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

  zoom(range) { this.page.onZoom(range); }

  /** Label and colour of a curve of an answer. */
  describe(curve) {
    const row = this.store.rows.get(curve.number ?? curve.numbers[0]);
    if (curve.numbers) {
      curve.label = row ? this.page.groupLabel(row) : curve.label;  // as the list has it, to the letter
      return { label: `${curve.label} (${curve.numbers.length})`, colour: this.page.groupColour(curve.label), width: 2 };
    }
    return row ? { label: this.page.label(row), colour: this.page.colour(row) } : { label: `run ${curve.number}`, colour: "#777777" };
  }

  near(panel, at) { this.page.onHover(at < 0 ? null : panel.head.curves[at]); }

  highlight(curve) { for (const panel of this.panels.values()) if (panel.seen) panel.highlight(curve); }

  described() { return this.page.described(); }

  showCommand(text) { this.page.showCommand(text); }

  /** Draw all again in other colours. */
  recolour() { for (const panel of this.panels.values()) if (panel.head && panel.chart) { panel.show(this.settings); panel.draw(); } }
}

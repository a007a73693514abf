// One panel: the curves of a metric, or of several, with its legend, its buttons, what is said about it.

import { ask, askNumbers, offline } from "./api.js";
import { Chart } from "./chart.js";
import { fill, h, later, save } from "./dom.js";
import { toPng, toSvg } from "./export.js";
import { Legend } from "./legend.js";

const SHARE = 60;  // what all panels in sight cost the server is asked for again after this many times as long
const STEP = 0.2;  // of what a panel shows: how far a key moves it
const CLIPPED = 0.01;  // of the values at each end, where outliers are clipped
const DRAGGED = "text/x-rla-panel";  // what a panel is while it is dragged to another place
const HEIGHTS = { small: 150, medium: 230, large: 400 };

/** Ends of an axis without the highest and the lowest values: [low, high], null where they are one. */
function withoutOutliers(series) {
  const values = Float64Array.from(series.flatMap((ys) => ys.filter((y) => y !== null && y !== undefined))).sort();
  const at = (share) => values[Math.round((values.length - 1) * share)];
  const [low, high] = [at(CLIPPED), at(1 - CLIPPED)];
  return low < high ? [low - (high - low) * 0.06, high + (high - low) * 0.06] : null;
}

/** A panel; `what`: {key, title, question (of the server), body, others (metrics beside that of the body)}. */
export class Panel {
  constructor(panels, what) {
    Object.assign(this, { others: [] }, what);
    this.panels = panels;
    this.seen = false;
    this.stale = true;
    this.chart = null;
    this.head = null;
    this.brushes = null;  // Map(axis → [low, high]) of the parallel panel
    this.new = new Map();  // run → [[x, y], …] since the last answer; y that is not finite as text
    const tell = () => this.box.setAttribute("aria-label", `${this.title}: ${this.chart?.words() ?? "nothing is drawn"}`);
    this.box = h("div", { class: "plot", role: "img", tabindex: "0", "aria-label": this.title, onkeydown: (event) => this.press(event), onfocus: tell });
    this.box.style.height = `${this.height}px`;  // nothing moves when the curves come
    this.legend = new Legend(panels, (at) => panels.highlight(at === null ? null : this.head.curves[at]), (at) => panels.keepMarked(this.head.curves[at]));
    this.said = h("p", { class: "said dim" });
    const { title, key } = this;
    this.node = h("section", { class: `panel${panels.settings.wide.includes(key) ? " wide" : ""}`, dataset: { metric: key }, "aria-label": title },
      this.heading(), this.box, this.said, this.legend.node,
    );
    this.node.panel = this;
    const dragged = (event) => event.dataTransfer.types.includes(DRAGGED);
    this.node.addEventListener("dragover", (event) => { if (dragged(event)) event.preventDefault(); });
    this.node.addEventListener("drop", (event) => { if (dragged(event)) { event.preventDefault(); panels.place(event.dataTransfer.getData(DRAGGED), key); } });
    Object.defineProperty(this.node, "chart", { get: () => this.chart });
    this.draw = later(() => this.paint(), 120);
    this.again = later(() => this.load(), 50);
    this.observer = new ResizeObserver(() => { if (this.box.clientWidth) this.chart?.resize(this.box.clientWidth, this.height); });
    this.observer.observe(this.box);
  }

  get height() { return HEIGHTS[this.panels.settings.size] ?? HEIGHTS.medium; }

  heading() {
    const { panels, key, title } = this;
    const curves = this.question === "curves" && !offline;
    const button = (text, name, onclick) => h("button", { type: "button", title: name, "aria-label": name, onclick }, text);
    const move = this.question === "curves";
    const bar = h("header", { draggable: move ? "true" : null },
      h("h2", { title }, title), h("span", { class: "buttons" },
        move && [button("‹", "Move to the front", () => panels.move(key, -1)), button("›", "Move to the back", () => panels.move(key, 1))],
        curves && button("+", "More metrics in this panel", () => panels.addTo(this)),
        ["PNG", "SVG", curves && !this.others.length && "CSV"].filter(Boolean).map((kind) => button(kind, `Save as ${kind}`, () => this.save(kind))),
        curves && button("⌘", "Command line", async () => panels.page.showCommand(await ask("command", { ...panels.asked(), ...panels.page.described(), metric: key }))),
        button("⤢", "Wide", () => panels.keep("wide", key, this.node.classList.toggle("wide"))),
        h("button", { type: "button", class: "unfold", title: "Move, save, add metrics", "aria-label": `Actions of ${title}`, "aria-expanded": "false", onclick: ({ target }) => target.setAttribute("aria-expanded", String(bar.classList.toggle("unfolded"))) }, "⋯")));
    bar.addEventListener("dragstart", (event) => { event.dataTransfer.setData(DRAGGED, key); });
    return bar;
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
      const answers = await Promise.all([asked.metric, ...this.others].map((metric) => askNumbers(this.question, { ...asked, metric }, controller.signal)));
      const { head, data } = answers.length === 1 ? answers[0] : (await import("./joined_answers.js")).joined(answers);
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
    const { logX, logY, zoom: range, clip } = this.panels.settings;
    const curves = this.curves();
    const cursor = this.chart?.pointed;
    this.chart?.close();
    this.chart = null;
    fill(this.box);
    this.box.style.height = `${this.height}px`;
    const lacking = head.lacking ? `${head.lacking} of ${head.lacking + head.curves.reduce((sum, curve) => sum + (curve.numbers?.length ?? 1), 0)} runs ha${head.lacking === 1 ? "s" : "ve"} no ${head.metric}` : "";
    const series = this.base.slice(1);
    const below = logY && !head.options && series.some((ys) => ys.some((y) => y !== null && y <= 0)) ? "values of 0 and below are left out: log y" : "";
    const ends = clip && !head.options ? withoutOutliers(logY ? series.map((ys) => ys.filter((y) => y > 0)) : series) : null;
    const clipped = ends && series.some((ys) => ys.some((y) => y !== null && (y < ends[0] || y > ends[1]))) ? "outliers are clipped" : "";
    this.said.textContent = head.curves.length ? [head.said, lacking, below, clipped].filter(Boolean).join("; ") : `none of these runs has numbers for ${[...new Set([head.metric, head.x])].filter(Boolean).join(" and ")}`;
    if (!head.curves.length) { this.legend.show([]); return; }
    this.chart = new Chart(this.box, {
      width: this.box.clientWidth, height: this.height, x: head.x, sync: head.options ? this.key : this.question, onZoom: (asked) => this.zoom(asked), onFocus: (at) => this.panels.near(this, at), onPoint: head.x === "time-step" ? this.panels.page.onPoint : null,
      brushes: this.brushes, onBrush: (x, ends) => this.brush(x, ends), ...(head.options ?? { logX, logY, range, yEnds: ends }),
    }, curves, this.base, head.kind === "bands");
    const alone = curves.length === 1 && !curves[0].odd && !head.curves[0].numbers;
    this.legend.show(head.options || alone ? [] : curves);
    if (this.panels.marked) this.highlight(this.panels.marked);
    if (cursor) this.chart.point(cursor);
  }

  /** A part of an axis of a hyper-parameter was chosen: runs that are within all such parts are selected. */
  brush(x, ends) {
    this.brushes = new Map([...(this.brushes ?? []), [x, ends]]);
    const passes = (ys) => [...this.brushes].every(([axis, [low, high]]) => ys[axis] !== null && ys[axis] >= low && ys[axis] <= high);
    const series = this.base.slice(1);
    this.panels.page.choose(this.head.curves.filter((_, at) => passes(series[at])).map((curve) => curve.number));
  }

  /** A part of x was chosen: all panels show it; of points it selects the runs. */
  zoom(range) {
    const { page } = this.panels;
    if (this.question === "curves") { page.set({ zoom: range }); return; }
    if (this.question === "parallel") { this.brushes = null; page.choose([]); return; }
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
    if (this.head.kind === "bands" || this.others.length) { if (skip < xs.length) this.soon(); return; }
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

  /** Where the curve of a run or group is, of several metrics the same one; -1 where it is not. */
  find(curve) {
    const same = (one) => (curve.label !== undefined ? one.label === curve.label : one.number === curve.number || one.numbers?.includes(curve.number));
    const at = curve && this.head.curves.findIndex((one) => same(one) && one.metric === curve.metric);
    return at === null ? -1 : at < 0 ? this.head.curves.findIndex(same) : at;
  }

  /** Let the curve of a run or group stand out; null: all alike. */
  highlight(curve, legendOnly = false) {
    if (!this.chart) return;
    const at = this.find(curve);
    if (!legendOnly) this.chart.focus(at);
    this.legend.mark(at, this.find(this.panels.kept));
  }

  async save(kind) {
    if (!this.chart) return;
    const { runs, x, metric } = this.asked;
    const content = { PNG: () => toPng(this), SVG: () => toSvg(this), CSV: () => ask("csv", { runs, x, metric }, undefined, "text") }[kind];
    save(`${this.title.replace(/[^\w.-]+/g, "_").slice(0, 80) || "panel"}.${kind.toLowerCase()}`, await content(), kind === "SVG" ? "image/svg+xml" : "text/csv");
  }
}

// The panels: one a metric, in sections by prefix, drawn when they come into sight, followed while runs go on. Of
// hyper-parameters one that has all of them beside each other, and one for each against the metric.

import { ask, offline, stream } from "./api.js";
import { METRIC_DASHES } from "./colours.js";
import { fill, h, later, numberText, whenFree } from "./dom.js";
import { complain } from "./frame.js";
import { Panel } from "./panel.js";
import { table } from "./parts.js";

const AT_ONCE = 30;  // panels of a section, and sections, before "more" is asked for
const TRIES_MS = 3000;  // until a stream that broke is opened again, or a page without a stream asks
const STREAMS = 4;  // open at once in one browser; it has six connections to a server, for all pages together
const WIDTHS = { small: 240, medium: 340, large: 560 };  // pixels of a panel, at least
const GAP = 10;  // pixels between panels; the style sheet has the same
const MARKED = 50;  // curves of a panel up to which the one that is pointed at stands out in the other panels, too
const CLOCKS = ["time-step", "timestamp"];

/** Which section a metric stands in. */
const prefixOf = (metric) => (metric.includes("/") ? metric.slice(0, metric.indexOf("/")) : "");

/** Whether a name has a text in it, or fits it as a regular expression, small and capital letters alike. */
function fitting(text) {
  let pattern = null;
  try { pattern = new RegExp(text, "i"); } catch { /* it is typed on, or is no pattern: the text itself counts */ }
  return (name) => name.toLowerCase().includes(text.toLowerCase()) || (pattern?.test(name) ?? false);
}

/** Metrics of one panel, as the address has them, and back. */
const together = (metrics) => metrics.map(encodeURIComponent).join("+");
const apart = (text) => text.split("+").map((part) => { try { return decodeURIComponent(part); } catch { return part; } });

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
    this.begun = null;  // what `begin` asked for
    this.marked = this.kept = null;  // the curve that stands out now, and the one that a click lets stand out until another one
    this.node = h("div", { id: "panels" });
    this.observer = new IntersectionObserver((entries) => {
      for (const entry of entries) entry.target.panel.see(entry.isIntersecting);
      this.follow();
    }, { rootMargin: "200px" });
    this.turned = () => { if (document.hidden) this.controller?.abort(); else this.watch(); };
    document.addEventListener("visibilitychange", this.turned);
    this.follow = later(() => { if (!this.loading) this.watch(); }, 400);
    this.loading = 0;
    this.resized = new ResizeObserver(() => this.fit());
    this.resized.observe(this.node);
    this.ask = later(() => this.update(), 30);
  }

  get store() { return this.page.store; }

  get settings() { return this.page.settings; }

  get inSight() { return [...this.panels.values()].filter((panel) => panel.seen).length; }

  get numbers() { return this.page.drawn().map((row) => row.number); }

  close() {
    this.controller?.abort();
    this.closed = true;
    this.resized.disconnect();
    document.removeEventListener("visibilitychange", this.turned);
    for (const panel of this.panels.values()) panel.close();
  }

  /** What every panel asks for. */
  asked() {
    const { x, logX: log, smooth, zoom: range, band, ranks } = this.settings;
    return { runs: this.numbers, x, log, smooth, range, group: this.page.group, band, ranks };
  }

  /** All panels show another thing now. */
  change() { for (const panel of this.panels.values()) panel.change(); }

  /** Ask for the curves of the likely metric, before the list is built: the server works meanwhile. */
  begin() {
    const likely = this.page.likely();
    if (!likely) return;
    this.metrics = [likely];
    this.layout();
    this.panels.get(likely)?.see(true);
    this.begun = JSON.stringify(this.asked());
  }

  /** The runs, or how they are shown, changed: ask again, and lay out the panels of their metrics. */
  async update() {
    if (JSON.stringify(this.asked()) !== this.begun) this.change();
    this.begun = null;
    const { tab, target, ranks } = this.settings;
    const key = JSON.stringify([this.numbers, tab, target, ranks]);
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
    const counts = await ask("metrics", { numbers: this.numbers, ranks: this.settings.ranks });
    for (const panel of this.panels.values()) if (this.counts && counts[panel.key] !== this.counts[panel.key]) panel.change();  // other runs have it
    this.counts = counts;
    const found = Object.keys(counts).filter((name) => !CLOCKS.includes(name));
    this.page.curveTools.knowRanks(found);
    if (found.join("\n") === (this.metrics ?? []).join("\n")) return;
    this.metrics = found;
    whenFree(this, () => this.layout());
  }

  layout() {
    const kept = new Set();
    const focus = document.activeElement;  // before the panels are taken out of the page
    const nodes = this.settings.tab === "parameters" ? this.ofParameters(kept) : this.ofCurves(kept);
    fill(this.node, nodes);
    this.fit();
    if (focus?.isConnected) focus.focus({ preventScroll: true });
    for (const [key, panel] of this.panels) {
      if (kept.has(key)) continue;
      this.observer.unobserve(panel.node);
      panel.close();
      this.panels.delete(key);
    }
  }

  ofCurves(kept) {
    const search = this.settings.metrics;
    const metrics = (this.metrics ?? []).filter(fitting(search));
    const likely = this.page.likely();
    if (!metrics.length) return h("p", { class: "empty" }, this.page.drawn().length ? (search ? "No metric has this in its name." : "These runs have no metrics with numbers yet.") : "No run is chosen.");
    const first = (list) => list.includes(likely);
    const sections = [...Map.groupBy(metrics, prefixOf)].sort(([, a], [, b]) => first(b) - first(a));
    const panels = (list) => this.ordered(list).map((metric) => {
      const others = this.beside(metric).filter((other) => this.metrics.includes(other));
      return { key: metric, title: [metric, ...others].join(", "), question: "curves", body: { metric }, others };
    });
    return [
      sections.slice(0, this.sections).map(([prefix, list]) => this.section(prefix, panels(list), kept)),
      this.more(sections.length - this.sections, " groups of metrics", () => { this.sections += AT_ONCE; }),
    ];
  }

  /** Metrics of a section as the user has put them; of the others the likely one first. */
  ordered(list) {
    const { order } = this.settings;
    const rank = (name) => (order.includes(name) ? order.indexOf(name) : order.length + (name !== this.page.likely()));
    return [...list].sort((a, b) => rank(a) - rank(b));
  }

  /** Metrics that are drawn in the panel of another one. */
  beside(metric) { return this.settings.with.map(apart).find(([first]) => first === metric)?.slice(1) ?? []; }

  /** Let the user choose more metrics for a panel. */
  async addTo({ key }) {
    (await import("./choose_dialog.js")).chooseNames(`Beside ${key}`, this.metrics.filter((name) => name !== key), this.beside(key), (chosen) => {
      const rest = this.settings.with.filter((text) => apart(text)[0] !== key);
      this.page.set({ with: chosen.length ? [...rest, together([key, ...chosen])] : rest });
    });
  }

  /** Move a panel by so many places within its section. */
  move(metric, by) {
    const list = this.ordered(this.metrics.filter((name) => prefixOf(name) === prefixOf(metric)));
    const at = list.indexOf(metric);
    if (list[at + by] !== undefined) this.place(metric, list[at + by]);
  }

  /** Put a panel where another one of its section is. */
  place(metric, target) {
    const list = this.ordered(this.metrics.filter((name) => prefixOf(name) === prefixOf(metric)));
    const [from, to] = [list.indexOf(metric), list.indexOf(target)];
    if (from < 0 || to < 0) return;
    list.splice(to, 0, ...list.splice(from, 1));
    this.page.set({ order: [...this.settings.order.filter((name) => !list.includes(name)), ...list] });
  }

  /** As many panels beside each other as there is room for, and the rows of a section about equally long. */
  fit() {
    const width = this.node.clientWidth;
    const least = WIDTHS[this.settings.size] ?? WIDTHS.medium;
    const most = Math.max(Math.floor((width + GAP) / (least + GAP)), 1);
    for (const grid of this.node.querySelectorAll(".grid")) {
      const count = Math.max(grid.childElementCount, 1);
      grid.style.setProperty("--beside", Math.ceil(count / Math.ceil(count / most)));
    }
  }

  ofParameters(kept) {
    const { metric, names, runs, problem } = this.weights ?? {};
    if (!names?.length) return h("p", { class: "empty" }, problem ?? "");
    const body = { metric };
    const panels = names.map(({ name, rho, importance }) => ({
      key: `scatter ${name}`, title: `${name}: importance ${importance.toFixed(2)}${rho === null ? "" : `, ρ = ${rho.toFixed(2)}`}`, question: "scatter", body: { ...body, parameter: name } }));
    const weights = h("details", {}, h("summary", {}, `Importance for ${metric} in ${runs} runs`), table(["hyper-parameter", "importance", "95 % interval", "Spearman's ρ", "runs"],
      names.map(({ name, rho, importance, interval, chance, runs: own }) => [name, h("span", {}, h("meter", { min: "0", max: "1", value: String(importance), "aria-label": `Importance of ${name}` }), ` ${importance.toFixed(2)}`),
        h("span", { title: `Shuffled values reach ${chance.toFixed(2)} in one of twenty tries` }, interval.map((end) => end.toFixed(2)).join(" – "), importance <= chance && h("span", { class: "warn" }, " may be chance")), numberText(rho === null ? null : Number(rho.toFixed(3))), String(own)])));
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
      await this.slot((once) => stream("live", { version: this.store.version, x: this.settings.x, ranks: this.settings.ranks, cursors, once }, (type, data) => {
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

  /** Label, colour and dash of a curve of an answer; where a panel has several metrics, the dash is that of the metric. */
  describe(curve) {
    const found = this.line(curve);
    return curve.metric === undefined ? found : { ...found, metric: curve.metric, label: `${curve.metric} ${found.label}`, dash: METRIC_DASHES[curve.place % METRIC_DASHES.length] };
  }

  line(curve) {
    const { page } = this;
    const row = this.store.rows.get(curve.number ?? curve.numbers[0]);
    if (curve.numbers) {
      curve.label = row ? page.groupLabel(row) : curve.label;  // as the list has it, to the letter
      return { label: `${curve.label} (${curve.numbers.length})`, ...page.groupColours.groupLine(curve.label), width: 2 };
    }
    return row ? { label: page.label(row), ...page.colours.line(row.path) } : { label: `run ${curve.number}`, colour: "#777777" };
  }

  /** The mouse is near a curve of a panel: the list, the legends and, of few curves, the other panels mark it. */
  near(panel, at) {
    const meant = at < 0 ? null : panel.head.curves[at];
    this.marked = meant ?? this.kept;
    this.page.onHover(this.marked);
    for (const one of this.panels.values()) if (one.seen) one.highlight(this.marked, (meant || !this.kept) && (one === panel || (one.head?.curves.length ?? 0) > MARKED));
  }

  /** A click on a name of a curve: it stays marked, or no more. */
  keepMarked(curve) {
    const same = this.kept && ["label", "number", "metric"].every((name) => this.kept[name] === curve[name]);
    this.kept = same ? null : curve;
    this.highlight(null);
  }

  /** Whether folded names of curves are open: as the user has it, else where no list of runs has their colours. */
  get namesOpen() { return this.settings.names ? this.settings.names === "open" : !this.page.listed; }

  showNames(open) {
    this.settings.names = open ? "open" : "folded";
    this.page.remember();
    this.fitNames();
  }

  fitNames() { for (const panel of this.panels.values()) panel.legend.fit(); }

  /** Let a curve stand out in all panels; null: the one that stays marked, or all alike. */
  highlight(curve) {
    this.marked = curve ?? this.kept;
    this.page.onHover(this.marked);
    for (const panel of this.panels.values()) if (panel.seen) panel.highlight(this.marked);
  }

  /** Draw all again in other colours. */
  recolour() { for (const panel of this.panels.values()) if (panel.head && panel.chart) { panel.show(); panel.draw(); } }

  /** The panels have another size. */
  resize() {
    this.fit();
    this.recolour();
  }
}

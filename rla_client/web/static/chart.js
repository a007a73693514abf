// One picture: curves, bands or points on a canvas by uPlot, with marks for NaN and infinite values.

import uPlot from "./vendor/uPlot.esm.js";
import { fill, h, numberText, shortText, timeText } from "./dom.js";
import { swatch } from "./legend.js";

const BAND_ALPHA = "33";  // hexadecimal, behind a colour
const MANY = 8000;  // points, from which on lines are thin: drawing them takes a quarter of the time
const NEAR = 24;  // pixels from the mouse to a curve that it means
const FAINT = 0.18;  // curves beside the one that is meant
const BEHIND = 0.35;  // values as they were recorded, behind a smoothed curve
const NAMED = 14;  // curves that the tip names
const DAY_S = 86_400;
const MOST_POWERS = 8;
const ROUNDING = 1e-9;  // of a value: what its sums may be off by
const [TEXT_WIDTH, TEXT_HEIGHT] = [44, 14];  // pixels that the text of a tick takes, about
export const SYMBOLS = { nan: "×", inf: "▲", "-inf": "▼" };

/** A colour or another value of the style sheet. */
export const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const given = (value) => value !== null && value !== undefined;

/** Whether a series has points that no line reaches: one alone. */
const lonely = (column) => column.some(given) && column.findIndex(given) === column.findLastIndex(given);

/**
 * Ticks of a logarithmic axis (uPlot's own never end for some ranges): powers of ten, of few also twice and five times them where
 * there is room. `most`: how many texts have room beside each other.
 */
function powers(low, high, most) {
  const [first, last] = [Math.floor(Math.log10(low)), Math.min(Math.ceil(Math.log10(high)), 308)];
  const by = Math.ceil((last - first + 1) / Math.max(Math.min(MOST_POWERS, most), 2));
  const fine = last - first <= 3 && Math.log10(2) * most >= Math.log10(high / low);  // the least distance is that from 1 to 2
  const ticks = [];
  for (let at = first; at <= last; at += by) {
    for (const times of fine ? [1, 2, 5] : [1]) ticks.push(Number(`${times}e${at}`));
  }
  const found = ticks.filter((tick) => tick >= low && tick <= high);
  return found.length > 1 ? found : [0, 1, 2, 3].map((part) => low + (high - low) * part / 3);
}

/**
 * A chart. `options`: width, height, x (name), logX, logY, sync (key), range ([low, high] or null), onZoom([low, high] or null),
 * onFocus(curve index or -1), onPoint(x) of a click where something is done about it; where wanted yText(value), yRange(low, high), yEnds ([low, high]), incrs (of y),
 * xTicks ([[x, text]…]), points (no lines), rulers ([[[y, text]…] for each x], instead of the axis of y; a part of one
 * that is dragged over is told by onBrush(x, [low, high]), and `brushes`, Map(x → [low, high]), are shown).
 * `curves`: [{label, colour, dash, marks}], `data`: [xs, ys…], one ys a curve, or three (centre, low, high) with `bands`;
 * without bands there may be as many again, which stand faintly behind: the values as they were recorded.
 */
export class Chart {
  constructor(box, options, curves, data, bands = false) {
    this.options = { onZoom: () => {}, onFocus: () => {}, ...options };
    this.curves = curves;
    this.bands = bands;
    this.tip = h("div", { class: "tip", hidden: true });
    this.focused = -1;  // the curve that stands out, and the one that the mouse is near
    this.nearest = -1;
    this.ticks = { x: [], y: [] };  // [[value, text]…] as last drawn
    this.points = data[0].length;
    this.behind = !bands && data.length > 1 + curves.length;
    this.plot = new uPlot(this.settings(), this.fit(data), box);
    box.append(this.tip);
    this.plot.over.addEventListener("dblclick", (event) => { event.stopImmediatePropagation(); this.options.onZoom(null); }, true);
    let from = null;  // where the mouse went down: a drag zooms, and is no click
    this.plot.over.addEventListener("mousedown", (event) => { from = event.clientX; });
    this.plot.over.addEventListener("click", (event) => {
      const { idx } = this.plot.cursor;
      if (this.options.onPoint && given(idx) && from !== null && Math.abs(event.clientX - from) < 3) this.options.onPoint(this.plot.data[0][idx]);
    });
    this.plot.over.addEventListener("mouseleave", () => { this.tip.hidden = true; this.nearest = -1; this.focus(-1); this.options.onFocus(-1); });
  }

  /** uPlot's aligned data: [xs, ys…]. */
  get data() { return this.plot.data; }

  get labels() { return this.curves.map((curve) => curve.label); }

  get step() { return this.bands ? 3 : 1; }

  /** Which curve a series belongs to. */
  owner(place) { return this.bands ? Math.floor((place - 1) / 3) : (place - 1) % this.curves.length; }

  alpha(place, at = -1) {
    const own = this.behind && place > this.curves.length ? BEHIND : 1;
    return at < 0 || this.owner(place) === at ? own : own * FAINT;
  }

  /** Text of an x: time of the day for wall time, a number otherwise. */
  xText(value) {
    const { x, xTicks } = this.options;
    if (xTicks) return xTicks.find(([at]) => at === value)?.[1] ?? "";
    return x === "timestamp" ? timeText(value) : numberText(value);
  }

  axis(name, size, text, more) {
    const grid = { stroke: style("--grid"), width: 1 };
    return {
      stroke: style("--dim"), grid, ticks: { ...grid, size: 4 }, font: "11px system-ui, sans-serif", size, ...more,
      values: (_, splits) => {
        this.ticks[name] = splits.filter(given).map((value) => [value, text(value)]);
        return splits.map((value) => (given(value) ? text(value) : ""));
      },
    };
  }

  axes() {
    const { x, xTicks, logX, logY, yText = shortText, incrs, rulers } = this.options;
    const time = (value) => timeText(value).slice(...(this.plot.scales.x.max - this.plot.scales.x.min > DAY_S ? [5, 16] : [11]));
    const log = (side, room) => ({ splits: (u, _axis, low, high) => powers(low, high, Math.floor(u.bbox[side] / devicePixelRatio / room)), filter: (_, splits) => splits });
    const split = xTicks ? { splits: () => xTicks.map(([at]) => at) } : logX ? log("width", TEXT_WIDTH) : { space: x === "timestamp" ? 90 : 60 };
    return [
      this.axis("x", 28, xTicks ? (value) => this.xText(value) : x === "timestamp" ? time : shortText, split),
      this.axis("y", yText === shortText ? 54 : 82, yText, { incrs, show: !rulers, ...(logY ? log("height", TEXT_HEIGHT) : {}) }),
    ];
  }

  series() {
    const many = this.curves.length * this.points > MANY && !this.options.points;
    const series = [{}];
    const bands = [];
    for (const { label, colour, dash, width = 1.5 } of this.curves) {
      series.push({
        label, stroke: colour, dash, width: many ? 1 : width, spanGaps: true,
        points: { show: (u, at) => this.options.points || lonely(u.data[at]), size: this.options.points ? 7 : 5, fill: colour },
      });
      if (this.bands) {
        const at = series.length;
        const edge = { stroke: "transparent", width: 0, spanGaps: true, points: { show: false } };
        series.push({ ...edge, label: `${label} low` }, { ...edge, label: `${label} high` });
        bands.push({ series: [at + 1, at], fill: colour + BAND_ALPHA });
      }
    }
    if (this.behind) {
      for (const { label, colour } of this.curves) series.push({ label, stroke: colour, width: 1, alpha: BEHIND, spanGaps: true, points: { show: false } });
    }
    return { series, bands };
  }

  settings() {
    const { options } = this;
    const { yRange = padded, yEnds, range, logX, logY } = options;
    return {
      width: options.width, height: options.height, pxAlign: false, legend: { show: false }, focus: { alpha: FAINT }, ...this.series(),
      cursor: {
        sync: { key: options.sync, setSeries: false }, drag: { x: !options.rulers, y: Boolean(options.rulers), setScale: false },
        focus: { prox: NEAR }, points: { show: false }, bind: { dblclick: () => null },
      },
      scales: {
        x: { time: false, distr: logX ? 3 : 1, range: range && !(logX && range[0] <= 0) ? () => range : options.xTicks && !logX ? (_, low, high) => (options.rulers ? [low - (high - low) * 0.12, high + (high - low) * 0.12] : padded(low, high)) : undefined },
        y: { distr: logY ? 3 : 1, range: yEnds ? () => yEnds : logY ? undefined : (_, low, high) => yRange(low, high) },
      },
      axes: this.axes(),
      hooks: {
        draw: [() => this.drawMarks()],
        setSelect: [(u) => {
          if (options.rulers && u.select.height >= 4) {
            const x = Math.round(u.posToVal(u.cursor.left, "x"));
            options.onBrush(x, [u.posToVal(u.select.top + u.select.height, "y"), u.posToVal(u.select.top, "y")]);
          }
          if (options.rulers || u.select.width < 4) return;
          const low = u.posToVal(u.select.left, "x");
          const high = u.posToVal(u.select.left + u.select.width, "x");
          u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
          options.onZoom([low, high]);
        }],
        setSeries: [(u, at) => this.near(at === null || at < 1 ? -1 : this.owner(at))],
        setCursor: [() => this.showTip()],
      },
    };
  }

  /** Data without what a logarithmic axis cannot show. */
  fit(data) {
    const { logX, logY } = this.options;
    const kept = logX && data[0].some((x) => x <= 0) ? data.map((column) => column.filter((_, at) => data[0][at] > 0)) : data;
    return logY ? [kept[0], ...kept.slice(1).map((column) => column.map((y) => (y > 0 ? y : null)))] : kept;
  }

  /** Show other data of the same curves. */
  update(data, curves = this.curves) {
    this.curves = curves;
    this.plot.setData(this.fit(data));
  }

  resize(width, height) { if (width !== this.plot.width || height !== this.plot.height) this.plot.setSize({ width, height }); }

  near(at) {
    if (at === this.nearest) return;
    this.nearest = this.focused = at;
    this.options.onFocus(at);
  }

  /** Where the mouse is in the plot, {left, top}; null where it is not. */
  get pointed() { return this.plot.over.matches(":hover") ? { left: this.plot.cursor.left, top: this.plot.cursor.top } : null; }

  /** The mouse is there already. */
  point(place) { requestAnimationFrame(() => { if (this.tip.isConnected) this.plot.setCursor(place); }); }

  /** Let one curve stand out; -1: all alike. */
  focus(at) {
    if (this.focused === at && at >= 0) return;
    this.focused = at;
    const { plot } = this;
    plot.batch(() => {
      plot.series.forEach((series, place) => {
        if (place) series.alpha = this.alpha(place, at);
      });
      plot.redraw(false, false);
    });
  }

  /** Where the cursor is a curve has a point: its place in the data, or the nearest one's. */
  place(at, idx) {
    const column = this.plot.data[1 + at * this.step];
    for (let away = 0; away < column.length; away += 1) {
      for (const place of [idx - away, idx + away]) if (given(column[place])) return place;
    }
    return -1;
  }

  /** What the curves have at the cursor, the highest first: [{at, value, text}]. */
  under(idx) {
    const { plot, curves, options } = this;
    const x = plot.posToVal(plot.cursor.left, "x");
    const away = Math.abs(plot.scales.x.max - plot.scales.x.min) / 50;
    return curves.flatMap((_, at) => {
      const place = this.place(at, idx);
      if (place < 0 || Math.abs(plot.data[0][place] - x) > Math.max(away, Math.abs(plot.data[0][idx] - x)) && !options.logX) return [];  // it has ended before, or has not begun
      const values = Array.from({ length: this.step }, (_one, more) => plot.data[1 + at * this.step + more][place]);
      const [value, ...edges] = values.map(options.yText ?? numberText);
      return [{ at, value: values[0], text: `${value}${edges.length ? `  [${edges.join(", ")}]` : ""}` }];
    }).sort((a, b) => b.value - a.value);
  }

  showTip() {
    const { plot, focused, options, tip } = this;
    const { idx, left, top } = plot.cursor;
    const seen = given(idx) && left >= 0 && plot.over.matches(":hover");
    const simple = options.rulers || options.points;  // these have no common x
    const found = !seen ? [] : simple ? (focused < 0 ? [] : [{ at: focused, text: "" }]) : this.under(idx);
    tip.hidden = !found.length;
    if (!found.length) return;
    const meant = found.findIndex(({ at }) => at === focused);
    const first = Math.min(Math.max(meant - NAMED + 3, 0), Math.max(found.length - NAMED, 0));
    const shown = found.slice(first, first + NAMED);
    const place = simple ? this.place(focused, idx) : idx;
    const more = [first && `${first} above`, found.length - first - shown.length && `${found.length - first - shown.length} below`].filter(Boolean).join(", ");
    fill(tip, h("b", {}, this.xText(plot.data[0][place])), simple && !options.rulers && `: ${numberText(plot.data[1 + focused][place])}`, shown.map(({ at, text }) => h("div", { class: at === focused ? "on" : "" },
      swatch(this.curves[at]), h("span", { class: "value" }, text), ` ${this.curves[at].label}`)),
    more && h("div", { class: "dim" }, more));
    const box = plot.over.getBoundingClientRect();
    const [x, y] = [box.left + left, box.top + top];
    tip.style.left = `${x + 16 + tip.offsetWidth > innerWidth ? Math.max(x - 16 - tip.offsetWidth, 2) : x + 16}px`;
    tip.style.top = `${Math.max(Math.min(y - 10, innerHeight - tip.offsetHeight - 4), 2)}px`;
  }

  drawMarks() {
    const { plot } = this;
    const { ctx, bbox } = plot;
    const text = (what, x, y) => {
      if (x >= bbox.left - 1 && x <= bbox.left + bbox.width + 1) ctx.fillText(what, x, y);
    };
    ctx.save();
    ctx.font = `${12 * devicePixelRatio}px sans-serif`;
    ctx.textAlign = "center";
    for (const curve of this.curves) {
      ctx.fillStyle = curve.colour;
      for (const [x, kind] of curve.marks ?? []) {
        text(SYMBOLS[kind], plot.valToPos(x, "x", true), kind === "inf" ? bbox.top + 12 * devicePixelRatio : bbox.top + bbox.height - 3 * devicePixelRatio);
      }
    }
    ctx.fillStyle = style("--text");
    ctx.font = `${11 * devicePixelRatio}px sans-serif`;
    ctx.textAlign = "right";
    ctx.textBaseline = "middle";
    ctx.strokeStyle = style("--back");
    ctx.lineWidth = 4 * devicePixelRatio;
    (this.options.rulers ?? []).forEach((ruler, x) => ruler.forEach(([y, what]) => {
      const at = [plot.valToPos(x, "x", true) - 6 * devicePixelRatio, plot.valToPos(y, "y", true)];
      ctx.strokeText(what, ...at);
      ctx.fillText(what, ...at);
    }));
    ctx.fillStyle = `${style("--accent")}44`;
    for (const [x, [low, high]] of this.options.brushes ?? []) {
      const [top, bottom] = [plot.valToPos(high, "y", true), plot.valToPos(low, "y", true)];
      ctx.fillRect(plot.valToPos(x, "x", true) - 6 * devicePixelRatio, top, 12 * devicePixelRatio, bottom - top);
    }
    ctx.restore();
  }

  /** What it shows, in words. */
  words() {
    const last = (at) => this.plot.data[1 + at * this.step].findLast(given);
    const told = this.curves.slice(0, 10).map((curve, at) => `${curve.label}: ${numberText(last(at)) || "nothing"} at the end`);
    return [`${this.curves.length} curves over ${this.options.x}`, ...told, ...(this.curves.length > 10 ? ["and more"] : [])].join("; ");
  }

  close() { this.plot.destroy(); this.tip.remove(); }
}

function padded(low, high) {
  if (!given(low) || !given(high)) return [0, 1];
  const most = Math.max(Math.abs(low), Math.abs(high));
  const room = high - low > most * ROUNDING ? (high - low) * 0.06 : most * 0.1 || 1;  // else a mean of equal values would seem to jump
  return [low - room, high + room];
}

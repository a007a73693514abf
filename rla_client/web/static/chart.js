// One panel's picture: curves and bands on a canvas by uPlot, with marks for NaN and infinite values.

import uPlot from "./vendor/uPlot.esm.js";
import { h, numberText, timeText } from "./dom.js";

const BAND_ALPHA = "33";  // hexadecimal, behind a colour
const MANY = 8000;  // points, from which on lines are thin: drawing them takes a quarter of the time
const NEAR = 24;  // pixels from the mouse to a curve that it means
const SYMBOLS = { nan: "×", inf: "▲", "-inf": "▼" };

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Text of an x: time of the day for wall time, a number otherwise. */
function xText(x, value) {
  if (x === "timestamp") return timeText(value);
  return numberText(value);
}

function axisText(u, splits) {
  return splits.map((value) => {
    if (value === null) return "";
    const size = Math.abs(value);
    if (size >= 1e9) return `${numberText(value / 1e9)}G`;
    if (size >= 1e6) return `${numberText(value / 1e6)}M`;
    if (size >= 1e4) return `${numberText(value / 1e3)}k`;
    return numberText(Number(value.toPrecision(10)));
  });
}

/**
 * A chart. `options`: width, height, x (name), logX, logY, sync (key), range ([low, high] or null),
 * onZoom([low, high] or null), onFocus(curve index or -1).
 * `curves`: [{label, colour, marks}], `data`: [xs, ys…], one ys a curve, or three (centre, low, high) with `bands`.
 */
export class Chart {
  constructor(box, options, curves, data, bands) {
    this.options = options;
    this.curves = curves;
    this.bands = bands;
    this.tip = h("div", { class: "tip", hidden: true });
    this.box = box;
    this.focused = -1;
    this.points = data[0].length;
    this.plot = new uPlot(this.settings(), this.fit(data), box);
    box.append(this.tip);
    this.plot.over.addEventListener("dblclick", (event) => { event.stopImmediatePropagation(); options.onZoom(null); }, true);
    this.plot.over.addEventListener("mouseleave", () => { this.tip.hidden = true; this.focus(-1); options.onFocus(-1); });
  }

  /** uPlot's aligned data: [xs, ys…]. */
  get data() { return this.plot.data; }

  get labels() { return this.curves.map((curve) => curve.label); }

  get step() { return this.bands ? 3 : 1; }

  settings() {
    const { options } = this;
    const axis = (extra) => ({
      stroke: style("--dim"), grid: { stroke: style("--grid"), width: 1 }, ticks: { stroke: style("--grid"), width: 1, size: 4 },
      font: "11px system-ui, sans-serif", ...extra,
    });
    const many = this.curves.length * this.points > MANY;
    const series = [{}];
    const bands = [];
    for (const curve of this.curves) {
      series.push({ label: curve.label, stroke: curve.colour, width: many ? 1 : curve.width ?? 1.5, spanGaps: true, points: { show: (u, at) => lonely(u.data[at]), size: 5, fill: curve.colour } });
      if (this.bands) {
        const at = series.length;
        const edge = { stroke: "transparent", width: 0, spanGaps: true, points: { show: false } };
        series.push({ ...edge, label: `${curve.label} low` }, { ...edge, label: `${curve.label} high` });
        bands.push({ series: [at + 1, at], fill: curve.colour + BAND_ALPHA });
      }
    }
    return {
      width: options.width, height: options.height, series, bands, pxAlign: false,
      legend: { show: false },
      focus: { alpha: 0.18 },
      cursor: {
        sync: { key: options.sync, setSeries: false }, drag: { x: true, y: false, setScale: false },
        focus: { prox: NEAR }, points: { show: false }, bind: { dblclick: () => null },
      },
      scales: {
        x: { time: options.x === "timestamp", distr: options.logX ? 3 : 1, range: options.range ? () => options.range : undefined },
        y: { distr: options.logY ? 3 : 1, range: options.logY ? undefined : (u, low, high) => padded(low, high) },
      },
      axes: [
        axis({ size: 28, values: options.x === "timestamp" ? undefined : axisText, space: 60 }),
        axis({ size: 54, values: axisText }),
      ],
      hooks: {
        draw: [() => this.drawMarks()],
        setSelect: [(u) => {
          if (u.select.width < 4) return;
          const low = u.posToVal(u.select.left, "x");
          const high = u.posToVal(u.select.left + u.select.width, "x");
          u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
          options.onZoom([low, high]);
        }],
        setSeries: [(u, at) => this.near(at === null || at < 1 ? -1 : Math.floor((at - 1) / this.step))],
        setCursor: [() => this.showTip()],
      },
    };
  }

  /** Data without what a logarithmic axis cannot show. */
  fit(data) {
    const { logX, logY } = this.options;
    let found = data;
    if (logX) {
      const keep = [];
      found[0].forEach((x, at) => { if (x > 0) keep.push(at); });
      if (keep.length < found[0].length) found = found.map((column) => keep.map((at) => column[at]));
    }
    if (logY) found = [found[0], ...found.slice(1).map((column) => column.map((y) => (y > 0 ? y : null)))];
    return found;
  }

  /** Show other data of the same curves. */
  update(data, curves = this.curves) {
    this.curves = curves;
    this.plot.setData(this.fit(data));
  }

  resize(width, height) { if (width !== this.plot.width || height !== this.plot.height) this.plot.setSize({ width, height }); }

  near(at) {
    if (at === this.focused) return;
    this.focused = at;
    this.options.onFocus(at);
  }

  /** Let one curve stand out; -1: all alike. */
  focus(at) {
    if (this.focused === at && at >= 0) return;
    this.focused = at;
    const { plot } = this;
    plot.batch(() => {
      plot.series.forEach((series, place) => {
        if (place) series.alpha = at < 0 || Math.floor((place - 1) / this.step) === at ? 1 : 0.18;
      });
      plot.redraw(false, false);
    });
  }

  showTip() {
    const { plot, focused } = this;
    const { idx, left } = plot.cursor;
    if (idx === null || idx === undefined || focused < 0 || !plot.over.matches(":hover")) { this.tip.hidden = true; return; }
    const column = plot.data[1 + focused * this.step];
    let at = idx;
    for (let away = 0; away < column.length && (column[at] === null || column[at] === undefined); away += 1) {
      at = idx + (away % 2 ? 1 : -1) * Math.ceil((away + 1) / 2);
    }
    if (column[at] === null || column[at] === undefined) { this.tip.hidden = true; return; }
    const edges = this.bands ? `  [${numberText(plot.data[2 + focused * 3][at])}, ${numberText(plot.data[3 + focused * 3][at])}]` : "";
    this.tip.textContent = `${this.curves[focused].label}\n${xText(this.options.x, plot.data[0][at])}:  ${numberText(column[at])}${edges}`;
    this.tip.hidden = false;
    this.tip.style.left = `${Math.min(left + 70, this.options.width - 40)}px`;
    this.tip.classList.toggle("left", left > this.options.width / 2);
  }

  drawMarks() {
    const { plot } = this;
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.font = `${12 * devicePixelRatio}px sans-serif`;
    ctx.textAlign = "center";
    for (const curve of this.curves) {
      ctx.fillStyle = curve.colour;
      for (const [x, kind] of curve.marks ?? []) {
        const left = plot.valToPos(x, "x", true);
        if (!(left >= bbox.left - 1 && left <= bbox.left + bbox.width + 1)) continue;
        ctx.fillText(SYMBOLS[kind], left, kind === "inf" ? bbox.top + 12 * devicePixelRatio : bbox.top + bbox.height - 3 * devicePixelRatio);
      }
    }
    ctx.restore();
  }

  close() { this.plot.destroy(); this.tip.remove(); }
}

/** Whether a series has points that no line reaches: one alone. */
function lonely(column) {
  let count = 0;
  for (const value of column) {
    if (value !== null && value !== undefined) { count += 1; if (count > 1) return false; }
  }
  return count === 1;
}

function padded(low, high) {
  if (low === null || high === null || low === undefined) return [0, 1];
  const room = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
  return [low - room, high + room];
}

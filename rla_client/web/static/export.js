// A panel as PNG, as SVG, and as the command that draws the same.

import { numberText } from "./dom.js";

const WIDTH = 900;
const HEIGHT = 420;
const LEGEND = 16;

/** The panel's canvas on a plain ground, with title and legend. */
export function toPng(panel) {
  const source = panel.chart.plot.ctx.canvas;
  const scale = source.width / panel.chart.plot.width;
  const canvas = document.createElement("canvas");
  const rows = panel.chart.curves.length > 1 ? Math.min(panel.chart.curves.length, 40) : 0;
  canvas.width = source.width;
  canvas.height = source.height + (24 + rows * LEGEND) * scale;
  const ctx = canvas.getContext("2d");
  const style = getComputedStyle(document.documentElement);
  ctx.fillStyle = style.getPropertyValue("--back");
  ctx.fillRect(0, 0, canvas.width, canvas.height);
  ctx.fillStyle = style.getPropertyValue("--text");
  ctx.font = `bold ${13 * scale}px sans-serif`;
  ctx.fillText(panel.metric, 8 * scale, 16 * scale);
  ctx.drawImage(source, 0, 24 * scale);
  ctx.font = `${11 * scale}px sans-serif`;
  panel.chart.curves.slice(0, rows).forEach((curve, at) => {
    const y = source.height + (24 + at * LEGEND) * scale;
    ctx.fillStyle = curve.colour;
    ctx.fillRect(10 * scale, y + 4 * scale, 18 * scale, 3 * scale);
    ctx.fillStyle = style.getPropertyValue("--text");
    ctx.fillText(curve.label, 34 * scale, y + 10 * scale);
  });
  return new Promise((resolve) => { canvas.toBlob(resolve, "image/png"); });
}

const escaped = (text) => String(text).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`).replace(/[\x00-\x08\x0b-\x1f]/g, "");

function ticks(low, high, log) {
  if (log && low > 0) {
    const found = [];
    for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e += 1) if (10 ** e >= low && 10 ** e <= high) found.push(10 ** e);
    return found;
  }
  const raw = (high - low) / 6 || 1;
  const base = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((n) => n * base).find((n) => n >= raw);
  const found = [];
  for (let n = Math.ceil(low / step); n * step <= high + step * 1e-9; n += 1) found.push(n * step);
  return found;
}

/** The panel as it is seen, drawn anew as SVG: text stays text. */
export function toSvg(panel) {
  const { plot, curves, bands, options } = panel.chart;
  const scales = { x: plot.scales.x, y: plot.scales.y };
  const box = { left: 64, top: 30, width: WIDTH - 84, height: HEIGHT - 76 };
  const place = (value, scale, log) => (log ? (Math.log(value) - Math.log(scale.min)) / (Math.log(scale.max) - Math.log(scale.min)) : (value - scale.min) / (scale.max - scale.min));
  const X = (x) => (box.left + place(x, scales.x, options.logX) * box.width).toFixed(2);
  const Y = (y) => (box.top + (1 - place(y, scales.y, options.logY)) * box.height).toFixed(2);
  const xs = plot.data[0];
  const inside = (at) => xs[at] >= scales.x.min && xs[at] <= scales.x.max;
  const points = (column) => [...column.keys()].filter((at) => column[at] !== null && column[at] !== undefined && inside(at) && (!options.logY || column[at] > 0)).map((at) => `${X(xs[at])},${Y(column[at])}`);
  const parts = [
    `<text x="8" y="18" font-weight="bold">${escaped(panel.metric)}</text>`,
    ...ticks(scales.y.min, scales.y.max, options.logY).map((y) => `<line x1="${box.left}" x2="${box.left + box.width}" y1="${Y(y)}" y2="${Y(y)}" stroke="#ddd"/><text x="${box.left - 6}" y="${Number(Y(y)) + 4}" text-anchor="end">${numberText(Number(y.toPrecision(10)))}</text>`),
    ...ticks(scales.x.min, scales.x.max, options.logX).map((x) => `<text x="${X(x)}" y="${box.top + box.height + 18}" text-anchor="middle">${numberText(Number(x.toPrecision(10)))}</text>`),
    `<text x="${box.left + box.width / 2}" y="${HEIGHT - 8}" text-anchor="middle">${escaped(options.x)}</text>`,
  ];
  const step = bands ? 3 : 1;
  curves.forEach((curve, at) => {
    const line = points(plot.data[1 + at * step]);
    if (bands) {
      const around = [...points(plot.data[2 + at * 3]), ...points(plot.data[3 + at * 3]).reverse()];
      if (around.length) parts.push(`<polygon points="${around.join(" ")}" fill="${curve.colour}" opacity="0.2"/>`);
    }
    for (const [x, kind] of curve.marks ?? []) if (x >= scales.x.min && x <= scales.x.max) parts.push(`<text x="${X(x)}" y="${kind === "inf" ? box.top + 10 : box.top + box.height - 2}" text-anchor="middle" fill="${curve.colour}">${{ nan: "×", inf: "▲", "-inf": "▼" }[kind]}</text>`);
    if (line.length) parts.push(`<polyline points="${line.join(" ")}" fill="none" stroke="${curve.colour}" stroke-width="1.5"/>`);
  });
  const rows = curves.length > 1 ? curves.slice(0, 40) : [];
  rows.forEach((curve, at) => parts.push(`<rect x="${box.left}" y="${HEIGHT + at * LEGEND}" width="18" height="3" fill="${curve.colour}"/><text x="${box.left + 26}" y="${HEIGHT + 6 + at * LEGEND}">${escaped(curve.label)}</text>`));
  const height = HEIGHT + rows.length * LEGEND + 10;
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="#fff"/>${parts.join("")}</svg>`;
}

/** A word as a shell takes it. */
function quoted(word) {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

/** The `rla plot` command that draws what a panel shows; `what`: metric, x, group, band, smooth, range, runs, where, root. */
export function toCommand(what) {
  const options = [["data-root", what.root]];
  if (what.where) options.push(["where", what.where]);
  for (const run of what.runs ?? []) options.push(["run", run]);
  if (!what.group || what.group.length) options.push(["group", what.group ? what.group.join(",") : "index"]);
  options.push(["band", what.group ? what.band : "none"]);
  if (what.smooth > 0) options.push(["smooth", what.smooth]);
  if (what.x !== "time-step") options.push(["x", what.x]);
  if (what.range) options.push(["bound", what.range[1]]);
  const lost = [["elapsed", "row"].includes(what.x) ? `x is not a column: ${what.x}` : "", what.range ? "the lower end of the zoom" : "", what.logX || what.logY ? "logarithmic axes" : ""].filter(Boolean);
  const words = options.map(([name, value]) => `--${name}=${value}`);  // a name or value may begin with a dash
  return `rla plot ${words.map(quoted).join(" ")} -- ${quoted(what.metric)}${lost.length ? `  # without: ${lost.join(", ")}` : ""}`;
}

// A panel as SVG and as PNG.

import { style, SYMBOLS } from "./chart.js";

const WIDTH = 900;
const HEIGHT = 420;
const LEGEND = 16;
const MOST = 40;  // curves that are named
const PNG_SCALE = 2;

const escaped = (text) => String(text).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`).replace(/[\x00-\x08\x0b-\x1f]/g, "");

/** The panel as it is seen, drawn anew as SVG: text stays text. */
export function toSvg(panel) {
  const { plot, curves, options, ticks, step } = panel.chart;
  const { x, y } = plot.scales;
  const box = { left: 64, top: 30, width: WIDTH - 84, height: HEIGHT - 76 };
  const bottom = box.top + box.height;
  const share = (value, scale, log) => (log ? Math.log(value / scale.min) / Math.log(scale.max / scale.min) : (value - scale.min) / (scale.max - scale.min));
  const X = (value) => (box.left + share(value, x, options.logX) * box.width).toFixed(2);
  const Y = (value) => (box.top + (1 - share(value, y, options.logY)) * box.height).toFixed(2);
  const inside = (value) => value >= x.min && value <= x.max;
  const xs = plot.data[0];
  const points = (column) => [...column.keys()].filter((at) => column[at] !== null && column[at] !== undefined && inside(xs[at])).map((at) => [X(xs[at]), Y(column[at])]);
  const text = (at, content, more = "") => `<text x="${at[0]}" y="${at[1]}" ${more}>${escaped(content)}</text>`;
  const middle = 'text-anchor="middle"';
  const parts = [
    text([8, 18], panel.title, 'font-weight="bold"'),
    ...(options.rulers ? [] : ticks.y).map(([value, said]) => `<line x1="${box.left}" x2="${box.left + box.width}" y1="${Y(value)}" y2="${Y(value)}" stroke="#ddd"/>${text([box.left - 6, Number(Y(value)) + 4], said, 'text-anchor="end"')}`),
    ...ticks.x.map(([value, said]) => text([X(value), bottom + 18], said, middle)),
    ...(options.rulers ?? []).flatMap((ruler, at) => ruler.map(([value, said]) => text([X(at), Y(value)], said, middle))),
    text([box.left + box.width / 2, HEIGHT - 8], options.x, middle),
  ];
  curves.forEach((curve, at) => {
    const [line, low, high] = Array.from({ length: step }, (_, more) => points(plot.data[1 + at * step + more]));
    if (low?.length) parts.push(`<polygon points="${[...low, ...high.reverse()].join(" ")}" fill="${curve.colour}" opacity="0.2"/>`);
    for (const [place, kind] of curve.marks ?? []) if (inside(place)) parts.push(text([X(place), kind === "inf" ? box.top + 10 : bottom - 2], SYMBOLS[kind], `${middle} fill="${curve.colour}"`));
    if (line.length === 1) parts.push(`<circle cx="${line[0][0]}" cy="${line[0][1]}" r="3" fill="${curve.colour}"/>`);
    else if (line.length) parts.push(`<polyline points="${line.map(String).join(" ")}" fill="none" stroke="${curve.colour}" stroke-width="1.5" stroke-dasharray="${curve.dash ?? "none"}"/>`);
  });
  const rows = curves.length > 1 ? curves.slice(0, MOST) : [];
  rows.forEach((curve, at) => parts.push(`<line x1="${box.left}" x2="${box.left + 28}" y1="${HEIGHT + 2 + at * LEGEND}" y2="${HEIGHT + 2 + at * LEGEND}" stroke="${curve.colour}" stroke-width="2.5" stroke-dasharray="${curve.dash ?? "none"}"/>${text([box.left + 36, HEIGHT + 6 + at * LEGEND], curve.label)}`));
  const height = HEIGHT + rows.length * LEGEND + 10;
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" font-family="sans-serif" font-size="11" fill="${style("--text")}"><rect width="100%" height="100%" fill="${style("--back")}"/>${parts.join("")}</svg>`;
}

/** The same as PNG. */
export async function toPng(panel) {
  const image = new Image();
  image.src = `data:image/svg+xml,${encodeURIComponent(toSvg(panel))}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = image.width * PNG_SCALE;
  canvas.height = image.height * PNG_SCALE;
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve) => { canvas.toBlob(resolve, "image/png"); });
}

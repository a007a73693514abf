// Small curves in the list: the likely metric of each run, asked for once they are seen.

import { ask } from "./api.js";
import { later } from "./dom.js";

const WIDTH = 72;
const HEIGHT = 18;
const FIRST_MS = 1200;  // until the first ones are asked for: the panels come before them
const PAUSE_MS = 250;
const AGAIN_MS = 30_000;  // until that of a live run is asked for again
const SVG = "http://www.w3.org/2000/svg";

/** Small curves of rows; onMore() when there are some that were not there before. */
export class Sparklines {
  constructor(onMore) {
    this.known = new Map();  // number → {step, at (ms), ys}
    this.wanted = new Map();
    this.first = performance.now() + FIRST_MS;
    this.ask = later(async () => {
      if (performance.now() < this.first) { setTimeout(() => this.ask(), FIRST_MS); return; }
      const rows = [...this.wanted.values()];
      this.wanted.clear();
      const found = await ask("sparklines", { numbers: rows.map((row) => row.number) });
      for (const row of rows) this.known.set(row.number, { step: row.step, at: performance.now(), ys: found[row.number] ?? [] });
      onMore();
    }, PAUSE_MS);
  }

  /** The curve of a row as an element; null while it is not known. */
  of(row, { colour, dash }) {
    const known = this.known.get(row.number);
    if (!known || (known.step !== row.step && performance.now() - known.at > AGAIN_MS)) {
      if (row.metric) { this.wanted.set(row.number, row); this.ask(); }
      if (!known) return null;
    }
    const { ys } = known;
    if (ys.length < 2) return null;
    const [low, high] = [Math.min(...ys), Math.max(...ys)];
    const points = ys.map((y, at) => `${(at / (ys.length - 1) * (WIDTH - 2) + 1).toFixed(1)},${(high > low ? HEIGHT - 2 - (y - low) / (high - low) * (HEIGHT - 4) : HEIGHT / 2).toFixed(1)}`);
    const svg = document.createElementNS(SVG, "svg");
    svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
    svg.setAttribute("class", "spark");
    svg.setAttribute("aria-hidden", "true");
    const line = document.createElementNS(SVG, "polyline");
    line.setAttribute("points", points.join(" "));
    line.setAttribute("stroke", colour);
    if (dash) line.setAttribute("stroke-dasharray", dash.join(" "));
    svg.append(line);
    return svg;
  }
}

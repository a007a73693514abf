// A distribution over time as a picture of heat: the darker, the more of the values lie there.

import { style } from "./chart.js";
import { h, numberText } from "./dom.js";

const HEIGHT = 150;

/** An element of one name's histograms, as `histograms.py` tells of them. */
export function heatMap({ name, low, high, steps, shares }) {
  const bins = shares[0].length;
  const most = Math.max(...shares.flat(), 1e-9);
  const canvas = h("canvas", { width: steps.length, height: bins, "aria-hidden": "true" });
  const context = canvas.getContext("2d");
  const ink = style("--accent").match(/[\da-f]{2}/gi).map((part) => parseInt(part, 16));
  const image = context.createImageData(steps.length, bins);
  shares.forEach((column, x) => column.forEach((share, y) => {
    const at = 4 * ((bins - 1 - y) * steps.length + x);
    image.data.set([...ink, Math.round(255 * Math.sqrt(share / most))], at);
  }));
  context.putImageData(image, 0, 0);
  const said = h("span", { class: "dim" });
  const value = (bin) => numberText(Number((low + (high - low) * bin / bins).toPrecision(4)));
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    const x = Math.min(Math.floor((event.clientX - box.left) / box.width * steps.length), steps.length - 1);
    const y = Math.min(Math.max(bins - 1 - Math.floor((event.clientY - box.top) / box.height * bins), 0), bins - 1);
    said.textContent = ` step ${numberText(steps[x])}: ${numberText(Number((100 * shares[x][y]).toPrecision(3)))} % from ${value(y)} to ${value(y + 1)}`;
  });
  canvas.addEventListener("pointerleave", () => { said.textContent = ""; });
  canvas.style.height = `${HEIGHT}px`;
  const ends = [steps[0], steps.at(-1)].map((step) => numberText(step));
  return h("div", { class: "panel heat", role: "img", "aria-label": `${name}: values from ${value(0)} to ${value(bins)}, steps ${ends.join(" to ")}` },
    h("h2", {}, name, said),
    h("div", { class: "heat-body" }, h("div", { class: "heat-y dim" }, h("span", {}, value(bins)), h("span", {}, value(0))), canvas),
    h("div", { class: "heat-x dim" }, h("span", {}, ends[0]), h("span", {}, ends[1])));
}

// What is dragged, or moved by the arrow keys, to make something wider.

import { h } from "./dom.js";

const MOST = 4000;  // pixels of a column or a list
const KEY_STEP = 40;  // pixels

/** A grip: `width()` is what it is now, `wide(pixels)` makes it so wide. */
export function grip(label, width, wide, props = {}) {
  const node = h("div", { role: "separator", tabindex: "0", "aria-orientation": "vertical", "aria-label": label, "aria-valuemin": "0", "aria-valuemax": String(MOST), "aria-valuenow": String(Math.round(width())), ...props });
  const move = (pixels) => {
    wide(pixels);
    node.setAttribute("aria-valuenow", String(Math.round(width())));
  };
  node.addEventListener("pointerdown", (down) => {
    node.setPointerCapture(down.pointerId);
    const begun = width() - down.clientX;
    node.onpointermove = (event) => move(begun + event.clientX);
    down.stopPropagation();
  });
  node.addEventListener("pointerup", () => { node.onpointermove = null; });
  node.addEventListener("keydown", (event) => {
    const by = { ArrowRight: KEY_STEP, ArrowLeft: -KEY_STEP }[event.key];
    if (!by) return;
    event.preventDefault();
    event.stopPropagation();
    move(width() + by);
  });
  return node;
}

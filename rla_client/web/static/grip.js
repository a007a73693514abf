// What is dragged, or moved by the arrow keys, to make something wider.

import { h } from "./dom.js";

const KEY_STEP = 40;  // pixels

/** A grip: `width()` is what it is now, `wide(pixels)` makes it so wide. */
export function grip(label, width, wide, props = {}) {
  const node = h("div", { role: "separator", tabindex: "0", "aria-orientation": "vertical", "aria-label": label, ...props });
  node.addEventListener("pointerdown", (down) => {
    node.setPointerCapture(down.pointerId);
    const begun = width() - down.clientX;
    node.onpointermove = (event) => wide(begun + event.clientX);
    down.stopPropagation();
  });
  node.addEventListener("pointerup", () => { node.onpointermove = null; });
  node.addEventListener("keydown", (event) => {
    const by = { ArrowRight: KEY_STEP, ArrowLeft: -KEY_STEP }[event.key];
    if (!by) return;
    event.preventDefault();
    event.stopPropagation();
    wide(width() + by);
  });
  return node;
}

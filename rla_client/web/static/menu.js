// A menu of actions beside what opened it.

import { h } from "./dom.js";

/** Open a menu at a button: `items` are [text, what it does]; falsy ones are left out. Escape, Tab or a click beside it closes it. */
export function openMenu(button, label, items) {
  const close = (back) => {
    removeEventListener("pointerdown", beside, true);
    node.remove();
    button.setAttribute("aria-expanded", "false");
    if (!back) return;
    const again = button.isConnected ? button : document.querySelector(`[aria-label="${CSS.escape(button.getAttribute("aria-label") ?? "")}"]`);  // its row was made anew
    again?.focus({ preventScroll: true });
  };
  const choices = items.filter(Boolean).map(([text, act]) => h("button", { type: "button", role: "menuitem", tabindex: "-1", onclick: () => { close(true); act(); } }, text));
  const node = h("div", { class: "menu", role: "menu", "aria-label": label, onkeydown: (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by) choices.at((choices.indexOf(document.activeElement) + by) % choices.length).focus();
    else if (event.key === "Escape" || event.key === "Tab") close(true);
    if (event.key !== "Enter" && event.key !== " ") { event.preventDefault(); event.stopPropagation(); }
  } }, choices);
  const beside = (event) => { if (!node.contains(event.target)) close(false); };
  addEventListener("pointerdown", beside, true);
  document.getElementById("page").append(node);  // in a landmark, for those who go from one to the next
  const box = button.getBoundingClientRect();
  node.style.left = `${Math.max(Math.min(box.left, innerWidth - node.offsetWidth - 6), 2)}px`;
  node.style.top = `${box.bottom + node.offsetHeight + 4 > innerHeight ? Math.max(box.top - node.offsetHeight - 2, 2) : box.bottom + 2}px`;
  button.setAttribute("aria-expanded", "true");
  choices[0]?.focus({ preventScroll: true });
}

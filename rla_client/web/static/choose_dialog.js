// A dialog to choose some of many names.

import { dialog, fill, h } from "./dom.js";

const MOST = 200;  // names shown at once

/** Let the user tick some of the known names; onShow(names) with those that are ticked. */
export function chooseNames(title, known, ticked, onShow) {
  const chosen = new Set(ticked);
  const search = h("input", { type: "search", placeholder: "find a name", "aria-label": "Find a name", oninput: () => draw() });
  const box = h("div", { class: "choices" });
  const draw = () => {
    const text = search.value.toLowerCase();
    const found = known.filter((name) => name.toLowerCase().includes(text)).sort((a, b) => chosen.has(b) - chosen.has(a)).slice(0, MOST);
    fill(box, found.map((name) => h("label", {}, h("input", { type: "checkbox", checked: chosen.has(name), value: name, onchange: (event) => { if (event.target.checked) chosen.add(name); else chosen.delete(name); } }), ` ${name}`)));
  };
  draw();
  const shown = dialog(title, search, box, h("button", { type: "button", onclick: () => { shown.close(); onShow([...chosen]); } }, "Show"));
  shown.classList.add("columns");
}

// The legend of a panel: few names stand there, more fold into one line, as the list of runs has their colours, too.

import { stripes } from "./colours.js";
import { fill, h } from "./dom.js";

const FEW = 6;  // curves whose names stand there unasked
const MOST = 200;  // that are named
const [SHORT, LONG] = [14, 44];  // letters of the longest name that a column of them is made for

/** A piece of a curve's line. */
export const swatch = ({ colour, dash }) => h("span", { class: "swatch", style: { background: stripes(dash, colour) } });

const oddText = (odd) => Object.entries(odd).map(([kind, count]) => `${count} ${kind}`).join(", ");

/** Names of the curves of a panel; the folded ones of all panels open together. */
export class Legend {
  /** onMark(place of a curve or null): it shall stand out; onKeep(place): so that it stays so, or no more. */
  constructor(panels, onMark, onKeep) {
    Object.assign(this, { panels, onMark, onKeep });
    this.curves = [];
    this.node = h("div", { class: "legend", role: "group", "aria-label": "Curves" });
  }

  /** `curves`: [{label, colour, dash, metric, odd}]. */
  show(curves) {
    this.curves = curves;
    this.entries = null;
    if (curves.length <= FEW) { fill(this.node, curves.map((curve, at) => this.entry(curve, at))); return; }
    const metrics = [...Map.groupBy(curves, (curve) => curve.metric)].filter(([metric]) => metric !== undefined);
    const odd = {};
    for (const curve of curves) for (const [kind, count] of Object.entries(curve.odd ?? {})) odd[kind] = (odd[kind] ?? 0) + count;
    const turn = (event) => { event.preventDefault(); this.panels.showNames(!this.names.open); };
    this.names = h("details", { class: "names" }, h("summary", { title: "Names of the curves, in all panels", onclick: turn }, `${curves.length} curves`,
      Object.keys(odd).length > 0 && h("span", { class: "bad" }, ` ${oddText(odd)}`)));
    fill(this.node, metrics.map(([metric, [{ dash }]]) => h("span", { class: "entry" }, swatch({ colour: "var(--dim)", dash }), metric)), this.names);
    this.fit();
  }

  /** Open or fold the names, as all panels have them. */
  fit() {
    if (this.curves.length <= FEW) return;
    this.names.open = this.panels.namesOpen;
    if (!this.names.open || this.entries) return;
    this.entries = h("div", { class: "entries" }, this.curves.slice(0, MOST).map((curve, at) => this.entry(curve, at)),
      this.curves.length > MOST && h("span", { class: "dim" }, `and ${this.curves.length - MOST} more`));
    const longest = Math.max(...this.curves.slice(0, MOST).map(({ label }) => label.length));
    this.entries.style.setProperty("--longest", String(Math.min(Math.max(longest, SHORT), LONG)));
    this.names.append(this.entries);
  }

  entry(curve, at) {
    const mark = (place) => () => this.onMark(place);
    return h("button", { type: "button", class: "entry name", title: `${curve.label}\nA click marks it`, "aria-pressed": "false", onmouseenter: mark(at), onmouseleave: mark(null), onfocus: mark(at), onblur: mark(null), onclick: () => this.onKeep(at) },
      swatch(curve), curve.label, curve.odd && h("span", { class: "bad" }, ` ${oddText(curve.odd)}`));
  }

  /** Mark the name of a curve, and of the one that stays marked; -1: none. */
  mark(at, kept) {
    const names = this.node.querySelectorAll(".entry.name");
    names.forEach((entry, place) => { entry.classList.toggle("on", place === at); entry.setAttribute("aria-pressed", String(place === kept)); });
    if (this.entries && names[at]) this.entries.scrollTop = names[at].offsetTop - this.entries.offsetTop - 24;
  }
}

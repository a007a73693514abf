// The fields above the panels: the axes, smoothing, the size of the panels, the metrics that are shown.

import { fill, h, later } from "./dom.js";

const BANDS = { ci: "mean, 95 % CI (bootstrap)", iqm: "IQM, 95 % CI (bootstrap)", stderr: "mean ± std. error", std: "mean ± std", median: "median, quartiles", range: "mean, min to max", none: "mean" };
const SIZES = { small: "small", medium: "medium", large: "large" };
const AXES = { "time-step": "step", timestamp: "wall time", elapsed: "relative time, seconds", row: "number of the row" };

const numbers = (input) => Number(input.value) || 0;

/** A label beside a field. */
export function control(label, ...input) { return h("label", { class: "control" }, h("span", {}, label), input); }

/** The fields of a page with `settings` (see `view.js`) and set(changes): {nodes, update(grouped), know(metrics)}. */
export class CurveTools {
  constructor(page) {
    this.page = page;
    const check = (label, name, title) => h("label", { class: "control", title }, this.field(name, { type: "checkbox" }, (input) => input.checked), ` ${label}`);
    this.number = h("output", { class: "mono smooth" });
    this.band = this.choice("band", BANDS, "Centre and band of a group");
    this.bands = h("span", { class: "online" }, control("Bands", this.band));
    this.numbersOfRanks = new Set([0]);
    this.rank = this.choice("ranks", {}, "Which ranks of runs with several");
    this.ranks = h("span", { class: "online", hidden: true }, control("Ranks", this.rank));
    this.xs = h("datalist", { id: "x-columns" });
    this.unzoom = h("button", { type: "button", name: "unzoom", title: "Show all of x again (0)", onclick: () => page.set({ zoom: null }) }, "Reset zoom");
    this.know([]);
    const smooth = this.field("smooth", { type: "range", min: "0", max: "50", step: "1", "aria-label": "Smoothing in points" }, numbers);
    smooth.addEventListener("input", () => this.say(smooth.value));
    const fields = h("span", { class: "fields" },
      h("span", { class: "online" }, control("x", this.field("x", { list: "x-columns", "aria-label": "Column of the x axis" }, (input) => input.value.trim() || "time-step"), this.xs)),
      check("log x", "logX"), check("log y", "logY"),
      check("clip outliers", "clip", "The y axis leaves out the highest and the lowest 1 % of the values"),
      h("span", { class: "online" }, control("Smooth", smooth, this.number)), this.bands, this.ranks,
      control("Panels", this.choice("size", SIZES, "Size of the panels")));
    const unfold = (event) => event.currentTarget.setAttribute("aria-expanded", String(fields.classList.toggle("unfolded")));
    this.nodes = [  // where there is little room, the first one unfolds the others
      h("button", { type: "button", name: "axes", "aria-expanded": "false", onclick: unfold }, "Axes, smoothing…"), fields,
      this.field("metrics", { type: "search", placeholder: "find metrics", "aria-label": "Find metrics", title: "A part of the name, or a regular expression: loss|return$" }, (input) => input.value), this.unzoom,
    ];
    this.update(false);
  }

  /** A field of one setting: {type, name, …} as of an input, and when it counts. */
  field(name, props, read = (input) => input.value.trim()) {
    const value = this.page.settings[name];
    const event = props.type === "search" || name === "where" ? "oninput" : "onchange";
    const change = (happened) => this.page.set({ [name]: read(happened.target) });
    return h("input", { name, value: String(value), checked: value === true, spellcheck: "false", ...props, [event]: event === "oninput" ? later(change, 200) : change });
  }

  choice(name, texts, label) {
    return h("select", { name, "aria-label": label, title: label, onchange: (event) => this.page.set({ [name]: event.target.value }) },
      Object.entries(texts).map(([value, text]) => h("option", { value, selected: value === this.page.settings[name] }, text)));
  }

  say(points) { this.number.textContent = Number(points) ? `${points} points` : "off"; }

  /** Show what holds now; `grouped`: whether runs are drawn in bands. */
  update(grouped) {
    this.say(this.page.settings.smooth);
    this.unzoom.hidden = !this.page.settings.zoom;
    this.bands.hidden = !grouped;
  }

  /** Offer the ranks that have one of these metrics. */
  knowRanks(metrics) {
    const asked = this.page.settings.ranks;
    for (const number of [/^[0-9]+$/.exec(asked)?.[0], ...metrics.map((name) => /@rank([0-9]+)(?:-|$)/.exec(name)?.[1])]) if (number) this.numbersOfRanks.add(Number(number));
    const ranks = [...this.numbersOfRanks].sort((a, b) => a - b).map((number) => [String(number), `rank ${number}`]);
    fill(this.rank, [["", "each apart"], ["mean", "mean of all"], ...ranks].map(([value, text]) => h("option", { value, selected: value === asked }, text)));
    this.ranks.hidden = !asked && ranks.length < 2;
  }

  /** Offer these metrics as x. */
  know(metrics) {
    fill(this.xs, Object.entries(AXES).map(([value, label]) => h("option", { value, label })), metrics.filter((name) => !Object.hasOwn(AXES, name)).map((value) => h("option", { value })));
  }
}

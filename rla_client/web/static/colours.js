// Colours of curves that colour-blind readers tell apart, on a light and on a dark ground; beyond eight, dashes.

import { memory } from "./dom.js";

// Chosen by search for the largest least distance (OKLab) as seen with normal sight, protanopia, deuteranopia and
// tritanopia: 0.127 of the light ones, 0.139 of the dark ones, where Okabe and Ito's eight have 0.016. A test computes it.
const LIGHT = ["#2f18a2", "#b74a05", "#569687", "#f573da", "#b1a338", "#396787", "#a553d7", "#503900"];
const DARK = ["#5965eb", "#ef992b", "#3ad1af", "#c73995", "#89710e", "#adf2fe", "#af93f9", "#f9e85a"];
const DASHES = [undefined, [8, 4], [2, 3], [12, 3, 2, 3], [16, 5]];
const GROUP_DASHES = [undefined, [10, 4], [3, 3], [12, 3, 3, 3]];
export const METRIC_DASHES = GROUP_DASHES;

/** A dashed line as a background or mask of CSS; `most`: pixels that a dash and what follows it take. */
export function stripes(dash, colour, most = Infinity) {
  if (!dash) return `linear-gradient(${colour} 0 100%)`;
  const scale = Math.min(most / dash.reduce((sum, part) => sum + part, 0), 1);
  let at = 0;
  const parts = dash.map((part, place) => `${place % 2 ? "transparent" : colour} ${at.toFixed(1)}px ${(at += part * scale).toFixed(1)}px`);
  return `repeating-linear-gradient(90deg, ${parts.join(", ")})`;
}

/** Whether the page is dark now. */
export function isDark() {
  return getComputedStyle(document.documentElement).colorScheme === "dark";
}

/** Which colour a name has: the user's own, else the next one, the same for as long as the page is open. */
export class Colours {
  constructor(key) {
    this.key = key;
    this.own = JSON.parse(memory.get(key) ?? "{}");
    this.slots = new Map();
  }

  slot(name) {
    if (!this.slots.has(name)) this.slots.set(name, this.slots.size);
    return this.slots.get(name);
  }

  of(name) {
    if (Object.hasOwn(this.own, name)) return this.own[name];
    return (isDark() ? DARK : LIGHT)[this.slot(name) % LIGHT.length];
  }

  /** Colour and dash of a run's line. */
  line(name) {
    return { colour: this.of(name), dash: DASHES[Math.floor(this.slot(name) / LIGHT.length) % DASHES.length] };
  }

  /** Colour and dash of a group's line: groups are few, so each next one has another dash, too. */
  groupLine(name) {
    return { colour: this.of(name), dash: GROUP_DASHES[(this.slot(name) + Math.floor(this.slot(name) / LIGHT.length)) % GROUP_DASHES.length] };
  }

  set(name, colour) {
    this.own[name] = colour;
    memory.set(this.key, JSON.stringify(this.own));
  }
}

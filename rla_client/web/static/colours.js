// Colours that colour-blind readers tell apart (Okabe and Ito, as `rla plot` has them), then others and dashes.

import { memory } from "./dom.js";

const BASE = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D00", "#777777"];
const DASHES = [undefined, [8, 4], [2, 3]];

/** Whether the page is dark now. */
export function isDark() {
  return getComputedStyle(document.documentElement).colorScheme === "dark";
}

/** A colour moved towards that of the text, which it is told from the ground by. */
function stronger(colour) {
  const end = isDark() ? 255 : 0;
  const parts = [1, 3, 5].map((place) => Math.round(parseInt(colour.slice(place, place + 2), 16) * 0.55 + end * 0.45));
  return `#${parts.map((part) => part.toString(16).padStart(2, "0")).join("")}`;
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
    const base = BASE[this.slot(name) % BASE.length];
    return this.slot(name) % (2 * BASE.length) < BASE.length ? base : stronger(base);
  }

  /** Colour and dash of a curve's line. */
  line(name) {
    return { colour: this.of(name), dash: DASHES[Math.floor(this.slot(name) / (2 * BASE.length)) % DASHES.length] };
  }

  set(name, colour) {
    this.own[name] = colour;
    memory.set(this.key, JSON.stringify(this.own));
  }
}

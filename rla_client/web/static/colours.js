// Colours that colour-blind readers tell apart (Okabe and Ito, as `rla plot` has them), then lighter and darker ones.

const BASE = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D00", "#777777"];

function mixed(colour, other, share) {
  const at = (text, place) => parseInt(text.slice(1 + 2 * place, 3 + 2 * place), 16);
  const parts = [0, 1, 2].map((place) => Math.round(at(colour, place) * (1 - share) + at(other, place) * share));
  return `#${parts.map((part) => part.toString(16).padStart(2, "0")).join("")}`;
}

const PALETTE = [
  ...BASE,
  ...BASE.map((colour) => mixed(colour, "#ffffff", 0.45)),
  ...BASE.map((colour) => mixed(colour, "#000000", 0.4)),
];

/** Which colour a name has: the user's own, else the next of the palette, the same one for as long as the page is open. */
export class Colours {
  constructor(key) {
    this.key = key;
    this.own = JSON.parse(localStorage.getItem(key) ?? "{}");
    this.slots = new Map();
  }

  of(name) {
    if (Object.hasOwn(this.own, name)) return this.own[name];
    if (!this.slots.has(name)) this.slots.set(name, this.slots.size);
    return PALETTE[this.slots.get(name) % PALETTE.length];
  }

  set(name, colour) {
    this.own[name] = colour;
    localStorage.setItem(this.key, JSON.stringify(this.own));
  }
}

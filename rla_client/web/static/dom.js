// Elements from values. Whatever a run wrote becomes text here, never markup.

/** An element: h("a", {href, class: "x", onclick: f, hidden: true}, child, …); children are nodes, texts, arrays. */
export function h(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(node.style, value);
    else if (name === "dataset") Object.assign(node.dataset, value);
    else if (name in node && typeof value !== "string") node[name] = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  put(node, children);
  return node;
}

/** Append children to a node. */
export function put(node, children) {
  for (const child of [children].flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : String(child));
  }
  return node;
}

/** Replace what a node holds. */
export function fill(node, ...children) {
  node.replaceChildren();
  return put(node, children);
}

/** Let a node have these elements and no others; those that are there are not moved: a moved frame would load again. */
export function arrange(node, elements) {
  for (const one of [...node.children]) if (!elements.includes(one)) one.remove();
  elements.forEach((one, at) => { if (node.children[at] !== one) node.insertBefore(one, node.children[at] ?? null); });
}

/** A number as people write it: 6 digits at most, no needless zeros; texts and nothing as they are. */
export function numberText(value) {
  if (value === null || value === undefined) return "";
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value) && Math.abs(value) < 1e9) return value.toString();
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e9)) return value.toExponential(3).replace(/\.?0+e/, "e");
  return String(Number(value.toPrecision(6)));
}

/** A number as an axis has it: 12.5k, 3M. */
export function shortText(value) {
  const [size, unit] = [[1e9, "G"], [1e6, "M"], [1e4, "k"]].find(([least]) => Math.abs(value) >= least) ?? [1, ""];
  return `${numberText(Number((value / (unit === "k" ? 1e3 : size)).toPrecision(10)))}${unit}`;
}

/** Seconds as 4.2 s, 3 min 5 s, 2 h 10 min, 3 d 4 h. */
export function durationText(seconds) {
  if (typeof seconds !== "number") return "";
  if (seconds < 10) return `${Number(seconds.toPrecision(2))} s`;
  const s = Math.round(seconds);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

/** Unix seconds as local time. */
export function timeText(seconds) {
  return typeof seconds === "number" && seconds ? new Date(seconds * 1000).toLocaleString("sv") : "";
}

/** Bytes as 3.1 MiB. */
export function bytesText(count) {
  if (typeof count !== "number") return "";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let place = 0;
  while (count >= 1024 && place < units.length - 1) { count /= 1024; place += 1; }
  return `${place ? count.toFixed(1) : count} ${units[place]}`;
}

/** How often each of some things is there, the most frequent first: [[thing, count]…]. */
export function tally(things) {
  const counts = Map.groupBy(things, (one) => one);
  return [...counts].map(([one, all]) => [one, all.length]).sort(([, a], [, b]) => b - a);
}

/** Open a dialog, with a button that closes it; it is gone when it is closed. */
export function dialog(title, ...content) {
  const box = h("dialog", { "aria-label": title }, h("h3", {}, title), content, h("p", {}, h("button", { type: "button", onclick: () => box.close() }, "Close")));
  box.addEventListener("close", () => box.remove());
  document.body.append(box);
  box.showModal();
  return box;
}

/** What the browser keeps for this page, as localStorage; nothing where it keeps nothing. */
export const memory = {
  get(key) { try { return localStorage.getItem(key); } catch { return null; } },
  set(key, text) { try { localStorage.setItem(key, text); } catch { /* it is forgotten with the page */ } },
};

/** Call `f` once, `ms` after the last call. */
export function later(f, ms) {
  let timer = 0;
  return (...args) => { clearTimeout(timer); timer = setTimeout(() => f(...args), ms); };
}

// What lies under a pressed pointer is not replaced, nor what has a colour chooser open: the click, or the colour, would be lost.

const HELD_MS = 20_000;  // at most: an end may happen where nobody tells of it
const waiting = new Map();
let pressed = false;
let chooser = null;  // the element whose colour is being chosen
let limit = 0;

function holding(change) {
  change();
  clearTimeout(limit);
  if (pressed || chooser) { limit = setTimeout(holding, HELD_MS, () => { pressed = false; chooser = null; }); return; }
  for (const [key, f] of waiting) { waiting.delete(key); f(); }
}

const letGo = () => { pressed = false; };
addEventListener("pointerdown", () => holding(() => { pressed = true; chooser = null; }), true);
addEventListener("pointerup", () => setTimeout(holding, 0, letGo), true);  // after its click
addEventListener("pointercancel", () => holding(letGo), true);
addEventListener("pointermove", (event) => { if (pressed && !event.buttons) holding(letGo); }, true);
addEventListener("click", ({ target }) => {
  pressed = false;  // what the click does shows at once
  if (target.type === "color") holding(() => { chooser = target; });
}, true);
for (const end of ["change", "focusout"]) {
  addEventListener(end, ({ target }) => { if (target === chooser) setTimeout(holding, 0, () => { chooser = null; }); }, true);
}

/** Call `f` now, or once nothing is pressed any more; of several for one `key` the last. */
export function whenFree(key, f) {
  waiting.delete(key);
  if (pressed || chooser) waiting.set(key, f);
  else f();
}

/** Save a text or Blob as a file. */
export function save(name, content, type = "text/plain") {
  const blob = content instanceof Blob ? content : new Blob([content], { type });
  const url = URL.createObjectURL(blob);
  const link = h("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

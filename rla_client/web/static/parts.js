// Parts that several pages show: states, pictures and films over time, a slider of steps, a way to choose a run.

import { ask, fileUrl } from "./api.js";
import { fill, h, later, numberText } from "./dom.js";

const PLAY_MS = 350;
const SAME_STEP = 1e-9;
const CRISP = 2;  // times its size, from which on a picture is shown pixel by pixel

/** A run's state as a coloured word. */
export function badge(state) {
  return h("span", { class: `state ${/^[a-z]+$/.test(state ?? "") ? state : ""}` }, state ?? "unknown");
}

/** What tells a run from others: `seed=1 lr=0.1`. */
export function trackedText(run) {
  const values = new Map(run.parameters);
  return run.tracked.map((name) => `${name}=${numberText(values.get(name))}`).join("  ");
}

/** A table of rows; cells are texts, nodes, or {node, class}. */
export function table(heads, rows, props = {}) {
  const cell = (tag, value) => h(tag, { class: value?.class }, value?.class === undefined ? value : value.node);
  return h("table", { class: "list", ...props },
    h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, row.map((value) => cell("td", value))))));
}

/** Name and value pairs; those without a value are left out. */
export function facts(pairs) {
  return h("dl", { class: "facts" }, Object.entries(pairs)
    .filter(([, value]) => value !== undefined && value !== null && value !== "")
    .map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

/** Fill a node anew only where what it shows has changed: focus and selection stay. */
export function refill(node, key, make) {
  const text = JSON.stringify(key);
  if (node.shownKey === text) return;
  node.shownKey = text;
  fill(node, make());
}

/** A section with a title. */
export function section(title, ...children) {
  return h("section", { class: "part" }, h("h2", {}, title), children);
}

/** A button that copies a text into the clipboard. */
export function copyButton(text) {
  const button = h("button", { type: "button", class: "small", onclick: async () => {
    await navigator.clipboard?.writeText(text);
    button.textContent = "copied";
    setTimeout(() => { button.textContent = "copy"; }, 1500);
  } }, "copy");
  return button;
}

/** Call `look` now and then while the page is seen, `pauseMs()` after it ended, until `signal` aborts. */
export function repeat(look, pauseMs, signal) {
  let timer = 0;
  const next = () => { if (!signal.aborted) timer = setTimeout(turn, pauseMs()); };
  async function turn() {
    try { if (!document.hidden) await look(); } finally { next(); }
  }
  signal.addEventListener("abort", () => clearTimeout(timer));
  next();
}

/** Load now, and again while a run lives. */
export function follow(load, run, pauseMs, signal) {
  load();
  repeat(() => (run().live ? load() : null), pauseMs, signal);
}

/** All time-steps of some groups of files, in order. */
export function stepsOf(groups) {
  const steps = new Set(groups.flatMap((group) => group.files.map(([step]) => step)));
  steps.delete(null);
  return [...steps].sort((a, b) => a - b);
}

/** Of files in the order of their steps the one nearest to a step; the last one without a step. */
export function nearest(files, step) {
  const place = step === null || step === undefined ? -1 : files.findIndex(([own]) => own !== null && own >= step);
  if (place < 0) return files.at(-1);
  const before = files[place - 1];
  return before && before[0] !== null && step - before[0] < files[place][0] - step ? before : files[place];
}

/** A slider over steps: {node, step(), set(step), change(steps)}; `onStep(step)` at each move. */
export function slider(first, onStep, label) {
  let steps = [];
  let timer = 0;
  const shown = h("output", { class: "mono" });
  const range = h("input", { type: "range", min: "0", "aria-label": label, oninput: moved });
  const play = h("button", { type: "button", title: "Play", "aria-label": `Play: ${label}`, onclick: toggle }, "▶");
  const node = h("div", { class: "slider" },
    h("button", { type: "button", title: "Step back", "aria-label": "Step back", onclick: () => move(-1) }, "‹"), range,
    h("button", { type: "button", title: "Step on", "aria-label": "Step on", onclick: () => move(1) }, "›"), play,
    h("button", { type: "button", title: "The latest, and those that come", "aria-label": `Latest: ${label}`, onclick: () => move(steps.length) }, "⇥"), shown);
  const current = () => steps[Number(range.value)];
  function say() {
    shown.textContent = `step ${numberText(current())}`;
    range.setAttribute("aria-valuetext", shown.textContent);
  }
  function moved() { say(); onStep(current()); }
  function move(by) {
    const place = Math.min(steps.length - 1, Math.max(0, Number(range.value) + by));
    if (place !== Number(range.value)) { range.value = place; moved(); }
  }
  function pause() { clearInterval(timer); timer = 0; play.textContent = "▶"; }
  function toggle() {
    if (timer) { pause(); return; }
    if (Number(range.value) === steps.length - 1) { range.value = 0; moved(); }
    play.textContent = "⏸";
    timer = setInterval(() => {
      if (!node.isConnected || Number(range.value) >= steps.length - 1) pause(); else move(1);
    }, PLAY_MS);
  }
  function change(news) {
    const last = !steps.length || Number(range.value) >= steps.length - 1;
    const old = current();
    steps = news;
    range.max = Math.max(0, steps.length - 1);
    range.value = last ? range.max : Math.max(0, steps.findIndex((step) => step >= old));
    node.hidden = steps.length < 2;
    say();
  }
  function set(step) {
    const place = steps.findIndex((one) => one >= step - SAME_STEP);
    range.value = place < 0 ? steps.length - 1 : place;
    say();
  }
  change(first);
  return { node, step: current, set, change };
}

/** A small picture or film that is shown at twice its size or more keeps its pixels. */
function keepPixels({ target }) {
  const [width, height] = [target.naturalWidth ?? target.videoWidth, target.naturalHeight ?? target.videoHeight];
  target.classList.toggle("crisp", Math.min(target.clientWidth / width, target.clientHeight / height) >= CRISP);
}

/** Call `f` once an element has come into sight, or near it. */
function whenSeen(node, f) {
  const observer = new IntersectionObserver((entries) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    observer.disconnect();
    f();
  }, { rootMargin: "200px" });
  observer.observe(node);
}

const gone = () => h("p", { class: "dim" }, "not there any more, or not readable");
const MAKERS = {
  image: (url, name, onerror) => h("a", { href: url, target: "_blank", rel: "noopener noreferrer", title: "Open alone" },
    h("img", { src: url, alt: name, loading: "lazy", onload: keepPixels, onerror })),
  video: (url, name, onerror) => h("video", { src: url, controls: true, preload: "metadata", loop: true, muted: true, "aria-label": name, onloadeddata: keepPixels, onerror }),
  audio: (url, name, onerror) => h("audio", { src: url, controls: true, preload: "none", "aria-label": name, onerror }),
};

/** A file of the results, shown in `body` as a picture, film or sound, and as a link where it is none of them. */
export function showFile(body, run, kind, path) {
  const url = fileUrl("file", { run, kind: "results", path });
  fill(body, MAKERS[kind] ? MAKERS[kind](url, path, () => fill(body, gone())) : h("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, path));
  return body;
}

/** One thing over time, a picture, film, sound, page or cloud of points: {node, show(step), change(group)}. */
export function frame(run, first) {
  let group = first;
  const title = h("figcaption", {});
  const body = h("div", { class: "frame" });
  const node = h("figure", { class: group.kind }, title, body);
  const wide = h("button", { type: "button", class: "small", title: "Wide", "aria-label": `Wide: ${group.name}`, onclick: () => node.classList.toggle("wide") }, "⤢");
  const view = { yaw: 0.6, pitch: 0.45, zoom: 1 };  // of a cloud of points
  let path = null;
  const loaders = {  // of what takes more than an element
    page: async (...what) => (await import("./stored_page.js")).showPage(...what),
    points: async (...what) => (await import("./point_cloud.js")).showPoints(...what, view),
  };
  function show(step) {
    const [own, name] = nearest(group.files, step);
    if (name === path) return;
    path = name;
    const query = { run, kind: "results", path: name };
    fill(title, h("b", { title: name }, group.name), " ", h("span", { class: "dim" }, own === null ? "" : `step ${numberText(own)}`),
      " ", h("a", { href: fileUrl("file", { ...query, save: "1" }), title: "Save this file", "aria-label": `Save ${name}` }, "↓"), " ", loaders[group.kind] && wide);
    const image = body.querySelector("img");
    if (loaders[group.kind]) {
      const box = h("div", { class: "held" });
      fill(body, box);
      whenSeen(box, () => loaders[group.kind](box, query, name));
    } else if (image) {  // keeps its size while the next one loads
      image.src = fileUrl("file", query);
      image.alt = name;
      image.parentElement.href = image.src;
    } else showFile(body, run, group.kind, name);
  }
  show(null);
  return { node, show, change: (next) => { group = next; } };
}

/** A field that offers runs and gives the chosen one's path to `onPick`. */
export function runPicker(run, label, onPick) {
  const id = `runs-${Math.random().toString(36).slice(2)}`;
  const list = h("datalist", { id });
  const input = h("input", { type: "search", list: id, placeholder: "table, date or parameter of a run", "aria-label": label, class: "broad" });
  const offer = later(async () => {
    const found = await ask("others", { run, text: input.value }).catch(() => []);
    fill(list, found.map(([path, state]) => h("option", { value: path, label: state })));
  }, 150);
  const choose = async (event) => {
    event.preventDefault();
    const found = await ask("others", { run, text: input.value }).catch(() => []);
    const path = found.find(([one]) => one === input.value)?.[0] ?? (found.length === 1 ? found[0][0] : null);
    input.setCustomValidity(path ? "" : found.length ? "several runs fit; choose one" : "no other run fits");
    input.reportValidity();
    if (path) onPick(path);
  };
  input.addEventListener("input", () => { input.setCustomValidity(""); offer(); });
  input.addEventListener("focus", offer);
  return h("form", { class: "strip online", onsubmit: choose }, h("label", {}, label, " ", input), list, h("button", {}, "Show"));
}

// One sample as text or as a conversation. Whatever is in it becomes text, never markup.

import { h, numberText, timeText } from "./dom.js";
import { showFile } from "./parts.js";

const LONG = 80;  // characters beyond which a value has a block of its own
const ROLES = ["system", "user", "assistant", "tool"];
const SPECIAL = /(<\|[^|<>\n]{1,40}\|>|<\/?(?:s|bos|eos|pad|unk|think|tool_call|tool_response|answer)>|\[\/?INST\])/;
const SHOWN = ["image", "video", "audio"];
const FILES = [...SHOWN, "html", "table", "histogram", "pointcloud", "object3d"];
const MARKS = { " ": "·", "\t": "→\t", "\n": "↵\n" };
let marked = false;  // white space is shown
let plain = false;  // special tokens are left out

/** Facts, texts and files of a sample of a run, some columns left out; `tools`: what changes how texts are shown. */
export function sampleView(run, sample, { without = [], tools = true } = {}) {
  const entries = Object.entries(sample).filter(([name, value]) => value !== null && value !== undefined && value !== "" && !without.includes(name));
  const isBlock = ([name, value]) => ["prompt", "completion", "truth", "error"].includes(name) || (typeof value === "string" && value.length > LONG) || isTalk(value) || references(value).length > 0;
  const facts = entries.filter((entry) => !isBlock(entry)).flatMap(([name, value]) => (isNumbers(value)
    ? Object.entries(value).map(([key, number]) => [`${name}/${key}`, number]) : [[name, value]]));
  const blocks = entries.filter(isBlock);
  const node = h("div", { class: "sample" });
  const draw = () => node.isConnected && document.querySelectorAll(".sample").forEach((one) => one.draw());
  node.draw = () => node.replaceChildren(
    ...(facts.length ? [h("dl", { class: "facts" }, facts.map(([name, value]) => [h("dt", {}, name), h("dd", {}, name === "timestamp" ? timeText(value) : typeof value === "number" ? numberText(value) : typeof value === "string" ? value : JSON.stringify(value))]))] : []),
    ...(blocks.length && tools ? [h("div", { class: "strip small" },
      choice("white space", marked, (on) => { marked = on; draw(); }), choice("without special tokens", plain, (on) => { plain = on; draw(); }))] : []),
    ...blocks.map(([name, value]) => h("section", { class: "part" }, h("h3", {}, name), isTalk(value) ? talk(run, value) : isFile(value) ? null : text(value), files(run, isTalk(value) ? null : value))));
  node.draw();
  return node;
}

function choice(name, on, change) {
  return h("label", { class: "control" }, h("input", { type: "checkbox", checked: on, onchange: (event) => change(event.target.checked) }), name);
}

function isNumbers(value) {
  return value !== null && typeof value === "object" && !Array.isArray(value) && Object.values(value).every((one) => typeof one === "number");
}

function isTalk(value) {
  return Array.isArray(value) && value.length > 0 && value.every((one) => one !== null && typeof one === "object" && "role" in one);
}

/** Kind and path of each file of the results that a value names. */
function references(value) {
  if (value === null || typeof value !== "object") return [];
  const entries = Object.entries(value);
  const [kind, path] = entries[0] ?? [];
  const one = entries.length === 1 && FILES.includes(kind) && typeof path === "string" && /(^|\/)samples\//.test(path);
  return one ? [[kind, path]] : entries.flatMap(([, part]) => references(part));
}

function isFile(value) {
  return references(value).length > 0 && typeof Object.values(value)[0] === "string";
}

function files(run, value) {
  return references(value).map(([kind, path]) => showFile(h("div", { class: SHOWN.includes(kind) ? "frame" : "" }), run, kind, path));
}

function text(value) {
  const whole = typeof value === "string" ? value : JSON.stringify(value, null, 2);
  return h("pre", { class: "said-by", tabIndex: 0 }, whole.split(SPECIAL).map((part, place) => place % 2
    ? !plain && h("span", { class: "special" }, part) : marked ? part.replace(/[ \t\n]/g, (mark) => MARKS[mark]) : part));
}

function talk(run, messages) {
  return h("div", { class: "talk" }, messages.map((message) => {
    const role = String(message.role);
    const content = Array.isArray(message.content)
      ? message.content.filter((part) => !references(part).length).map((part) => (typeof part?.text === "string" ? part.text : JSON.stringify(part))).join("\n") : message.content;
    const calls = (Array.isArray(message.tool_calls) ? message.tool_calls : []).map((call) => {
      const { name, arguments: given } = call?.function ?? call ?? {};
      return h("details", {}, h("summary", {}, `calls ${name ?? "a tool"}`), text(typeof given === "string" ? given : call));
    });
    const said = content === null || content === undefined || content === "" ? null : text(content);
    const thought = message.reasoning_content ?? message.reasoning;
    return h("section", { class: `turn ${ROLES.includes(role) ? role : ""}` }, h("h4", {}, role, message.name ? ` ${message.name}` : ""),
      typeof thought === "string" && thought !== "" ? h("details", {}, h("summary", {}, "reasoning"), text(thought)) : null,
      role === "tool" ? h("details", {}, h("summary", {}, "answer of the tool"), said) : said, files(run, message.content), calls);
  }));
}

/** Pieces of a word diff: [kind, text]. */
export function pieces(all) {
  const tags = { removed: "del", added: "ins" };
  return h("pre", { class: "said-by", tabIndex: 0 }, all.map(([kind, part]) => (tags[kind] ? h(tags[kind], {}, part) : part)));
}

/** A small curve of [step, value, …]. */
export function drawCurve(points) {
  const known = points.filter(([step, value]) => typeof step === "number" && typeof value === "number");
  if (!known.length) return h("p", { class: "dim" }, "no reward");
  const [xs, ys] = [known.map(([x]) => x), known.map(([, y]) => y)];
  const [left, right, low, high] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const place = ([x, y]) => `${(((x - left) / (right - left || 1)) * 592 + 4).toFixed(1)},${(76 - ((y - low) / (high - low || 1)) * 72).toFixed(1)}`;
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const set = (node, values) => { for (const [name, value] of Object.entries(values)) node.setAttribute(name, value); return node; };
  set(svg, { viewBox: "0 0 600 80", class: "small-curve", role: "img", "aria-label": `mean reward from ${numberText(low)} to ${numberText(high)}` });
  const make = (tag, values) => svg.append(set(document.createElementNS("http://www.w3.org/2000/svg", tag), values));
  make("polyline", { points: known.map(place).join(" "), fill: "none", stroke: "currentColor", "vector-effect": "non-scaling-stroke" });
  if (known.length < 60) for (const one of known) { const [x, y] = place(one).split(","); make("circle", { cx: x, cy: y, r: 2.5, fill: "currentColor" }); }
  return h("div", {}, svg, h("div", { class: "strip dim small" }, `step ${numberText(left)} to ${numberText(right)}, reward ${numberText(low)} to ${numberText(high)}`));
}

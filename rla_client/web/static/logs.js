// Texts of a run: the end, what came before, what comes now, and lines that hold a word.

import { ask, fileUrl } from "./api.js";
import { bytesText, fill, h } from "./dom.js";
import { repeat } from "./parts.js";

const FOLLOW_MS = 1500;
const MAX_CHARACTERS = 6_000_000;  // kept on the page; beyond, the end is shown anew
const FAR_BYTES = 1 << 20;  // so far behind, following jumps to the end
const FIRST = ["log.txt", "console.txt", "debug.log", "warn.txt", "backup.txt", "progress.csv"];
const TEXT = /\.(txt|log|csv|json|jsonl|yaml|yml|md)$/i;
const MARKED = /^(\[(WARN|ERROR)\]|Traceback|\w*(Error|Exception)\b)/;

export function logsTab({ path, body, signal, run, query, save }) {
  const view = h("div", { class: "log mono", tabIndex: 0, role: "region", "aria-label": "Text" });
  const files = h("select", { "aria-label": "File", onchange: () => { save({ file: files.value }); tail(); } });
  const follow = h("input", { type: "checkbox", checked: run().live });
  const words = h("input", { type: "search", placeholder: "search in the whole file", "aria-label": "Search in the whole file" });
  const state = h("span", { class: "dim" });
  const earlier = h("button", { type: "button", onclick: () => more("before") }, "Earlier");
  const later = h("button", { type: "button", onclick: () => more("after") }, "Later");
  const end = h("button", { type: "button", onclick: () => tail() }, "End");
  const hits = h("div", { class: "hits", hidden: true });
  const save_ = h("a", {}, "Save");
  let start = 0;
  let reached = 0;
  let size = 0;
  let held = 0;
  let asking = 0;

  const piece = (place) => ask("text", { run: path, kind: "log", path: files.value, ...place }, signal);
  function tellState(found) {
    size = found.size;
    earlier.disabled = start === 0;
    later.disabled = reached >= size;
    state.textContent = size ? `${bytesText(reached - start)} of ${bytesText(size)}` : "empty";
  }
  function put(found, where) {
    const added = lines(found.text);
    held += found.text.length;
    if (where === "before") {
      const from_end = view.scrollHeight - view.scrollTop;
      view.prepend(added);
      view.scrollTop = view.scrollHeight - from_end;
      start = found.start;
    } else {
      const at_end = view.scrollHeight - view.scrollTop - view.clientHeight < 30;
      view.append(added);
      reached = found.end;
      if (at_end) view.scrollTop = view.scrollHeight;
    }
    tellState(found);
  }
  async function anew(place) {
    const number = ++asking;
    save_.href = fileUrl("file", { run: path, kind: "log", path: files.value, save: "1" });
    const found = await piece(place);
    if (number !== asking) return null;
    fill(view);
    held = 0;
    ({ start } = found);
    put(found, "after");
    return found;
  }
  async function tail() {
    if (await anew({})) view.scrollTop = view.scrollHeight;
  }
  async function more(where) {
    if (held > MAX_CHARACTERS) { await anew(where === "before" ? { before: start } : { after: reached }); return; }
    const number = asking;
    const found = await piece(where === "before" ? { before: start } : { after: reached });
    if (number === asking) found.restarted ? await tail() : put(found, where);
  }
  async function grow() {
    if (!follow.checked || !files.value || reached < size) return;  // somebody reads what came before
    const number = asking;
    const found = await piece({ after: reached });
    if (number !== asking) return;
    if (found.restarted || held > MAX_CHARACTERS || found.size - reached > FAR_BYTES) await tail();
    else if (found.end > reached) put(found, "after");
    else tellState(found);
  }
  async function search(from = 0) {
    if (!words.value) { hits.hidden = true; return; }
    hits.hidden = false;
    if (!from) fill(hits, h("p", { class: "dim" }, "searching…"));
    const found = await ask("search", { run: path, kind: "log", path: files.value, text: words.value, from }, signal);
    if (!from) fill(hits, h("button", { type: "button", class: "small", onclick: () => { hits.hidden = true; } }, "Close"));
    hits.querySelector(".further")?.remove();
    hits.append(...found.hits.map(([offset, line]) => h("button", { type: "button", class: "hit mono", onclick: () => around(offset, line) }, line)));
    hits.append(h("div", { class: "further dim" }, found.next === null ? (hits.querySelector(".hit") ? "that is all" : "not found")
      : [`searched ${bytesText(found.next)} of ${bytesText(found.size)} `, h("button", { type: "button", onclick: () => search(found.next) }, "Search on")]));
  }
  async function around(offset, line) {
    follow.checked = false;
    if (!await anew({ around: offset })) return;
    const text = [...view.childNodes].find((node) => node.textContent.includes(line.trim()));
    const place = text?.textContent.indexOf(line.trim()) ?? -1;
    if (place < 0) return;
    const range = document.createRange();
    const leaf = text.nodeType === Node.TEXT_NODE ? text : text.firstChild;
    range.setStart(leaf, place);
    range.setEnd(leaf, place + line.trim().length);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    view.scrollTop += range.getBoundingClientRect().top - view.getBoundingClientRect().top - view.clientHeight / 3;
  }
  async function begin() {
    const found = await ask("files", { run: path, kind: "log" }, signal);
    const names = found.files.map(([name]) => name).filter((name) => TEXT.test(name) && !name.startsWith("tb/"));
    const place = (name) => (FIRST.includes(name) ? FIRST.indexOf(name) : FIRST.length);
    names.sort((a, b) => place(a) - place(b) || (a < b ? -1 : 1));
    if (!names.length) { fill(body, h("p", { class: "empty" }, "no texts")); return; }
    fill(files, names.map((name) => h("option", { value: name }, name)));
    files.value = names.includes(query.get("file")) ? query.get("file") : names[0];
    await tail();
  }
  fill(body,
    h("div", { class: "strip" }, h("label", {}, "File ", files), h("label", {}, follow, " follow"), earlier, later, end, state,
      h("form", { class: "strip push", onsubmit: (event) => { event.preventDefault(); search(); } }, words, h("button", {}, "Search")), save_),
    hits, view);
  begin();
  repeat(() => grow(), () => FOLLOW_MS, signal);
}

/** Text as nodes, warnings and errors marked; nothing of it is markup. */
function lines(text) {
  const made = document.createDocumentFragment();
  let plain = "";
  for (const line of text.split(/(?<=\n)/)) {
    if (!MARKED.test(line)) { plain += line; continue; }
    if (plain) made.append(plain);
    plain = "";
    made.append(h("span", { class: "marked" }, line));
  }
  if (plain) made.append(plain);
  return made;
}

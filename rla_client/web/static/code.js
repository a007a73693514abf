// Code of a run: its files, what was not committed when it began, and what differs from another run.

import { ask, fileUrl } from "./api.js";
import { bytesText, fill, h, put } from "./dom.js";
import { runLink } from "./frame.js";
import { coloured, isPython } from "./highlight.js";
import { runPicker, section, table } from "./parts.js";

const PARTS = { files: ["Files", filesPart], git: ["Not committed", gitPart], other: ["Differences from…", otherPart] };

export function codeTab({ path, body, signal, query, save }) {
  const area = h("div", {});
  const buttons = Object.entries(PARTS).map(([name, [title]]) => h("button", { type: "button", dataset: { name }, onclick: () => choose(name) }, title));
  function choose(name) {
    for (const button of buttons) {
      button.classList.toggle("on", button.dataset.name === name);
      button.setAttribute("aria-pressed", String(button.dataset.name === name));
    }
    save({ code: name === "files" ? "" : name });
    fill(area, h("p", { class: "dim" }, "reading…"));
    PARTS[name][1]({ path, area, signal, query, save });
  }
  fill(body, h("div", { class: "strip" }, buttons), area);
  choose(Object.hasOwn(PARTS, query.get("code")) ? query.get("code") : "files");
}

// -- files ------------------------------------------------------------------------------------------

async function filesPart({ path, area, signal, query, save }) {
  const found = await ask("files", { run: path, kind: "code" }, signal);
  if (!found.count) { fill(area, h("p", { class: "empty" }, "no code is stored with this run")); return; }
  const view = h("div", { class: "source" });
  const all = found.files.map(([name, size]) => ({ name, size, parts: name.split("/") }));
  const tree = h("nav", { class: "tree", "aria-label": "Files of the code" }, branch(all, 0),
    (found.cut || found.count > found.files.length) && h("p", { class: "bad" }, `the first ${found.files.length} of ${found.count} files`));
  function branch(files, depth) {
    const below = Map.groupBy(files.filter(({ parts }) => parts.length > depth + 1), ({ parts }) => parts[depth]);
    return [
      [...below].map(([folder, inside]) => h("details", { open: depth < 2 && found.count < 300 }, h("summary", {}, `${folder}/`), branch(inside, depth + 1))),
      files.filter(({ parts }) => parts.length === depth + 1).map(({ name, size, parts }) => (
        h("button", { type: "button", class: "leaf", dataset: { name }, title: bytesText(size), onclick: () => show(name) }, parts[depth]))),
    ];
  }
  function show(name) {
    for (const leaf of tree.querySelectorAll(".leaf")) leaf.classList.toggle("on", leaf.dataset.name === name);
    save({ path: name });
    showFile(view, path, name, signal);
  }
  fill(area, h("div", { class: "browser" }, tree, view));
  const names = found.files.map(([name]) => name);
  const first = names.includes(query.get("path")) ? query.get("path") : names.find((name) => name.endsWith(".py")) ?? names[0];
  if (first) show(first);
}

async function showFile(view, run, name, signal) {
  const numbers = h("pre", { class: "numbers", "aria-hidden": "true" });
  const lines = h("pre", { class: "lines", tabIndex: 0, "aria-label": name });
  const foot = h("div", {});
  let count = 0;
  async function load(after) {
    const found = await ask("text", { run, kind: "code", path: name, after }, signal);
    const own = found.text.split("\n").length - (found.text.endsWith("\n") ? 1 : 0);
    numbers.append(Array.from({ length: own }, (_, place) => `${count + place + 1}\n`).join(""));
    put(lines, isPython(name) ? coloured(found.text) : found.text);
    count += own;
    fill(foot, found.end < found.size && found.end > after && h("button", { type: "button", onclick: () => load(found.end) }, `More (${bytesText(found.size - found.end)})`));
  }
  fill(view, h("div", { class: "strip" }, h("b", { class: "mono" }, name), h("a", { href: fileUrl("file", { run, kind: "code", path: name, save: "1" }) }, "Save")),
    h("div", { class: "numbered" }, numbers, lines), foot);
  await load(0);
}

// -- differences ------------------------------------------------------------------------------------

async function gitPart({ path, area, signal }) {
  const { git, diff } = await ask("environment", { run: path }, signal);
  const states = { complete: "", pending: "the diff was not ready yet", cut: "the diff was too long and is cut" };
  fill(area,
    git.commit ? h("p", {}, "since commit ", h("code", {}, git.commit), git.branch ? ` of ${git.branch}` : "") : h("p", { class: "dim" }, "the project was in no git repository"),
    diff.state && states[diff.state] !== "" && h("p", { class: "warn" }, states[diff.state] ?? diff.state),
    diff.left_out?.length > 0 && h("p", { class: "dim" }, `left out, since they may hold secrets: ${diff.left_out.join(", ")}`),
    diff.lines.length ? diffView(diff) : git.commit && h("p", { class: "dim" }, "nothing was changed"));
}

async function otherPart({ path, area, signal, query, save }) {
  const result = h("div", {});
  async function compare(other) {
    save({ other });
    fill(result, h("p", { class: "dim" }, "comparing…"));
    const found = await ask("difference", { run: path, other }, signal);
    const pairs = Object.entries(found.sections).filter(([, rows]) => rows.length);
    fill(result, h("p", {}, "− this run, + ", h("a", { href: runLink(found.other) }, found.other)),
      pairs.map(([name, rows]) => section(name, table(["", "this run", "the other"], rows.map(([key, ...values]) => [key, ...values.map((value) => ({ class: "mono", node: String(value ?? "–") }))])))),
      section("code", found.without.length
        ? h("p", { class: "dim" }, `no code files: ${found.without.join(", ")}${found.archives.length ? "; it is in a launcher's archive, which `rla diff` compares" : ""}`)
        : found.lines.length ? diffView(found) : h("p", { class: "good" }, "equal")));
  }
  const again = (other) => compare(other).catch((error) => { fill(result); throw error; });
  fill(area, runPicker(path, "Compare with", again), result);
  if (query.get("other")) again(query.get("other"));
}

/** A unified diff, coloured by line, with a list of its files. */
function diffView({ lines, count }) {
  const view = h("pre", { class: "diff", tabIndex: 0, "aria-label": "Differences" });
  const heads = [];
  let inside = false;  // a hunk, where a line that begins with --- was taken out
  for (const [place, line] of lines.entries()) {
    const starts = line.startsWith("diff --git ") || (line.startsWith("--- ") && lines[place + 1]?.startsWith("+++ ")) || line.startsWith("files differ: ");
    if (line.startsWith("@@")) inside = true;
    else if (starts) inside = false;
    const kind = line.startsWith("@@") ? "hunk" : inside ? { "+": "plus", "-": "minus" }[line[0]] : "file";
    const node = h("span", { class: kind }, `${line}\n`);
    view.append(node);
    if (starts && !(line.startsWith("--- ") && heads.at(-1)?.git)) heads.push({ git: line.startsWith("diff --git"), node, name: fileName(line, lines[place + 1]) });
  }
  return [
    heads.length > 1 && h("details", { open: heads.length <= 20 }, h("summary", {}, `${heads.length} files`),
      heads.map(({ node, name }) => h("button", { type: "button", class: "leaf", onclick: () => node.scrollIntoView({ block: "start" }) }, name))),
    view, count > lines.length && h("p", { class: "bad" }, `the first ${lines.length} of ${count} lines`),
  ];
}

function fileName(line, next) {
  if (line.startsWith("--- ")) return line === "--- /dev/null" ? next.slice(4) : line.slice(4);
  return line.replace(/^(diff --git |files differ: )/, "").replace(/^a\/(.*) b\/\1$/, "$1");
}

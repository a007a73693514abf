// `#/run/<place>/<table>/<index>?tab=…`: one run; state and problems on top, the rest in tabs.

import { ask, fileUrl, offline } from "./api.js";
import { bytesText, durationText, fill, h, later, numberText, timeText } from "./dom.js";
import { remember, runLink, tell } from "./frame.js";
import { badge, copyButton, facts, follow, frame, refill, repeat, section, slider, stepsOf, table, trackedText } from "./parts.js";
import { codeTab } from "./code.js";
import { logsTab } from "./logs.js";
import { systemTab } from "./system.js";

const LIVE_MS = 3000;
const QUIET_MS = 15_000;
const MAX_SHOWN = 500;  // rows of a table of names and values
const MAX_CARDS = 60;  // pictures and films shown at once
const TABS = { overview: overviewTab, logs: logsTab, code: codeTab, media: mediaTab, checkpoints: checkpointsTab, system: systemTab };
const OFFLINE = ["overview", "media"];  // tabs of a file that needs no server
const HINTS = {
  waiting: "it waits for an agent: rla-agent start --detach",
  silent: "its process is gone and no agent runs to say how it ended: rla-agent start --detach",
  stalled: "its process lives, but no row has come for long",
  killed: "its process is gone without a word: killed, out of memory, or a crash of the machine",
};

export async function open(page, path, query) {
  const stop = new AbortController();
  const wanted = location.hash;
  let run = await ask("run", { run: path }, stop.signal);
  if (location.hash !== wanted) return null;  // another page was opened meanwhile
  let tab = null;
  let leaveTab = new AbortController();
  const head = Array.from({ length: 3 }, () => h("div", {}));
  const body = h("div", { id: "tab-body", role: "tabpanel", tabIndex: 0 });
  const names = Object.keys(TABS).filter((name) => !offline || OFFLINE.includes(name));
  const buttons = names.map((name) => h("button", {
    type: "button", role: "tab", id: `tab-${name}`, "aria-controls": "tab-body", onclick: () => choose(name), onkeydown: arrows,
  }, name[0].toUpperCase() + name.slice(1)));
  const leave = () => { stop.abort(); leaveTab.abort(); };
  const context = { path, signal: stop.signal, query, run: () => run, goTo: choose, leave,
    save: (values) => { for (const [name, value] of Object.entries(values)) value ? query.set(name, value) : query.delete(name); remember(query); } };
  const whole = h("div", { class: "runpage" }, head, h("div", { class: "tabs", role: "tablist", "aria-label": "Parts of the run" }, buttons), body);
  fill(page, whole);

  function arrows(event) {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    const next = (names.indexOf(event.target.id.slice(4)) + by + names.length) % names.length;
    choose(names[next]);
    buttons[next].focus();
  }
  function choose(name) {
    leaveTab.abort();
    leaveTab = new AbortController();
    const { signal } = leaveTab;
    buttons.forEach((button, place) => {
      const own = names[place] === name;
      button.setAttribute("aria-selected", String(own));
      button.tabIndex = own ? 0 : -1;
    });
    body.setAttribute("aria-labelledby", `tab-${name}`);
    whole.dataset.tab = name;
    context.save({ tab: name === "overview" ? "" : name });
    fill(body);
    tab = TABS[name]({ ...context, signal, body });
  }
  async function look() {
    run = await ask("run", { run: path }, stop.signal);
    showHead(head, run, context, look);
    tab?.update?.(run);
  }
  showHead(head, run, context, look);
  choose(names.includes(query.get("tab")) ? query.get("tab") : "overview");
  repeat(look, () => (run.live || run.state in HINTS ? LIVE_MS : QUIET_MS), stop.signal);
  return leave;
}

// -- the head: state, name, tags, what can be done ------------------------------------------------

function showHead([top, line, troubles], run, context, look) {
  const change = async (values) => {
    await ask("note", { run: run.path, ...values });
    await look();
  };
  const add = h("input", { placeholder: "+ tag", class: "online", "aria-label": "Add a tag", size: 8, onkeydown: (event) => {
    if (event.key === "Enter" && add.value.trim()) change({ add: add.value.trim().split(/[\s,]+/) });
  } });
  refill(top, [run.state, run.tags], () => h("div", { class: "strip" }, h("h1", {}, badge(run.state), " ", run.date),
      h("span", { class: "dim" }, run.table), run.tracked.length > 0 && h("span", { class: "mono" }, trackedText(run)),
      h("span", { class: "tags" }, run.tags.map((tag) => h("span", { class: "tag" }, tag, " ",
        h("button", { type: "button", class: "small online", "aria-label": `Take the tag ${tag} away`, onclick: () => change({ remove: [tag] }) }, "×"))), add),
      h("span", { class: "push" }), h("a", { href: `#/runs?run=${encodeURIComponent(run.path)}` }, "Curves"), " ", h("a", { href: `#/compare?run=${encodeURIComponent(run.path)}` }, "Files side by side"),
      h("button", { type: "button", class: "online", onclick: () => moveToTrash(top.parentElement, run, context.leave) }, "Move to trash…")));
  fill(line, h("div", { class: "strip" }, [
      ["step", numberText(run.step)], ["took", durationText(run.took)], ["began", timeText(run.opened)],
      [run.live ? "last row" : "ended", run.live ? ago(run.now, rowTime(run)) : timeText(run.about.closed ?? rowTime(run))],
      ["host", [run.about.user, run.host].filter(Boolean).join("@")], !run.live && ["rows", numberText(run.about.rows)],
    ].filter((pair) => pair && pair[1]).map(([name, value]) => h("span", {}, h("span", { class: "dim" }, `${name} `), value))));
  refill(troubles, [run.state, run.about.reason, run.problems, run.lost, run.traceback, run.state === "unknown" && run.now], () => trouble(run));
}

function trouble(run) {
  const lines = [run.about.reason, run.about.exit_code !== undefined && `exit code ${run.about.exit_code}`,
    run.about.signal !== undefined && `signal ${run.about.signal}`, HINTS[run.state],
    run.state === "unknown" && Number.isFinite(run.about.updated) && `not heard of for ${durationText(run.now - run.about.updated)}`].filter(Boolean);
  const bad = ["failed", "killed"].includes(run.state);
  return [
    run.state !== "finished" && lines.length > 0 && h("div", { class: `banner${bad ? " bad" : ""}`, role: bad ? "alert" : "status" },
      h("b", {}, lines.join("; ")), run.traceback && h("pre", { class: "trace", tabIndex: 0 }, run.traceback)),
    run.lost.length > 0 && h("div", { class: "banner bad" }, run.lost.map((line) => h("div", {}, line))),
    run.about.damaged_bytes > 0 && h("div", { class: "banner bad" }, `${bytesText(run.about.damaged_bytes)} of what it sent were damaged`),
    run.problems.map((problem) => h("div", { class: "banner" }, problem)),
  ];
}

/** When the newest row was written: progress.csv knows it sooner than run.json. */
function rowTime(run) {
  const told = new Map(run.metrics).get("timestamp");
  return typeof told === "number" ? told : run.about.last_row;
}

function ago(now, then) {
  return typeof then === "number" ? `${durationText(Math.max(0, Math.round(now - then)))} ago` : "";
}

async function moveToTrash(whole, run, leave) {
  const about = await ask("trash", { run: run.path });
  if (whole.querySelector("dialog")) return;  // clicked twice
  const lacking = about.lacking?.files ? `The master lacks ${about.lacking.files} of its files (${bytesText(about.lacking.bytes)}): not replicated yet. ` : "";
  const dialog = h("dialog", { "aria-label": "Move to trash" },
    h("p", {}, h("b", {}, `Move ${run.table}/${run.date} to the trash?`)),
    h("p", {}, `${about.items.join(", ")}: ${bytesText(about.bytes)}. ${lacking}It can come back for 7 days at least. A master keeps its copy.`),
    run.chain > 1 && h("p", {}, "It continues another run, which stays and will be listed again."),
    h("form", { method: "dialog", class: "strip" }, h("button", { value: "yes", class: "danger" }, "Move to trash"), h("button", { value: "no", autofocus: true }, "Keep it")));
  dialog.addEventListener("close", async () => {
    dialog.remove();
    if (dialog.returnValue !== "yes") return;
    const gone = await ask("trash", { run: run.path, sure: true });
    leave();  // nobody asks for it any more
    const undo = async () => { await ask("restore", gone); location.reload(); };
    fill(whole, h("div", { class: "banner", role: "status" }, h("b", {}, `${run.table}/${run.date} is in the trash. `),
      h("button", { type: "button", onclick: undo }, "Undo"), " ", h("a", { href: "#/runs" }, "All runs"),
      h("p", { class: "dim" }, `later: rla trash restore ${gone.entry}`)));
    tell("moved to the trash");
  });
  whole.append(dialog);
  dialog.showModal();
}

// -- overview ---------------------------------------------------------------------------------------

function overviewTab({ path, body, signal, run, goTo, query, save }) {
  const metrics = h("div", {});
  const story = h("div", {});
  const environment = h("div", {}, h("p", { class: "dim" }, "reading…"));
  const words = h("input", { type: "search", placeholder: "name or value", "aria-label": "Search in parameters and values", value: query.get("find") ?? "",
    oninput: later(() => { save({ find: words.value }); parameters(); update(run()); }, 120) });
  const listed = h("div", {});
  const fits = ([name, value]) => `${name} ${value}`.toLowerCase().includes(words.value.toLowerCase());
  const pairs = (all) => {
    const found = all.filter(fits);
    return [table(["name", "value"], found.slice(0, MAX_SHOWN).map(([name, value]) => [name, { class: "mono", node: typeof value === "number" ? numberText(value) : String(value) }])),
      found.length > MAX_SHOWN && h("p", { class: "dim" }, `${found.length - MAX_SHOWN} more; search for the one you want`),
      !found.length && h("p", { class: "dim" }, all.length ? "none fits" : "none")];
  };
  function parameters() {
    const now = run();
    fill(listed, pairs(now.parameters), now.parameter_count > now.parameters.length && h("p", { class: "dim" }, `of ${now.parameter_count} the first ${now.parameters.length}`));
  }
  function update(now) {
    fill(metrics, pairs(now.metrics.map(([name, value]) => [name, name === "timestamp" ? timeText(value) : value])));
    refill(story, [now.warnings, now.resumes, now.parents, now.children], () => [
      now.warnings.length > 0 && section("Last warnings and alerts", h("pre", { class: "warnings" }, now.warnings.join("\n")),
        h("button", { type: "button", onclick: () => { save({ file: "warn.txt" }); goTo("logs"); } }, "All of them")),
      now.resumes.length > 0 && section("Resumed with other parameters", table(["at step", "when", "parameter", "before", "then"], now.resumes.flatMap((one) =>
        Object.entries(one.changed).map(([name, values]) => [numberText(one.time_step), timeText(one.time), name, ...[0, 1].map((place) => show(values?.[place]))])))),
      (now.parents.length > 0 || now.children.length > 0) && section("Where it came from, and what came from it",
        table(["", "run", "at step", "state"], [
          ...now.parents.map((one) => [one.chain ? "continues" : "fork of", h("a", { href: runLink(one.path) }, one.index), numberText(one.step), ""]),
          ...now.children.map((one) => [one.chain ? "continued by" : "forked by", h("a", { href: runLink(one.path) }, one.index), "", badge(one.state)])]))]);
  }
  fill(body, h("div", { class: "strip" }, words), h("div", { class: "columns" },
    h("div", {}, section("Parameters", listed), story),
    h("div", {}, section("Last values", metrics)),
    h("div", {}, noteSection(path, run), section("Environment", environment))));
  parameters();
  update(run());
  ask("environment", { run: path }, signal).then((found) => fill(environment, environmentParts(found, run(), goTo, save)));
  return { update };
}

function show(value) {
  return value !== null && typeof value === "object" ? JSON.stringify(value) : numberText(value);
}

function noteSection(path, run) {
  const area = h("textarea", { rows: 3, "aria-label": "Note", readOnly: offline, oninput: () => { button.disabled = false; } });
  area.value = run().note;
  const button = h("button", { type: "button", class: "online", disabled: true, onclick: async () => {
    await ask("note", { run: path, note: area.value });
    button.disabled = true;
    tell("noted");
  } }, "Save note");
  return section("Note", area, button);
}

function environmentParts({ environment, git, diff, kinds }, run, goTo, save) {
  const { command, host, python, packages, environment: variables, code_backup: backup, ...rest } = environment;
  const text = Array.isArray(command) ? command.join(" ") : "";
  const other = ["format_version", "user"];
  return [
    facts({
      command: text && h("span", { class: "mono" }, text, " ", copyButton(text)),
      folder: rest.cwd, python: python && `${python.version} ${python.executable ?? ""}`, system: host?.system,
      cores: host && `${host.usable_cpus ?? host.cpus} of ${host.cpus}`, memory: bytesText(host?.memory_bytes),
      "git commit": git.commit && h("span", { class: "mono" }, git.commit, git.branch ? ` (${git.branch})` : "", " ", copyButton(git.commit)),
      "not committed": diff.count ? h("button", { type: "button", onclick: () => { save({ code: "git" }); goTo("code"); } }, `${diff.count} lines of diff`) : git.dirty === false ? "nothing" : diff.state,
      "code not copied": backup?.not_copied_count || "", config: run.about.config, "run id": run.about.run_id, database: run.database,
      client: run.about.versions?.client,
      ...Object.fromEntries(Object.entries(rest).filter(([name, value]) => !other.includes(name) && !["cwd", "code_root"].includes(name) && typeof value !== "object")),
    }),
    Object.keys(kinds).length > 0 && table(["on disk", "files", "size"], Object.entries(kinds).map(([kind, [size, count, cut]]) => [kind, `${cut ? "more than " : ""}${count}`, bytesText(size)])),
    details("Variables", variables), details("Packages", packages),
  ];
}

function details(title, values) {
  const pairs = Object.entries(values ?? {});
  return pairs.length > 0 && h("details", {}, h("summary", {}, `${title} (${pairs.length})`), table(["name", "value"], pairs.map(([name, value]) => [name, { class: "mono", node: show(value) }])));
}

// -- pictures and films -----------------------------------------------------------------------------

function mediaTab({ path, body, signal, run, query, save }) {
  const words = h("input", { type: "search", placeholder: "part of a name", "aria-label": "Names of files", value: query.get("name") ?? "", oninput: later(() => { save({ name: words.value }); build(); }, 150) });
  const grid = h("div", { class: "media" });
  const rest = h("div", {});
  let found = null;
  let shown = [];
  const all = slider([], (step) => shown.forEach((one) => one.move(step)), "Time-step of all files");
  let cost = 0;  // ms; a folder of 100,000 files is looked at less often
  async function load() {
    const begun = performance.now();
    const next = await ask("media", { run: path }, signal);
    cost = performance.now() - begun;
    if (found && next.count === found.count && JSON.stringify(next.groups) === JSON.stringify(found.groups)) return;
    found = next;
    build();
  }
  function build() {
    const groups = found.groups.filter((group) => group.name.toLowerCase().includes(words.value.toLowerCase()));
    all.change(stepsOf(groups));
    shown = groups.slice(0, MAX_CARDS).map(card);
    shown.forEach((one) => one.move(all.step()));
    fill(grid, shown.map((one) => one.node), !groups.length && h("p", { class: "empty" }, found.names ? "no name fits" : "no pictures, films or sounds yet"));
    fill(rest,
      groups.length > MAX_CARDS && h("p", { class: "dim" }, `${groups.length - MAX_CARDS} more names; say a part of the one you want`),
      found.names > found.groups.length && h("p", { class: "dim" }, `of ${found.names} names the first ${found.groups.length}`),
      found.cut && h("p", { class: "bad" }, `there are more than ${found.count} files; the others were not looked at`),
      found.passed > 0 && h("p", { class: "dim" }, `${found.passed} links, pipes or unreadable names are left out`),
      found.others.length > 0 && section(`Other files (${found.other_count})`, table(["name", "size", "time"], found.others.slice(0, MAX_SHOWN).map(([name, size, time]) => [fileLink(path, "results", name), bytesText(size), timeText(time)]))));
  }
  function card(group) {
    const one = frame(path, group);
    const steps = stepsOf([group]);
    const own = steps.length > 1 ? slider(steps, one.show, `Time-step of ${group.name}`) : null;
    return { node: h("div", {}, one.node, own?.node), move: (step) => { one.show(step); if (step !== undefined) own?.set(step); } };
  }
  fill(body, h("div", { class: "strip sticky" }, words, h("span", { class: "dim" }, "all:"), all.node,
    h("a", { href: `#/compare?run=${encodeURIComponent(path)}` }, "Side by side with other runs")), grid, rest);
  follow(load, run, () => Math.max(2 * LIVE_MS, 50 * cost), signal);
}

function fileLink(path, kind, name) {
  return h("a", { href: fileUrl("file", { run: path, kind, path: name }), target: "_blank", rel: "noopener noreferrer" }, name);
}

// -- checkpoints ------------------------------------------------------------------------------------

function checkpointsTab({ path, body, signal, run }) {
  async function load() {
    const found = await ask("checkpoints", { run: path }, signal);
    fill(body, found.count ? [
      h("p", { class: "dim" }, `${found.count} files, ${bytesText(found.bytes)}${found.cut ? "; there are more" : ""}${found.count > found.files.length ? `; the last ${found.files.length} are shown` : ""}`),
      table(["time-step", "file", "size", "time", "where"], found.files.toReversed().map(([name, size, time, step, where]) => [
        numberText(step), where === "here" ? h("a", { href: fileUrl("file", { run: path, kind: "checkpoint", path: name, save: "1" }) }, name) : name, size === null ? "" : bytesText(size), time === null ? "" : timeText(time),
        where === "here" ? "here" : h("span", { class: "warn", title: "fetched when it is loaded" }, `on the master alone: ${where}`)])),
    ] : h("p", { class: "empty" }, "no checkpoints"));
  }
  follow(load, run, () => 2 * LIVE_MS, signal);
}

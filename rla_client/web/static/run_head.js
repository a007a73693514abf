// The head of a run's page: its state, name, tags, what went wrong, what can be done with it.

import { ask } from "./api.js";
import { bytesText, durationText, fill, h, numberText, timeText } from "./dom.js";
import { tell } from "./frame.js";
import { rename } from "./run_actions.js";
import { badge, refill, trackedText } from "./parts.js";

export const HINTS = {
  waiting: "it waits for an agent: rla-agent start --detach",
  silent: "its process is gone and no agent runs to say how it ended: rla-agent start --detach",
  stalled: "its process lives, but no row has come for long",
  killed: "its process is gone without a word: killed, out of memory, or a crash of the machine",
};

/** Show the head in three nodes; `look` asks for the run again. */
export function showHead([top, line, troubles], run, context, look) {
  const change = async (values) => {
    await ask("note", { run: run.path, ...values });
    await look();
  };
  const add = h("input", { placeholder: "+ tag", class: "online", "aria-label": "Add a tag", size: 8, onkeydown: (event) => {
    if (event.key === "Enter" && add.value.trim()) change({ add: add.value.split(",").map((tag) => tag.trim()).filter(Boolean) });
  } });
  const named = run.display_name || trackedText(run);
  refill(top, [run.state, run.tags, run.display_name], () => h("div", { class: "strip" }, h("h1", {}, badge(run.state), " ", named || run.date),
      h("button", { type: "button", class: "small online", onclick: () => rename(run, named, look) }, "Rename…"),
      named && h("span", { class: "mono" }, run.date), h("span", { class: "dim" }, run.table), run.display_name && h("span", { class: "mono" }, trackedText(run)),
      h("span", { class: "tags" }, run.tags.map((tag) => h("span", { class: "tag" }, tag, " ",
        h("button", { type: "button", class: "small online", "aria-label": `Take the tag ${tag} away`, onclick: () => change({ remove: [tag] }) }, "×"))), add),
      h("span", { class: "push" }), h("a", { href: `#/runs?run=${encodeURIComponent(run.path)}` }, "Curves"), " ", h("a", { href: `#/compare?run=${encodeURIComponent(run.path)}` }, "Files side by side"),
      h("button", { type: "button", class: "online", onclick: () => moveToTrash(top.parentElement, run, context.leave) }, "Move to trash…")));
  fill(line, h("div", { class: "strip" }, [
      ["step", numberText(run.step)], ["took", durationText(run.took)], ["began", timeText(run.opened)],
      [run.live ? "last row" : "ended", run.live ? ago(run.now, rowTime(run)) : timeText(run.about.closed ?? rowTime(run))],
      ["host", [run.about.user, run.host].filter(Boolean).join("@")], !run.live && ["rows", numberText(run.about.rows)], ["machines", run.parts],
      ...run.facts.map(([name, kind, value]) => [name, kind === "moment" ? timeText(value) : kind === "number" ? numberText(value) : value]),
    ].filter((pair) => pair && pair[1]).map(([name, value]) => h("span", {}, h("span", { class: "dim" }, `${name} `), value))));
  refill(troubles, [run.state, run.about.reason, run.problems, run.lost, run.traceback, run.state === "unknown" && run.now], () => trouble(run));
}

function trouble(run) {
  const { reason = "", exit_code: code, signal } = run.about;
  const lines = [reason, code !== undefined && !reason.includes(`exit code ${code}`) && `exit code ${code}`,
    signal !== undefined && !reason.includes("killed by ") && `signal ${signal}`, HINTS[run.state],
    run.state === "unknown" && Number.isFinite(run.about.updated) && `not heard of for ${durationText(run.now - run.about.updated)}`].filter(Boolean);
  const bad = ["failed", "killed"].includes(run.state);
  return [
    run.state !== "finished" && lines.length > 0 && h("div", { class: `banner${bad ? " bad" : ""}`, role: bad ? "alert" : "status" },
      h("b", {}, lines.join("; ")), run.traceback && h("pre", { class: "trace", tabIndex: 0 }, run.traceback)),
    run.lost.length > 0 && h("div", { class: "banner bad lost", tabindex: "0", role: "region", "aria-label": "Lost" }, run.lost.map((line) => h("div", {}, line))),
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

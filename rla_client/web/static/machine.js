// `#/machine`: the agent of this machine, what needs attention, and all machines that send to the same master.

import { ask } from "./api.js";
import { bytesText, durationText, fill, h, numberText, timeText, whenFree } from "./dom.js";
import { runLink } from "./frame.js";
import { badge, copyButton, facts, repeat, section, table } from "./parts.js";

const LOOK_MS = 4000;
const FLEET_MS = 60_000;
const SILENT_S = 120;  // a machine writes each 30 s while it has something to say

export async function open(page) {
  const stop = new AbortController();
  const here = h("div", {});
  const fleet = h("div", {});
  fill(page, h("div", { class: "runpage" }, h("h1", {}, "This machine"), here, h("h1", {}, "All machines"), fleet));
  fill(here, h("p", { class: "dim" }, "asking the agent…"));
  const look = async () => {
    const told = await ask("status", {}, stop.signal);
    whenFree(here, () => showStatus(here, told));
  };
  let network = false;
  const lookAtFleet = async (now = false) => {
    const told = await ask("fleet", { network, now }, stop.signal);
    whenFree(fleet, () => showFleet(fleet, told, () => { network = true; return lookAtFleet(true); }));
  };
  lookAtFleet();
  repeat(lookAtFleet, () => FLEET_MS, stop.signal);
  look().finally(() => repeat(look, () => LOOK_MS, stop.signal));
  return () => stop.abort();
}

function showStatus(node, { status, error, databases }) {
  if (!status) {
    fill(node, h("div", { class: "banner bad", role: "alert" }, h("b", {}, "The agent cannot be asked."), h("pre", {}, error ?? "")));
    return;
  }
  const open = new Set([...node.querySelectorAll("details[open]")].map((one) => one.dataset.name));
  const agent = status.agent ?? {};
  const spool = status.spool ?? {};
  const replication = status.replication ?? {};
  const streams = (status.volumes ?? []).flatMap((volume) => volume.streams ?? []);
  const parked = streams.filter((stream) => stream.parked);
  const more = (name, title, content) => h("details", { dataset: { name }, open: open.has(name) }, h("summary", {}, title), content);
  fill(node,
    h("div", { class: "cards" },
      card("Agent", h("span", { class: `state ${agent.pid ? "running" : "failed"}` }, agent.state), agent.pid
        ? `pid ${agent.pid}, version ${agent.version}, up ${durationText(agent.uptime_s)}${agent.service ? `, ${agent.service} service` : ""}` : "rows wait in the spool until one is started"),
      card("Lag", bytesText(spool.lag_bytes), `not durable yet; the last commit took ${Number((status.commit_lag_s ?? 0).toFixed(3))} s`),
      card("Spool", bytesText(spool.bytes), spool.max_bytes ? `of at most ${bytesText(spool.max_bytes)}` : "", spool.max_bytes ? spool.bytes / spool.max_bytes : 0),
      card("Streams", String(streams.length), parked.length ? `${parked.length} wait` : "none waits", 0, parked.length > 0),
      card("Master", masterText(replication), replication.targets?.length ? `${backlogText(replication.targets)} to go` : "nothing is sent from here", 0, replication.parked_files > 0)),
    problems(status),
    section("Runs", status.runs?.length ? runsTable(status.runs, databases) : h("p", { class: "dim" }, "no runs yet")),
    parked.length > 0 && section("Streams that wait", table(["stream", "run", "why", "lag"],
      parked.map((one) => [one.stream, one.run, one.parked, bytesText(one.lag_bytes)]))),
    replication.targets?.length > 0 && section("To the master", targets(replication)),
    replication.parked?.length > 0 && section(`Parked files (${replication.parked_files})`, table(["path", "why", "what to do"],
      replication.parked.map((one) => [one.path, one.reason, one.fix]))),
    status.alerts?.recent?.length > 0 && section("Alerts", table(["time", "event", "title"],
      status.alerts.recent.map((one) => [timeText(one.time), one.event, one.title]))),
    more("volumes", "File systems", table(["name", "commit", "streams", "open files", "waiting", "roots"], (status.volumes ?? []).map((one) =>
      [one.name, `${Number(one.commit_s.toFixed(3))} s`, String(one.streams?.length ?? 0), String(one.open_files), bytesText(one.queued_bytes), (one.roots ?? []).join(" ")]))),
    more("settings", "Settings and places", facts({ "state folder": agent.state_dir, "runtime folder": agent.runtime_dir, spool: spool.folder,
      ...Object.fromEntries(Object.entries(status.settings ?? {}).map(([name, one]) => [name, `${one.value} (${one.source})`])) })));
}

function card(title, value, detail, share = 0, bad = false) {
  return h("div", { class: `card${bad ? " bad" : ""}` }, h("div", { class: "dim" }, title), h("div", { class: "big" }, value),
    h("div", { class: "dim" }, detail), share > 0 && h("meter", { min: "0", max: "1", high: "0.8", value: String(Math.min(1, share)), "aria-label": title }));
}

function problems(status) {
  if (!status.problems?.length) return h("p", { class: "good" }, "✓ nothing needs attention");
  return h("section", { class: "part", role: "alert" }, h("h2", { class: "bad" }, "Needs attention"),
    h("ul", { class: "problems" }, status.problems.map((one) => h("li", {}, h("div", {}, one.what),
      one.fix && h("div", { class: "fix" }, "→ ", h("code", {}, one.fix), " ", copyButton(one.fix))))));
}

function runsTable(runs, databases) {
  const sorted = [...runs].sort((a, b) => Number(b.live) - Number(a.live) || b.opened - a.opened);
  return table(["run", "state", "time-step", "rows", "rows/s", "silent", "lag", "lost"], sorted.map((run) => {
    const place = databases.indexOf(run.root);
    const name = `${run.table}/${run.index}`;
    return [place >= 0 && run.table ? h("a", { href: runLink(`${place}/${name}`) }, name) : run.table ? name : run.root,
      h("span", { title: run.reason || null }, badge(run.state)), numberText(run.time_step), String(run.rows),
      run.live ? numberText(run.rows_per_s) : "", run.live ? durationText(Math.round(run.silent_s)) : "", bytesText(run.lag_bytes),
      { class: run.lost || run.lost_others ? "bad" : "", node: [run.lost ?? 0, run.lost_others].filter((count, at) => !at || count).join(" + ") }];
  }));
}

function masterText({ targets: all, paused }) {
  if (!all?.length) return "none";
  return paused ? "paused" : (all.find((one) => one.health !== "ok") ?? all[0]).health;
}

function backlogText(targets) {
  const parts = targets.flatMap((one) => Object.values(one.backlog ?? {}));
  const sum = (name) => parts.reduce((total, one) => total + (Number(one?.[name]) || 0), 0);
  return `${sum("files")} files, ${bytesText(sum("bytes"))}`;
}

function targets(replication) {
  return table(["database", "master", "health", "to go", "rate", "done in", "last success", "what to do"], replication.targets.map((one) => [
    one.data_root, one.target, { class: one.health === "ok" ? "good" : "bad", node: `${one.health} ${one.reason ?? ""}` }, backlogText([one]),
    one.rate_bytes_s ? `${bytesText(one.rate_bytes_s)}/s` : "", durationText(one.eta_s), timeText(one.last_success), one.fix ?? ""]));
}

function showFleet(node, { machines, error, age_s: age }, askNow) {
  const button = h("button", { type: "button", onclick: async () => { button.disabled = true; button.textContent = "asking…"; await askNow(); } }, "Ask the master now");
  const rows = machines.map((one) => {
    const files = one.backlog?.files;
    return [h("b", {}, one.host), { class: one.age_s > SILENT_S && one.runs.length ? "bad" : "", node: `${durationText(Math.round(one.age_s))} ago` }, one.version,
      typeof files === "number" ? `${files} files, ${bytesText(one.backlog.bytes)}` : "", runsOf(one), one.master];
  });
  fill(node,
    machines.length ? table(["machine", "reported", "version", "waiting", "live runs", "master"], rows)
      : h("p", { class: "dim" }, "These databases hold no machine's status. On the master, open its data root; on other machines, use the button to ask the master."),
    h("p", {}, button, " ", age !== undefined && h("span", { class: "dim" }, `asked ${durationText(Math.round(age))} ago; again each minute while this page is open`)),
    error && h("pre", { class: "bad" }, error));
}

function runsOf(machine) {
  if (!machine.runs.length) return "none";
  return h("details", {}, h("summary", {}, String(machine.runs.length)), machine.runs.map((run) =>
    h("div", {}, badge(String(run.state ?? "")), ` ${numberText(run.time_step)} `, h("span", { class: "mono" }, String(run.item ?? "")))));
}

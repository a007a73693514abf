// `#/run/<place>/<table>/<index>?tab=…`: one run; state and problems on top, the rest in tabs.

import { ask, offline } from "./api.js";
import { fill, h } from "./dom.js";
import { remember } from "./frame.js";
import { repeat } from "./parts.js";
import { codeTab } from "./code.js";
import { logsTab } from "./logs.js";
import { checkpointsTab } from "./run_checkpoints.js";
import { HINTS, showHead } from "./run_head.js";
import { mediaTab } from "./run_media.js";
import { overviewTab } from "./run_overview.js";
import { tablesTab } from "./run_tables.js";
import { samplesTab } from "./samples.js";
import { systemTab } from "./system.js";

const LIVE_MS = 3000;
const QUIET_MS = 15_000;
const TABS = { overview: overviewTab, samples: samplesTab, media: mediaTab, tables: tablesTab, logs: logsTab, code: codeTab, checkpoints: checkpointsTab, system: systemTab };
const OFFLINE = ["overview", "media"];  // tabs of a file that needs no server

/** Open the page; returns what closes it. */
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

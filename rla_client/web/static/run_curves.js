// The curves of one run, in the panels of the page of runs.

import { Colours } from "./colours.js";
import { CurveTools } from "./curve_tools.js";
import { h } from "./dom.js";
import { showCommand } from "./command_dialog.js";
import { Panels } from "./panels.js";
import { DRAWN_ANEW, KEPT_OF_A_RUN, putView, readView } from "./view.js";

/** What the panels of one run stand in; see `Panels` for what they ask of it. */
export class RunCurves {
  /** `run`: the answer of `web/run_overview.py`; `query`, `save`: of its page; `onPoint(step)`: of a click, or null. */
  constructor(run, query, save, onPoint) {
    this.onPoint = onPoint;
    this.row = { number: run.number, path: run.path };
    this.store = { boot: run.boot, version: run.version, rows: new Map([[run.number, this.row]]) };
    this.run = run;
    this.query = query;
    this.save = save;
    this.settings = { ...readView(query), tab: "curves" };
    this.colours = new Colours("rla-colours");
    this.groupColours = this.colours;
    this.group = null;
    this.curveTools = new CurveTools(this);
    this.panels = new Panels(this);
    this.node = h("div", {}, h("div", { class: "bar tools", dataset: { tab: "curves" } }, h("span", { class: "of-curves" }, this.curveTools.nodes)), this.panels.node);
    this.panels.ask();
  }

  drawn() { return this.run.number < 0 ? [] : [this.row]; }

  likely() { return this.run.likely; }

  label() { return this.run.display_name || this.run.date; }

  described() { return { whole: false, where: "", logY: this.settings.logY }; }

  /** Later news of the run. */
  update(run) { this.run = run; this.curveTools.know(run.metrics.map(([name]) => name)); }

  remember() {
    putView(this.query, this.settings, KEPT_OF_A_RUN);
    this.save({});
  }

  set(changes) {
    Object.assign(this.settings, "x" in changes || "logX" in changes ? { zoom: null } : {}, changes);
    this.curveTools.update(false);
    this.remember();
    if ("ranks" in changes) this.panels.ask();
    else if (DRAWN_ANEW.some((name) => name in changes)) this.panels.change();
    else if ("size" in changes) this.panels.resize();
    else this.panels.layout();
  }

  /** The server has a later version of the list of runs: this one may have more metrics. */
  changed(version) {
    this.store.version = version;
    return this.panels.learn();
  }

  choose() { /* there is one */ }

  onHover() { /* there is no list */ }

  showCommand(text) { showCommand(text); }

  recolour() { this.panels.recolour(); }

  close() { this.panels.close(); }
}

// What a run's processes used over time: small charts that share their cursor and their zoom.

import { ask } from "./api.js";
import { Chart, style } from "./chart.js";
import { bytesText, fill, h, later, numberText } from "./dom.js";
import { follow } from "./parts.js";

const LOOK_MS = 5000;
const HEIGHT = 130;
const POWERS = Array.from({ length: 50 }, (_, power) => 2 ** power);  // where bytes are round
const percent = (value) => `${numberText(Number(value.toFixed(1)))} %`;
const rate = (value) => `${bytesText(Math.round(value))}/s`;
const CHARTS = [  // title, column, how a value is written; true: of a count so far the change per second
  ["CPU (100 % is one core)", "cpu_percent", percent],
  ["Memory", "rss_bytes", bytesText],
  ["GPU", "gpu_percent", percent],
  ["GPU memory", "gpu_memory_bytes", bytesText],
  ["Disk, read", "read_bytes", rate, true],
  ["Disk, written", "written_bytes", rate, true],
  ["Network of the machine, sent", "net_sent_bytes", rate, true],
  ["Network of the machine, received", "net_received_bytes", rate, true],
  ["Disk in use", "disk_used_percent", percent],
  ["Threads", "threads", numberText],
  ["Processes", "processes", numberText],
];

/** Fill the tab. */
export function systemTab(context) {
  const grid = h("div", { class: "charts" });
  fill(context.body, grid);
  systemCharts(context, grid, (count) => { if (!count) fill(grid, h("p", { class: "empty" }, "nothing was sampled (AGENT.sample_interval_s)")); });
}

/** Draw a run's charts into a grid, and follow it while it lives; onBuilt(how many) when they are made. */
export function systemCharts({ path, signal, run }, grid, onBuilt) {
  let charts = [];
  let columns = {};
  let range = null;
  async function load() {
    ({ columns } = await ask("system", { run: path }, signal));
    const fitting = CHARTS.filter(([, name]) => columns[name]);
    if (fitting.length === charts.length && charts.length) charts.forEach((chart, at) => chart.update(data(fitting[at])));
    else build();
  }
  function data([, name, , grows]) {
    const time = columns.timestamp;
    const cells = columns[name];
    return [time, grows ? cells.map((value, place) => {
      const span = time[place] - time[place - 1];
      return place && value !== null && cells[place - 1] !== null && span > 0 ? Math.max(0, (value - cells[place - 1]) / span) : null;
    }) : cells];
  }
  function build() {
    for (const chart of charts) chart.close();
    const shown = CHARTS.filter(([, name]) => columns[name]);
    fill(grid);
    onBuilt(shown.length);
    const boxes = shown.map(([title]) => {
      const box = h("div", { class: "plot" });
      grid.append(h("div", { class: "chart", role: "img", "aria-label": title }, h("h2", {}, title), box));
      return box;
    });
    charts = shown.map((chart, at) => {  // once all are in their places: before that one has another width
      const [title, , yText] = chart;
      return new Chart(boxes[at], {
        width: boxes[at].clientWidth || 380, height: HEIGHT, x: "timestamp", sync: "system", yText, range, onZoom: (asked) => { range = asked; build(); },
        yRange: (low, high) => [Math.min(0, low), high > 0 ? high * 1.05 : 1], incrs: yText === bytesText || yText === rate ? POWERS : undefined,
      }, [{ label: title, colour: style("--accent") }], data(chart));
    });
  }
  const resized = later(() => charts.forEach((chart) => chart.resize(chart.plot.root.parentElement.clientWidth, HEIGHT)), 100);
  window.addEventListener("resize", resized, { signal });
  window.addEventListener("themechange", build, { signal });
  signal.addEventListener("abort", () => charts.forEach((chart) => chart.close()));
  follow(load, run, () => LOOK_MS, signal);
}

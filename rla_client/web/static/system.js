// What a run's processes used over time: small charts that share their cursor.

import uPlot from "./vendor/uPlot.esm.js";
import { ask } from "./api.js";
import { bytesText, fill, h, later, numberText, timeText } from "./dom.js";
import { complain } from "./main.js";
import { repeat } from "./parts.js";

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

export function systemTab({ path, body, signal, run }) {
  const grid = h("div", { class: "charts" });
  let plots = [];
  let columns = {};
  fill(body, grid);
  async function load() {
    ({ columns } = await ask("system", { run: path }, signal));
    const fitting = CHARTS.filter(([, name]) => columns[name]);
    if (fitting.length === plots.length && plots.length) plots.forEach((one) => one.plot.setData(data(one.chart)));
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
    for (const one of plots) one.plot.destroy();
    const shown = CHARTS.filter(([, name]) => columns[name]);
    const span = columns.timestamp ? columns.timestamp.at(-1) - columns.timestamp[0] : 0;
    const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    fill(grid, !shown.length && h("p", { class: "empty" }, "nothing was sampled (AGENT.sample_interval_s)"));
    plots = shown.map((chart) => {
      const [title, , write] = chart;
      const node = h("div", { class: "chart", role: "img", "aria-label": title });
      grid.append(node);
      const axis = { stroke: colour("--dim"), grid: { stroke: colour("--grid"), width: 1 }, ticks: { stroke: colour("--grid") } };
      const plot = new uPlot({
        title, width: node.clientWidth || 380, height: HEIGHT, cursor: { sync: { key: "system" }, y: false },
        scales: { y: { range: (_, low, high) => [Math.min(0, low), high > 0 ? high * 1.05 : 1] } },
        axes: [{ ...axis, space: 90, values: (_, ticks) => ticks.map((tick) => timeText(tick).slice(...(span > 86400 ? [5, 16] : [11]))) },
          { ...axis, size: 82, incrs: write === bytesText || write === rate ? POWERS : undefined, values: (_, ticks) => ticks.map(write) }],
        series: [{ label: "time", value: (_, time) => (time === null ? "–" : timeText(time)) }, { label: "", stroke: colour("--accent"), width: 1.5, points: { show: false }, spanGaps: true, value: (_, value) => (value === null ? "–" : write(value)) }],
      }, data(chart), node);
      return { chart, plot, node };
    });
  }
  const resized = later(() => plots.forEach(({ plot, node }) => plot.setSize({ width: node.clientWidth, height: HEIGHT })), 100);
  window.addEventListener("resize", resized, { signal });
  window.addEventListener("themechange", build, { signal });
  signal.addEventListener("abort", () => plots.forEach(({ plot }) => plot.destroy()));
  load().catch(complain);
  repeat(() => (run().live ? load().catch(complain) : null), () => LOOK_MS, signal);
}

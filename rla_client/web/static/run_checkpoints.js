// The checkpoints of a run, and where they are.

import { ask, fileUrl } from "./api.js";
import { bytesText, fill, h, numberText, timeText } from "./dom.js";
import { follow, table } from "./parts.js";

const PAUSE_MS = 6000;

/** Fill the tab. */
export function checkpointsTab({ path, body, signal, run }) {
  async function load() {
    const found = await ask("checkpoints", { run: path }, signal);
    fill(body, found.count ? [
      h("p", { class: "dim" }, `${found.count} files, ${bytesText(found.bytes)}${found.cut ? "; there are more" : ""}${found.count > found.files.length ? `; the last ${found.files.length} are shown` : ""}`),
      table(["time-step", "file", "size", "time", "where"], found.files.toReversed().map(([name, size, time, step, where]) => [
        numberText(step), where === "here" ? h("a", { href: fileUrl("file", { run: path, kind: "checkpoint", path: name, save: "1" }) }, name) : name, size === null ? "" : bytesText(size), time === null ? "" : timeText(time),
        /^(here|not whole|noted)(:|$)/.test(where) ? where : h("span", { class: "warn", title: "fetched when it is loaded" }, `on the master alone: ${where}`)])),
    ] : h("p", { class: "empty" }, "no checkpoints"));
  }
  follow(load, run, () => PAUSE_MS, signal);
}

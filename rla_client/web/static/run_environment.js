// What a run was started with: its command, machine, packages, the state of its code.

import { ask } from "./api.js";
import { bytesText, fill, h, numberText } from "./dom.js";
import { copyButton, facts, table } from "./parts.js";

const OTHER = ["format_version", "user", "cwd", "code_root"];  // shown in another place

/** The environment of a run, asked for once. */
export function environmentOf({ path, signal, run, goTo, save }) {
  const node = h("div", {}, h("p", { class: "dim" }, "reading…"));
  ask("environment", { run: path }, signal).then((found) => fill(node, parts(found, run(), goTo, save)));
  return node;
}

function parts({ environment, git, diff, kinds }, run, goTo, save) {
  const { command, host, python, packages, environment: variables, code_backup: backup, ...rest } = environment;
  const text = Array.isArray(command) ? command.join(" ") : "";
  return [
    facts({
      command: text && h("span", { class: "mono" }, text, " ", copyButton(text)),
      folder: rest.cwd, python: python && `${python.version} ${python.executable ?? ""}`, system: host?.system,
      cores: host && `${host.usable_cpus ?? host.cpus} of ${host.cpus}`, memory: bytesText(host?.memory_bytes),
      "git commit": git.commit && h("span", { class: "mono" }, git.commit, git.branch ? ` (${git.branch})` : "", " ", copyButton(git.commit)),
      "not committed": diff.count ? h("button", { type: "button", onclick: () => { save({ code: "git" }); goTo("code"); } }, `${diff.count} lines of diff`) : git.dirty === false ? "nothing" : diff.state,
      "code not copied": backup?.not_copied_count || "", config: run.about.config, "run id": run.about.run_id, database: run.database,
      client: run.about.versions?.client,
      ...Object.fromEntries(Object.entries(rest).filter(([name, value]) => !OTHER.includes(name) && typeof value !== "object")),
    }),
    Object.keys(kinds).length > 0 && table(["on disk", "files", "size"], Object.entries(kinds).map(([kind, [size, count, cut]]) => [kind, `${cut ? "more than " : ""}${count}`, bytesText(size)])),
    details("Variables", variables), details("Packages", packages),
  ];
}

function details(title, values) {
  const pairs = Object.entries(values ?? {});
  return pairs.length > 0 && h("details", {}, h("summary", {}, `${title} (${pairs.length})`), table(["name", "value"], pairs.map(([name, value]) => [name, { class: "mono", node: plainText(value) }])));
}

/** A recorded value as text. */
export function plainText(value) {
  return value !== null && typeof value === "object" ? JSON.stringify(value) : numberText(value);
}

// What can be done with runs of the list: name them, tag them, put them away, draw them or not.

import { ask } from "./api.js";
import { dialog, fill, h } from "./dom.js";
import { tell } from "./frame.js";
import { openMenu } from "./menu.js";
import { ARCHIVED } from "./store.js";


/** Change tags, note or name of each of some runs, one after the other (the database is held for each); what fails is told at the end. */
async function change(rows, values) {
  const failed = [];
  for (const row of rows) {
    try { await ask("note", { run: row.path, ...values }); } catch (error) { failed.push(error); }
  }
  tell(failed.length ? `${failed.length} of ${rows.length} runs could not be changed: ${failed[0].message}` : "", failed.length > 0);
}

/** Ask for a new name of a run. */
export function rename(row, shownName, done) {
  const field = h("input", { class: "broad", maxlength: "200", value: row.display_name ?? "", placeholder: shownName, "aria-label": "Name of the run", autofocus: true });
  const box = dialog("Name of the run", h("form", { class: "strip", onsubmit: async (event) => {
    event.preventDefault();
    box.close();
    await change([row], { display_name: field.value.trim() });
    await done();
  } }, field, h("button", {}, "Rename")), h("p", { class: "dim" }, "Shown beside the index, which does not change. Leave it empty to remove the name."));
}

/** Add tags to runs, or take them away. */
export function editTags(rows, done) {
  const field = h("input", { class: "broad", placeholder: "a tag, or several with commas", "aria-label": "Tags to add", autofocus: true });
  const listed = h("div", { class: "tags" });
  const turn = async (values) => { await change(rows, values); box.close(); await done(); };
  const known = [...new Set(rows.flatMap((row) => row.tags))].sort();
  fill(listed, known.map((tag) => h("span", { class: "tag" }, tag, " ", h("button", { type: "button", class: "small", "aria-label": `Take the tag ${tag} away`, onclick: () => turn({ remove: [tag] }) }, "×"))));
  const box = dialog(rows.length === 1 ? "Tags of the run" : `Tags of ${rows.length} runs`, listed, h("form", { class: "strip", onsubmit: (event) => {
    event.preventDefault();
    const add = field.value.split(",").map((tag) => tag.trim()).filter(Boolean);
    if (add.length) turn({ add });
  } }, field, h("button", {}, "Add")));
}

/** Put runs away, or bring them back. */
export async function archive(rows, away, done) {
  await change(rows, away ? { add: [ARCHIVED] } : { remove: [ARCHIVED] });
  await done();
}

/** Open the menu of what can be done with some runs of a view. */
export function openActions(button, label, view, rows) {
  const [first] = rows;
  const all = (set) => rows.every((row) => set.has(row.number));
  const put = (set, on) => () => { for (const row of rows) if (on) set.add(row.number); else set.delete(row.number); view.update(); };
  const away = rows.every((row) => row.tags.includes(ARCHIVED));
  const done = () => view.changed(Infinity);
  openMenu(button, label, [
    rows.length === 1 && ["Rename…", () => rename(first, view.name(first), done)],
    ["Tags…", () => editTags(rows, done)],
    [all(view.pinned) ? "Unpin" : "Pin to the top", put(view.pinned, !all(view.pinned))],
    [all(view.hidden) ? "Show the curves" : "Hide the curves", put(view.hidden, !all(view.hidden))],
    [away ? "Bring back from the archive" : "Archive", () => archive(rows, !away, done)],
    rows.length > 1 && ["Select none", () => view.choose([])],
  ]);
}

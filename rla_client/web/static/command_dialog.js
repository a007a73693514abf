// The dialog with the command that draws a panel.

import { dialog, h } from "./dom.js";
import { tell } from "./frame.js";

/** Show a command, to be copied. */
export function showCommand(text) {
  const field = h("textarea", { readonly: true, rows: 4, "aria-label": "Command" }, text);
  dialog("The same picture by command", field, h("button", { type: "button", autofocus: true, onclick: async () => {
    try { await navigator.clipboard.writeText(text); tell("copied"); } catch { field.select(); }
  } }, "Copy"));
}

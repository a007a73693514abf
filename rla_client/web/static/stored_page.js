// A page that a run stored: in a frame without an origin, which reaches neither this page nor its token, and loads nothing.
//
// `sandbox.html` has the policy of what is written into it. Its address holds no token, and what it shows comes by a message.

import { fetchFile } from "./api.js";
import { bytesText, fill, h } from "./dom.js";

const MOST_BYTES = 64 << 20;
const PLOTLY = /<script\b[^>]{0,200}\bsrc="https:\/\/cdn\.plot\.ly\/plotly-[\w.-]{1,50}\.min\.js"[^>]{0,500}>\s*<\/script>/g;
let plotly = null;  // its script, once a page needs it

/** The text of a page; of one that loads plotly's script from its network with the script of the server's machine instead. */
async function pageText(query) {
  const answer = await fetchFile("file", query);
  const size = Number(answer.headers.get("content-length"));
  if (size > MOST_BYTES) answer.body?.cancel();
  if (size > MOST_BYTES) throw new Error(`${bytesText(size)} are too many to be shown here; save it`);
  const text = await answer.text();
  if (!text.match(PLOTLY)) return text;
  plotly ??= fetchFile("plotly").then((found) => found.text());
  plotly.catch(() => { plotly = null; });
  const script = await plotly;
  return text.replace(PLOTLY, () => `<script>${script}<\/script>`);
}

/** Fill a node with a page. */
export function showPage(node, query, name) {
  const view = h("iframe", { src: "static/sandbox.html", sandbox: "allow-scripts", title: name });
  let asked = false;
  async function give(event) {
    if (!view.isConnected) window.removeEventListener("message", give);
    if (asked || event.source !== view.contentWindow || !event.source) return;  // what is shown may send messages, too
    asked = true;
    window.removeEventListener("message", give);
    try { event.source.postMessage(await pageText(query), "*"); } catch (error) { fill(node, h("p", { class: "dim" }, error.message)); }
  }
  window.addEventListener("message", give);
  fill(node, view);
}

// Talking to the server: the token, questions and answers, and the stream of what is new.

import { later, memory } from "./dom.js";
import { decode } from "./numbers.js";

const KEY = "rla-token";
const SILENT_MS = 45_000;  // of a stream that says something every 15 s: its connection is dead
export const offline = false;  // `offline.js` is this module of a file that needs no server

function findToken() {
  const asked = new URLSearchParams(location.search).get("token");
  if (asked) {
    memory.set(KEY, asked);
    history.replaceState(null, "", location.pathname + location.hash);  // not for history or screenshots
  }
  return asked ?? memory.get(KEY) ?? "";
}

const token = findToken();
let lost = false;  // the server did not answer

/** What the server said instead of an answer, in its words. */
export class Refused extends Error {
  constructor(message, status) { super(message); this.status = status; }
}

const post = (name, body, signal) => request(name, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal });

/** The answer of `fetch`, with the token in its header; throws Refused where it is none. */
async function request(address, { headers = {}, ...more }) {
  let answer;
  try {
    answer = await fetch(`api/${address}`, { headers: { ...headers, Authorization: `Bearer ${token}` }, ...more });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    lost = true;
    throw new Refused("the server does not answer; is `rla web` still running?", 0);
  }
  if (lost) { lost = false; window.dispatchEvent(new Event("answered")); }
  if (!answer.ok) {
    const said = await answer.json().catch(() => ({}));
    throw new Refused(said.error ?? `the server answered ${answer.status}`, answer.status);
  }
  return answer;
}

/** The answer to a question: what its JSON says, or its text. */
export async function ask(name, body = {}, signal = undefined, as = "json") {
  return (await post(name, body, signal))[as]();
}

/** A binary answer; see `decode`. */
export async function askNumbers(name, body, signal = undefined) {
  return decode(await ask(name, body, signal, "arrayBuffer"));
}

/** The address of a file of a run, for pictures, films and downloads. */
export function fileUrl(name, query) {
  return `api/${name}?${new URLSearchParams({ ...query, token })}`;
}

/** A file that the page reads itself, as an answer of `fetch`: its address has no token. */
export function fetchFile(name, query = {}, signal = undefined) {
  return request(`${name}?${new URLSearchParams(query)}`, { signal });
}

/**
 * Server-sent events as answer to a question: onEvent(type, data) for each, until `signal` aborts.
 * Returns when the stream ends; throws Refused when it cannot be had.
 */
export async function stream(name, body, onEvent, signal) {
  const reader = (await post(name, body, signal)).body.pipeThrough(new TextDecoderStream()).getReader();
  const silent = later(() => reader.cancel().catch(() => {}), SILENT_MS);
  let rest = "";
  for (;;) {
    silent();
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const type = /^event: (.*)$/m.exec(part)?.[1];
      const data = /^data: (.*)$/m.exec(part)?.[1];
      if (type && data) onEvent(type, JSON.parse(data));
    }
  }
}

// `api.js` of a file that was written by `rla report`: the answers lie in the file, as many as there are.

import { decode } from "./numbers.js";

export const offline = true;

/** What the file has no answer to. */
export class Refused extends Error {}

const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
const packed = bytes(document.getElementById("data").textContent);
const unpacked = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
const data = new Response(unpacked).json();
document.documentElement.dataset.offline = "";

const own = (values, name) => (Object.hasOwn(values, name) ? values[name] : undefined);
const ANSWERS = {
  columns({ names, numbers }, { runs, columns, texts }) {
    const number = numbers ?? runs.number;
    const places = number.map((one) => runs.number.indexOf(one));
    const of = (known) => names.map((name) => places.map((place) => own(known, name)?.[place] ?? null));
    return { number, values: of(columns), texts: of(texts) };
  },
  differing({ numbers }, { names, columns, runs }) {
    const places = numbers.map((one) => runs.number.indexOf(one));
    return names.hyper.filter((name) => new Set(places.map((place) => JSON.stringify(columns[name]?.[place]))).size > 1);
  },
  fitting: (_, { runs }) => runs.number,  // the file has no others
};

/** The answer to a question, as `api.js` has it. */
export async function ask(name, body = {}) {
  const file = await data;
  const found = own(ANSWERS, name)?.(body, file) ?? own(file[name] ?? {}, body.run) ?? (body.run ? undefined : file[name]);
  if (found === undefined) throw new Refused("this is not in the file; `rla web` shows it");
  return found;
}

/** The curves of a panel: those of the file that belong to runs that are asked for. */
export async function askNumbers(_, { metric, runs }) {
  const { curves, boot } = await data;
  if (!Object.hasOwn(curves, metric)) throw new Refused("this is not in the file; `rla web` shows it");
  const { head, data: [xs, ...series] } = decode(bytes(curves[metric]).buffer);
  const asked = new Set(runs);
  const each = head.kind === "bands" ? 3 : 1;
  const kept = head.curves.map((curve) => (curve.numbers ?? [curve.number]).some((number) => asked.has(number)));
  return { head: { ...head, boot, lacking: 0, curves: head.curves.filter((_one, at) => kept[at]) }, data: [xs, ...series.filter((_one, at) => kept[Math.floor(at / each)])] };
}

/** A picture of the file. */
export function fileUrl(_, { run, path }) {
  return own(pictures, `${run}/${path}`) ?? "";
}

/** Pages and clouds of points are not in the file. */
export async function fetchFile() { throw new Refused("this is not in the file; `rla web` shows it"); }

let pictures = {};
data.then((file) => { ({ pictures } = file); });

/** Nothing new comes to a file. */
export async function stream() {}

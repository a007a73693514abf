// Colours of Python code, as far as they need no parser: comments, texts, numbers, keywords, names that are defined.

import { h } from "./dom.js";

const KEYWORDS = new Set(("False None True and as assert async await break case class continue def del elif else except finally for from global if import in is "
  + "lambda match nonlocal not or pass raise return try while with yield").split(" "));
const TOKEN = /(?<comment>#.*)|(?<text>[rbfu]{0,2}(?:"""[\s\S]*?(?:"""|(?![\s\S]))|'''[\s\S]*?(?:'''|(?![\s\S]))|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?))|(?<decorator>(?<=^[ \t]*)@[\w.]+)|(?<number>\b(?:0[xob][\da-f_]+|\d[\d_]*\.?[\d_]*(?:e[+-]?\d+)?)j?\b)|(?<name>[^\W\d]\w*)/gimu;
const MOST = 300_000;  // characters that are coloured at once

/** Whether a file of this name can be coloured. */
export function isPython(name) { return /\.pyi?$/.test(name); }

/** Code as texts and elements with classes `py-…`. */
export function coloured(code) {
  if (code.length > MOST) return [code];
  const parts = [];
  let end = 0;
  let before = "";
  for (const found of code.matchAll(TOKEN)) {
    const { name, ...kinds } = found.groups;
    const [own] = found;
    let kind = Object.keys(kinds).find((one) => kinds[one] !== undefined);
    if (name) kind = KEYWORDS.has(name) ? "keyword" : before === "def" || before === "class" ? "defined" : undefined;
    before = name ?? "";
    if (!kind) continue;
    if (found.index > end) parts.push(code.slice(end, found.index));
    parts.push(h("span", { class: `py-${kind}` }, own));
    end = found.index + own.length;
  }
  parts.push(code.slice(end));
  return parts;
}

// What can be typed: names and values below a text field, chosen by mouse or keyboard.

import { fill, h } from "./dom.js";

const MOST = 12;

/** What stands before the caret of a filter: {start, word, values} where `values` names the column that a value is meant of. */
export function wordAt(text, caret) {
  const before = text.slice(0, caret);
  const value = /([\w./-]+|`[^`]*`)\s*(?:==|!=|<=|>=|<|>|\bin\s*\[(?:[^\]]*,)?)\s*('[^']*|"[^"]*|[\w./-]*)$/.exec(before);
  if (value && !/^(and|or|not|in)$/.test(value[1])) {
    return { start: caret - value[2].length, word: value[2], values: value[1].replaceAll("`", "") };
  }
  const name = /(`[^`]*|[A-Za-z_][\w./-]*)$/.exec(before);
  return name ? { start: caret - name[0].length, word: name[0], values: null } : { start: caret, word: "", values: null };
}

/** A name as the filter language spells it. */
export function spelled(name) {
  return /^[A-Za-z_]\w*([.-][A-Za-z_]\w*)*$/.test(name) ? name : `\`${name}\``;
}

/** What fits what is being typed, of names {hyper, metrics, fields, values}: {start, words}. */
export function offered(names, text, caret, spell = spelled) {
  const { start, word, values } = wordAt(text, caret);
  if (values) {
    const known = Object.hasOwn(names.values, values) ? names.values[values] : [];
    return { start, words: known.filter((value) => value.includes(word.replace(/^['"]/, ""))).map((value) => ({ text: value, kind: values })) };
  }
  const plain = word.replaceAll("`", "").toLowerCase();
  const words = [["hyper", "parameter"], ["metrics", "metric"], ["fields", "field"]].flatMap(([kind, said]) => (
    (names[kind] ?? []).map((name) => ({ name: name.toLowerCase(), text: spell(name), kind: said }))
  ));
  const found = words.filter(({ name }) => name.includes(plain) && name !== plain);
  found.sort((a, b) => b.name.startsWith(plain) - a.name.startsWith(plain));
  return { start, words: word || /^$|,\s*$/.test(text.slice(0, caret)) ? found : [] };
}

/**
 * Offer completions below a field. `offer(text, caret)` gives {start, words: [{text, kind}]}; a chosen one replaces what
 * stands from `start` to the caret, then `done()` is called.
 */
export function completing(input, offer, done) {
  const list = h("ul", { class: "offers", role: "listbox", hidden: true });
  input.setAttribute("aria-autocomplete", "list");
  input.autocomplete = "off";
  let words = [];
  let start = 0;
  let at = -1;
  const close = () => { list.hidden = true; at = -1; };
  const take = (place) => {
    const caret = input.selectionStart;
    input.value = input.value.slice(0, start) + words[place].text + input.value.slice(caret);
    input.setSelectionRange(start + words[place].text.length, start + words[place].text.length);
    close();
    input.focus();
    done();
  };
  const mark = () => {
    [...list.children].forEach((item, place) => item.setAttribute("aria-selected", String(place === at)));
    list.children[at]?.scrollIntoView({ block: "nearest" });
  };
  const open = () => {
    const found = offer(input.value, input.selectionStart);
    ({ start } = found);
    words = found.words.slice(0, MOST);
    fill(list, words.map(({ text, kind }, place) => (
      h("li", { role: "option", onmousedown: (event) => { event.preventDefault(); take(place); } }, text, h("span", { class: "dim" }, ` ${kind ?? ""}`)))));
    list.hidden = words.length === 0 || document.activeElement !== input;
    at = -1;
  };
  input.addEventListener("input", open);
  input.addEventListener("focus", open);
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !list.hidden) { close(); event.stopPropagation(); return; }
    if (list.hidden) { if (event.key === "ArrowDown") open(); return; }
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      at = (at + (event.key === "ArrowDown" ? 1 : -1) + words.length) % words.length;
      mark();
      event.preventDefault();
    } else if ((event.key === "Enter" || event.key === "Tab") && at >= 0) {
      take(at);
      event.preventDefault();
      event.stopImmediatePropagation();
    } else if (event.key === "Enter") close();
  });
  return h("span", { class: "completing" }, input, list);
}

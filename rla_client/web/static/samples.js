// The tab Samples of a run: a list that the server sorts and filters, one sample, a group, a prompt over time.

import { ask } from "./api.js";
import { fill, h, later, numberText } from "./dom.js";
import { copyButton, repeat, runPicker, slider } from "./parts.js";
import { drawCurve, pieces, sampleView } from "./sample_view.js";

const LIVE_MS = 3000;
const PAGE = 100;
const FIRST = ["step", "reward", "role", "name", "group"];
const TEXTS = ["prompt", "completion"];
const SHARED = ["prompt", "truth", "id", "step", "timestamp", "name", "role", "group", "reward"];  // by the samples of a group, or in the title
const MAX_COLUMNS = 14;
const BAR_PX = 44;

export function samplesTab({ path, body, signal, run, query, save }) {
  let found = null;
  let offset = 0;
  let changes = -1;
  let among = null;  // rows with the text that was looked for
  let range = null;  // of the histogram's bin that was chosen
  let asking = 0;
  const words = (name, label, props = {}) => h("input", { type: "search", "aria-label": label, placeholder: label, value: query.get(name) ?? "",
    onchange: () => { save({ [name]: given[name].value.trim() }); offset = 0; name === "text" ? lookFor() : load(); }, ...props });
  const given = { where: null, text: null };
  given.where = words("where", "reward < 0 and finish == 'length'", { class: "where", "aria-label": "Only samples that match" });
  given.text = words("text", "text in a sample", { "aria-label": "Text in a sample; small letters match capitals" });
  const every = h("input", { type: "checkbox", checked: query.get("step") === "all", onchange: () => { offset = 0; save({ step: every.checked ? "all" : "" }); load(); } });
  const steps = slider([], later((step) => { every.checked = false; offset = 0; save({ step: String(step) }); load(); }, 60), "Time-step of the samples");
  const which = h("select", { "aria-label": "Name that they were logged under", onchange: () => { offset = 0; load(); } });
  const of = h("select", { "aria-label": "Column of the histogram", onchange: () => { range = null; load(); } }, h("option", {}, "reward"));
  const said = h("p", { class: "dim", role: "status" });
  const bars = h("div", { class: "bins", role: "group", "aria-label": "Histogram; a bar shows its samples alone" });
  const list = h("div", { class: "samples-list", tabIndex: 0, role: "region", "aria-label": "Samples" });
  const pager = h("div", { class: "strip" });
  const detail = h("div", { class: "sample-detail", "aria-live": "polite" });
  const halves = h("div", { class: "samples-halves" }, h("div", {}, list, pager), detail);
  const sort = () => (query.get("sort") ?? "").replace(/^-/, "");
  const down = () => (query.get("sort") ?? "").startsWith("-");

  const asked = () => ({
    run: path, where: given.where.value.trim(), name: which.value, sort: sort(), down: down(), of: of.value || "reward",
    step: every.checked || steps.step() === undefined ? null : steps.step(), range, among, offset, limit: PAGE,
  });

  async function load() {
    const own = ++asking;
    try {
      const first = found === null;
      const next = await ask("samples", first ? { run: path, limit: 0 } : asked(), signal);
      if (own !== asking) return;
      found = next;
      if (first && found.steps.length) {
        steps.change(found.steps);
        const wanted = Number(query.get("step"));
        if (query.get("step") && !every.checked && Number.isFinite(wanted)) steps.set(wanted);
        choices();
        if (given.text.value) { lookFor(); return; }
        load();
        return;
      }
      changes = found.changes;
      const before = steps.step();
      steps.change(found.steps);
      choices();
      if (!every.checked && steps.step() !== before) { load(); return; }  // it stays at the newest step
      showList();
    } catch (error) {
      if (error.name === "AbortError" || own !== asking) return;
      fill(said, h("span", { class: "bad" }, error.message));
    }
  }

  function choices() {
    const before = which.value;
    if (which.options.length !== found.names.length + 1) {
      fill(which, h("option", { value: "" }, "all names"), found.names.map((name) => h("option", { value: name }, name)));
      which.value = before;
    }
    which.hidden = found.names.length < 2;
    const numbers = found.columns.filter(([name, number]) => number && !["step", "time"].includes(name)).map(([name]) => name);
    if (of.options.length !== Math.max(1, numbers.length)) {
      const kept = of.value;
      fill(of, numbers.map((name) => h("option", {}, name)));
      of.value = numbers.includes(kept) ? kept : numbers[0];
    }
  }

  function showList() {
    const nothing = !found.count;
    const closed = found.unread.length ? `left out, as this page's user may not read it: ${found.unread.join(", ")}` : "";
    fill(said, nothing ? closed || "no samples: a training script keeps them by rla_client.log_samples(rows, step=…)"
      : `${found.matching} of ${found.count} samples${among ? " with the text" : ""}${found.left_out ? `; ${found.left_out} more were left out by the limits of SAMPLES` : ""}${closed && `; ${closed}`}`);
    tools.hidden = nothing;
    histogram();
    const names = shown();
    const at = Object.fromEntries(found.columns.map(([name], place) => [name, place + 1]));
    fill(list, found.rows.length > 0 && h("table", { class: "list samples" },
      h("thead", {}, h("tr", {}, names.map((name) => h("th", { scope: "col", class: found.columns.some(([one, number]) => one === name && number) ? "number" : "", "aria-sort": sort() === name ? (down() ? "descending" : "ascending") : "none" },
        h("button", { type: "button", onclick: () => order(name) }, name, sort() === name ? (down() ? " ▾" : " ▴") : ""))))),
      h("tbody", { onkeydown: walk }, found.rows.map((row) => h("tr", { dataset: { row: row[0] }, onclick: () => { if (getSelection().isCollapsed) open(row[0]); }, class: String(row[0]) === query.get("sample") ? "chosen" : "" },
        names.map((name, place) => {
          const value = row[at[name]];
          const text = typeof value === "number" ? numberText(value) : value === null ? "" : String(value);
          const kind = TEXTS.includes(name) ? "text" : typeof value === "number" ? "number" : "";
          return h("td", { class: kind, title: text.length > 12 ? text : null }, place ? text
            : h("button", { type: "button", class: "link", "aria-label": `Sample of step ${text}` }, text));  // its click is that of the row
        }))))));
    fill(pager, found.matching > PAGE && [
      h("button", { type: "button", disabled: !offset, onclick: () => turn(-PAGE) }, "‹ before"),
      h("span", {}, `${offset + 1} to ${Math.min(offset + PAGE, found.matching)}`),
      h("button", { type: "button", disabled: offset + PAGE >= found.matching, onclick: () => turn(PAGE) }, "next ›")]);
  }

  function shown() {
    const all = found.columns.map(([name]) => name);
    const here = new Set(found.rows.length ? all.filter((_, place) => found.rows.some((row) => row[place + 1] !== null && row[place + 1] !== "")) : all);
    const first = FIRST.filter((name) => here.has(name) && (name !== "name" || found.names.length > 1));
    const rest = all.filter((name) => here.has(name) && ![...FIRST, ...TEXTS, "id", "time"].includes(name));
    const others = [...rest.filter((name) => !name.endsWith("_chars")), ...rest.filter((name) => name.endsWith("_chars"))].slice(0, MAX_COLUMNS);
    return [...first, ...TEXTS.filter((name) => here.has(name)), ...others];
  }

  function order(name) {
    save({ sort: sort() !== name ? name : down() ? "" : `-${name}` });
    offset = 0;
    load();
  }
  /** Arrows go from row to row; Enter opens, as of any button. */
  function walk(event) {
    const beside = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
    const row = beside && event.target.closest("tr")[beside];
    if (!row) return;
    event.preventDefault();
    row.querySelector("button").focus();
  }
  function turn(by) {
    offset = Math.max(0, offset + by);
    list.scrollTop = 0;
    load();
  }

  function histogram() {
    const bins = found.histogram?.bins ?? [];
    const most = Math.max(1, ...bins.map(([, , count]) => count));
    fill(bars, bins.map(([low, high, count]) => {
      const on = range !== null && range[0] === low && range[1] === high;
      const name = low === high ? numberText(low) : `${numberText(low)} to ${numberText(high)}`;
      return h("button", { type: "button", class: on ? "on" : "", "aria-pressed": String(on), title: `${name}: ${count} samples`, "aria-label": `${found.histogram.of} ${name}: ${count} samples`,
        onclick: () => { range = on ? null : [low, high]; offset = 0; load(); } },
        h("span", { class: "bin", style: { height: `${Math.round((count / most) * BAR_PX)}px` } }));
    }), bins.length > 0 && h("span", { class: "dim ends" }, `${numberText(bins[0][0])} … ${numberText(bins.at(-1)[1])}`));
  }

  /** Look through the texts, a part at a time; the list shows what was found so far. */
  async function lookFor() {
    const text = given.text.value.trim();
    among = null;
    if (!text) { load(); return; }
    const own = ++asking;
    const rows = [];
    for (let begin = 0; begin !== null && own === asking && !signal.aborted && rows.length < 5000;) {
      let part;
      try {
        part = await ask("samples_search", { ...asked(), among: null, text, begin }, signal);
      } catch (error) {
        if (error.name !== "AbortError") fill(said, h("span", { class: "bad" }, error.message));
        return;
      }
      if (own !== asking) return;
      rows.push(...part.rows);
      begin = part.next;
      fill(said, `${rows.length} with “${text}”; looked at ${begin ?? part.of} of ${part.of} `,
        h("progress", { max: part.of || 1, value: begin ?? part.of }));
    }
    if (own !== asking) return;
    among = rows;
    load();
  }

  // -- one sample, its group, its prompt over time

  async function open(row) {
    save({ sample: String(row) });
    list.querySelectorAll("tr.chosen").forEach((one) => one.classList.remove("chosen"));
    list.querySelector(`tr[data-row="${row}"]`)?.classList.add("chosen");
    await told(async () => {
      const { samples } = await ask("sample", { run: path, rows: [row] }, signal);
      if (!samples.length) { fill(detail, h("p", { class: "dim" }, "not there any more")); return; }
      const [, sample] = samples[0];
      show(false, head(sample), sampleView(path, sample));
    });
  }
  const told = async (work) => {
    try { await work(); } catch (error) {
      if (error.name !== "AbortError") fill(detail, h("p", { class: "bad" }, error.message));
    }
  };

  /** In the detail, below the list where it takes all of the width. */
  function show(across, ...parts) {
    halves.classList.toggle("across", across);
    fill(detail, ...parts);
    if (parts.length && detail.offsetTop > list.offsetTop) detail.scrollIntoView({ block: "start" });  // it is below the list
  }

  function head(sample) {
    return h("div", { class: "strip sticky" }, h("h2", {}, `Sample ${sample.id}`),
      h("button", { type: "button", onclick: () => group(sample) }, "Its group side by side"),
      h("button", { type: "button", onclick: () => story(sample) }, "Its prompt over steps"),
      copyButton(JSON.stringify(sample, null, 2)),
      h("button", { type: "button", class: "push", "aria-label": "Close the sample", onclick: () => { save({ sample: "" }); show(false); } }, "×"));
  }

  async function group(sample) {
    const other = h("div", {});
    const cards = (whose, { samples, more }) => [h("div", { class: "side-by-side", tabIndex: 0, role: "region", "aria-label": "Samples side by side" },
      samples.map(([, one]) => h("article", { class: whose === path && one.id === sample.id ? "chosen" : "" }, h("h3", {}, `${one.id}: reward ${numberText(one.reward)}`), sampleView(whose, one, { without: SHARED, tools: false })))),
    more > 0 && h("p", { class: "dim" }, `${more} more are not shown`)];
    const body = { group: String(sample.group), step: sample.step, name: sample.name, sort: "reward", down: true };
    await told(async () => {
      const answer = await ask("sample", { run: path, ...body }, signal);
      show(true, head(sample), sampleView(path, { prompt: sample.prompt, truth: sample.truth }), cards(path, answer),
        runPicker(path, "The same prompt at this step in another run", (chosen) => told(async () => {
          const theirs = await ask("sample", { run: chosen, ...body }, signal);
          fill(other, h("h3", {}, chosen.slice(chosen.indexOf("/") + 1)), theirs.samples.length ? cards(chosen, theirs) : h("p", { class: "dim" }, "that run has no sample of this prompt at this step"));
        })), other);
    });
  }

  async function story(sample) {
    await told(async () => {
      const answer = await ask("sample_story", { run: path, group: String(sample.group), name: sample.name }, signal);
      show(false, head(sample), sampleView(path, { prompt: sample.prompt ?? answer.prompt }),
        h("h3", {}, "Mean reward of this prompt"), drawCurve(answer.curve),
        answer.earlier > 0 && h("p", { class: "dim" }, `${answer.earlier} earlier steps are not shown`),
        answer.steps.map((one, place) => h("section", { class: "part" },
          h("h3", {}, `step ${numberText(one.step)}: reward ${numberText(one.reward)}`, place > 0 && h("span", { class: "dim" }, " changed since the step before")),
          pieces(one.pieces))));
    });
  }

  const tools = h("div", { class: "strip" }, given.where, given.text, which,
    h("label", { class: "control" }, every, "all steps"), steps.node);
  fill(body, tools, h("div", { class: "strip" }, h("label", { class: "control" }, "histogram of ", of), bars), said, halves);
  load().then(() => { if (query.get("sample")) open(Number(query.get("sample"))); });
  repeat(async () => {
    if (!run().live) return;
    const now = await ask("samples", { run: path, limit: 0 }, signal).catch(() => null);
    if (now && now.changes !== changes && !(given.text.value && !among)) {
      if (found && !found.count) found = null;
      await load();
    }
  }, () => LIVE_MS, signal);
  return {};
}

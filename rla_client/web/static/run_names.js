// What runs are called: by the name that somebody gave, else by what tells them apart, else by their date.

/** Day and time of a run: `11-20 09:39:33`. */
export function dateText(row) {
  return `${row.index.slice(5, 10).replace("/", "-")} ${row.index.slice(11, 19).replaceAll("-", ":")}`;
}

/** Tracked hyper-parameters that some runs do not share, in the order of the first run that has them. */
export function differingNames(rows) {
  const values = new Map();
  for (const { tracked } of rows) {
    for (const [name, value] of Object.entries(tracked)) {
      if (!values.has(name)) values.set(name, new Map());
      const counts = values.get(name);
      counts.set(value, (counts.get(value) ?? 0) + 1);
    }
  }
  return [...values].filter(([, counts]) => counts.size > 1 || [...counts.values()][0] < rows.length).map(([name]) => name);
}

/** The name of a run among others that differ in some names; empty where only its date tells it. */
export function nameOf(row, differing) {
  if (row.display_name) return row.display_name;
  const shown = differing.filter((name) => Object.hasOwn(row.tracked, name));
  return (shown.length ? shown : Object.keys(row.tracked)).map((name) => `${name}=${row.tracked[name]}`).join(" ");
}

/** A text for each of some runs that no other of them has: Map(number → text). `more(row)` is added to all. */
export function labelsOf(rows, differing, more) {
  const names = new Map(rows.map((row) => [row.number, [nameOf(row, differing), more(row)].filter(Boolean).join(" ")]));
  const counts = new Map();
  for (const name of names.values()) counts.set(name, (counts.get(name) ?? 0) + 1);
  return new Map(rows.map((row) => {
    const name = names.get(row.number);
    return [row.number, !name || counts.get(name) > 1 ? `${dateText(row)} ${name}`.trim() : name];
  }));
}

// The answers for several metrics as one: their curves over the x of all.

/** Several answers of {head, data} as one: the curves of all, each with its metric. */
export function joined(answers) {
  const shown = answers.filter(({ head }) => head.curves.length);
  if (!shown.length) return answers[0];
  const xs = [...new Set(shown.flatMap(({ data }) => data[0]))].sort((a, b) => a - b);
  const places = new Map(xs.map((x, place) => [x, place]));
  const series = (from, to) => shown.flatMap(({ head, data }) => data.slice(1 + from(head), to(head)).map((ys) => {
    const wider = new Array(xs.length).fill(null);
    ys.forEach((y, at) => { if (y !== null) wider[places.get(data[0][at])] = y; });
    return wider;
  }));
  const own = (head) => head.curves.length * (head.kind === "bands" ? 3 : 1);
  const raw = shown.every(({ head }) => head.raw);
  const curves = shown.flatMap(({ head }, place) => head.curves.map((curve) => ({ ...curve, metric: head.metric, place })));
  const [first] = answers;
  return {
    head: { ...first.head, curves, raw, kind: shown[0].head.kind, lacking: 0, metric: answers.map(({ head }) => head.metric).join(", "), said: [...new Set(shown.map(({ head }) => head.said).filter(Boolean))].join("; ") },
    data: [xs, ...series(() => 0, (head) => 1 + own(head)), ...(raw ? series(own, () => undefined) : [])],
  };
}

// Answers that hold many numbers, as `curves.py` writes them.

const nothing = (value) => (Number.isNaN(value) ? null : value);

/** A binary answer as {head, data}: the JSON head, and [xs, ys…] with null where a series has no point. */
export function decode(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  const start = 8 + Math.ceil(length / 8) * 8;
  const xs = Array.from(new Float64Array(buffer, start, head.points));
  const Kind = head.wide ? Float64Array : Float32Array;
  const size = head.points * Kind.BYTES_PER_ELEMENT;
  const series = Array.from({ length: head.series }, (_, at) => (
    Array.from(new Kind(buffer, start + head.points * 8 + at * size, head.points), nothing)));
  return { head, data: [xs, ...series] };
}

// Student's t, 97.5 %, by degrees of freedom from 1; as in database/compare/groups.py, which `rla ls --group` goes by
const T = [
  12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
  2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

/** Mean of two or more runs, and half of its 95 % interval. */
export function meanAndInterval(values) {
  const count = values.length;
  const mean = values.reduce((sum, value) => sum + value, 0) / count;
  const spread = Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / ((count - 1) * count));
  return [mean, (T[count - 2] ?? 1.96 + 2.42 / (count - 1)) * spread];
}

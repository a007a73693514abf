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

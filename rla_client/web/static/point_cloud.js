// A cloud of points in space (PLY), which the mouse and the arrow keys turn.

import { fetchFile } from "./api.js";
import { style } from "./chart.js";
import { bytesText, fill, h, numberText } from "./dom.js";

const MOST_BYTES = 128 << 20;
const MOST_HEAD = 1 << 16;  // bytes of a file's header
const TURN = 0.008;  // radians a pixel of the mouse
const STEP = 0.12;  // radians, and share of the size, a key
const KINDS = {  // of PLY's numbers: bytes, and how they are read
  char: [1, "getInt8"], uchar: [1, "getUint8"], short: [2, "getInt16"], ushort: [2, "getUint16"], int: [4, "getInt32"], uint: [4, "getUint32"], float: [4, "getFloat32"], double: [8, "getFloat64"],
  int8: [1, "getInt8"], uint8: [1, "getUint8"], int16: [2, "getInt16"], uint16: [2, "getUint16"], int32: [4, "getInt32"], uint32: [4, "getUint32"], float32: [4, "getFloat32"], float64: [8, "getFloat64"],
};
const HEAT = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];  // low to high, where points have no colours: viridis

/** Places and colours of a PLY file's points: {count, xyz, rgb (or null), low, high}. */
export function readPoints(buffer) {
  const head = new TextDecoder("latin1").decode(new Uint8Array(buffer, 0, Math.min(MOST_HEAD, buffer.byteLength)));
  const end = /\nend_header\r?\n/.exec(head);
  const [, format] = /^ply\r?\nformat (ascii|binary_little_endian|binary_big_endian) /.exec(head) ?? [];
  const [, vertex, listed] = /\nelement vertex (\d+)\r?\n((?:(?:property|comment) .*\n)*)/.exec(head) ?? [];
  const properties = [...(listed ?? "").matchAll(/^property (\w+) (\w+)/gm)].map(([, kind, name]) => ({ kind, name }));
  const at = (name) => properties.findIndex((one) => one.name === name);
  if (!end || !format || !vertex || at("x") < 0 || at("y") < 0 || at("z") < 0 || properties.some(({ kind }) => !Object.hasOwn(KINDS, kind)) || /\nelement (?!vertex)[^]*\nelement vertex/.test(head)) throw new Error("no cloud of points that this page can draw; save it");
  const begin = end.index + end[0].length;
  const wanted = ["x", "y", "z", ...(["red", "green", "blue"].every((name) => at(name) >= 0) ? ["red", "green", "blue"] : [])];
  const places = wanted.map(at);
  let count = Number(vertex);
  let read;
  if (format === "ascii") {
    const numbers = new TextDecoder("latin1").decode(new Uint8Array(buffer, begin)).split(/\s+/).filter(Boolean).map(Number);
    count = Math.min(count, Math.floor(numbers.length / properties.length));
    read = (point, part) => numbers[point * properties.length + places[part]];
  } else {
    const view = new DataView(buffer, begin);
    const sizes = properties.map(({ kind }) => KINDS[kind][0]);
    const stride = sizes.reduce((sum, size) => sum + size, 0);
    const starts = places.map((place) => sizes.slice(0, place).reduce((sum, size) => sum + size, 0));
    const ways = places.map((place) => KINDS[properties[place].kind][1]);
    count = Math.min(count, Math.floor(view.byteLength / stride));
    read = (point, part) => view[ways[part]](point * stride + starts[part], format === "binary_little_endian");
  }
  const xyz = new Float32Array(3 * count);
  const rgb = wanted.length > 3 ? new Uint8ClampedArray(3 * count) : null;
  const [low, high] = [[Infinity, Infinity, Infinity], [-Infinity, -Infinity, -Infinity]];
  let kept = 0;
  for (let point = 0; point < count; point += 1) {
    const place = [read(point, 0), read(point, 1), read(point, 2)];
    if (!place.every(Number.isFinite)) continue;
    for (let axis = 0; axis < 3; axis += 1) {
      xyz[3 * kept + axis] = place[axis];
      low[axis] = Math.min(low[axis], place[axis]);
      high[axis] = Math.max(high[axis], place[axis]);
      if (rgb) rgb[3 * kept + axis] = read(point, 3 + axis);
    }
    kept += 1;
  }
  if (!kept) throw new Error("no points");
  return { count: kept, xyz, rgb, low, high };
}

/** A colour for each point by its height. */
function heights({ count, xyz, low, high }) {
  const rgb = new Uint8ClampedArray(3 * count);
  for (let point = 0; point < count; point += 1) {
    const share = (HEAT.length - 1) * (xyz[3 * point + 2] - low[2]) / (high[2] - low[2] || 1);
    const from = Math.min(Math.floor(share), HEAT.length - 2);
    for (let part = 0; part < 3; part += 1) rgb[3 * point + part] = HEAT[from][part] + (share - from) * (HEAT[from + 1][part] - HEAT[from][part]);
  }
  return rgb;
}

/** Fill a node with the cloud of a file; `view` {yaw, pitch, zoom} stays from one time-step to the next. */
export async function showPoints(node, query, name, view) {
  let cloud;
  try {
    const answer = await fetchFile("file", query);
    const size = Number(answer.headers.get("content-length"));
    if (size > MOST_BYTES) answer.body?.cancel();
    if (size > MOST_BYTES) throw new Error(`${bytesText(size)} are too many to be shown here; save it`);
    cloud = readPoints(await answer.arrayBuffer());
  } catch (error) { fill(node, h("p", { class: "dim" }, error.message)); return; }
  const { count, xyz, low, high } = cloud;
  const rgb = cloud.rgb ?? heights(cloud);
  const middle = low.map((end, axis) => (end + high[axis]) / 2);
  const radius = Math.hypot(...low.map((end, axis) => high[axis] - end)) / 2 || 1;
  const ranges = ["x", "y", "z"].map((axis, at) => `${axis} ${numberText(Number(low[at].toPrecision(3)))} … ${numberText(Number(high[at].toPrecision(3)))}`);
  const canvas = h("canvas", { tabindex: "0", role: "img", "aria-label": `${name}: ${count} points, ${ranges.join(", ")}; arrow keys turn it, + and − zoom` });
  const context = canvas.getContext("2d");
  let due = 0;

  /** What of x, y and z goes to the right, up, and away from the eye. */
  function axes() {
    const [sy, cy, sp, cp] = [Math.sin(view.yaw), Math.cos(view.yaw), Math.sin(view.pitch), Math.cos(view.pitch)];
    return [[cy, -sy, 0], [sp * sy, sp * cy, cp], [cp * sy, cp * cy, -sp]];
  }
  function draw() {
    due = 0;
    const ratio = Math.min(devicePixelRatio, 2);
    const [width, height] = [Math.round(canvas.clientWidth * ratio), Math.round(canvas.clientHeight * ratio)];
    if (!width || !height) return;
    if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
    const scale = view.zoom * Math.min(width, height) / (2.2 * radius);
    const image = context.createImageData(width, height);
    const pixels = new Uint32Array(image.data.buffer);
    const depth = new Float32Array(width * height).fill(Infinity);
    const size = Math.max(Math.min(Math.round(ratio * Math.sqrt(40_000 / count)), 4 * ratio), 1);
    const [[rx, ry], [ux, uy, uz], [ax, ay, az]] = axes();
    const [mx, my, mz] = middle;
    for (let point = 0; point < count; point += 1) {
      const x = xyz[3 * point] - mx;
      const y = xyz[3 * point + 1] - my;
      const z = xyz[3 * point + 2] - mz;
      const far = ax * x + ay * y + az * z;
      const left = Math.round(width / 2 + scale * (rx * x + ry * y) - size / 2);
      const top = Math.round(height / 2 - scale * (ux * x + uy * y + uz * z) - size / 2);
      const ink = 0xff000000 | rgb[3 * point + 2] << 16 | rgb[3 * point + 1] << 8 | rgb[3 * point];
      for (let row = Math.max(top, 0); row < Math.min(top + size, height); row += 1) {
        for (let column = Math.max(left, 0); column < Math.min(left + size, width); column += 1) {
          const place = row * width + column;
          if (far >= depth[place]) continue;
          depth[place] = far;
          pixels[place] = ink;
        }
      }
    }
    context.putImageData(image, 0, 0);
    frameOf(scale, ratio);
  }
  /** The edges of the box that holds all points, and the names of its axes. */
  function frameOf(scale, ratio) {
    const [right, up] = axes();
    const along = (ways, corner) => ways.reduce((sum, way, axis) => sum + way * (corner[axis] - middle[axis]), 0);
    const seen = (corner) => [canvas.width / 2 + scale * along(right, corner), canvas.height / 2 - scale * along(up, corner)];
    Object.assign(context, { strokeStyle: style("--line"), fillStyle: style("--dim"), lineWidth: ratio, font: `${11 * ratio}px system-ui, sans-serif`, textAlign: "center", textBaseline: "middle" });
    context.beginPath();
    for (let axis = 0; axis < 3; axis += 1) {
      for (let corner = 0; corner < 8; corner += 1) {
        if (corner >> axis & 1) continue;
        const ends = [corner, corner | 1 << axis].map((bits) => seen(low.map((end, at) => (bits >> at & 1 ? high[at] : end))));
        context.moveTo(...ends[0]);
        context.lineTo(...ends[1]);
        if (!corner) context.fillText("xyz"[axis], (ends[0][0] + ends[1][0]) / 2, (ends[0][1] + ends[1][1]) / 2 + 8 * ratio);
      }
    }
    context.stroke();
  }
  const again = () => { due ||= requestAnimationFrame(draw); };
  function turn(right, up, zoom = 1) {
    view.yaw += right;
    view.pitch = Math.min(Math.max(view.pitch + up, -Math.PI / 2), Math.PI / 2);
    view.zoom = Math.min(Math.max(view.zoom * zoom, 0.2), 50);
    again();
  }
  canvas.addEventListener("pointerdown", (event) => canvas.setPointerCapture(event.pointerId));
  canvas.addEventListener("pointermove", (event) => { if (event.buttons & 1) turn(-event.movementX * TURN, event.movementY * TURN); });
  canvas.addEventListener("wheel", (event) => {
    if (document.activeElement !== canvas) return;  // the page scrolls, unless the cloud was clicked
    event.preventDefault();
    turn(0, 0, Math.exp(-event.deltaY / 500));
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: [STEP, 0], ArrowRight: [-STEP, 0], ArrowUp: [0, STEP], ArrowDown: [0, -STEP], "+": [0, 0, 1 + STEP], "-": [0, 0, 1 / (1 + STEP)] }[event.key];
    if (!by) return;
    event.preventDefault();
    turn(...by);
  });
  new ResizeObserver(again).observe(canvas);
  fill(node, canvas, h("p", { class: "said dim" }, `${count.toLocaleString("en")} points; ${ranges.join(", ")}`));
}

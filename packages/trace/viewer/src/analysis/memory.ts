/** Buffers of a memory lane over time. */

import { Kind } from "../model/schema";
import type { Trace } from "../model/trace";

/** The bytes of live buffers: `bytes[i]` from `time[i]` to `time[i + 1]`. */
export interface MemoryUse {
  time: Float64Array;
  bytes: Float64Array;
  peak: number;
  peakTime: number;
}

/** The bytes that buffers of one node hold. */
export interface Holder {
  node: number;
  bytes: number;
  count: number;
}

const uses = new WeakMap<Trace, Map<number, MemoryUse>>();

/** Return the lanes that have buffers. */
export function memoryLanes(trace: Trace): number[] {
  return trace.rows
    .filter((row) => trace.columns.kind[row.from] === Kind.BUFFER)
    .map((row) => row.lane)
    .filter((lane, index, lanes) => lanes.indexOf(lane) === index);
}

/** Return the use of memory of a lane, from the lifetimes of its buffers. */
export function memoryUse(trace: Trace, lane: number): MemoryUse {
  let lanes = uses.get(trace);
  if (!lanes) uses.set(trace, (lanes = new Map()));
  let use = lanes.get(lane);
  if (!use) lanes.set(lane, (use = sweep(trace, buffers(trace, lane))));
  return use;
}

/** Return who holds buffers of a lane at a time, largest first. */
export function holdersAt(trace: Trace, lane: number, time: number): Holder[] {
  const holders = new Map<number, Holder>();
  const { start, node, outputBytes } = trace.columns;
  for (const event of buffers(trace, lane)) {
    if (start[event] > time || trace.endOf(event) <= time) continue;
    let holder = holders.get(node[event]);
    if (!holder) holders.set(node[event], (holder = { node: node[event], bytes: 0, count: 0 }));
    holder.bytes += Math.max(0, outputBytes[event]);
    holder.count++;
  }
  return [...holders.values()].sort((a, b) => b.bytes - a.bytes);
}

/** Return the bytes that buffers of each of some nodes, and of all others, hold at some times. */
export function holdersOver(
  trace: Trace, lane: number, nodes: readonly number[], times: Float64Array,
): Float64Array[] {
  const index = new Map(nodes.map((node, k) => [node, k]));
  const layers = Array.from({ length: nodes.length + 1 }, () => new Float64Array(times.length + 1));
  const { start, node, outputBytes } = trace.columns;
  const [first, step] = [times[0], times[1] - times[0] || 1];
  const slot = (time: number) => {
    return Math.max(0, Math.min(times.length, Math.ceil((time - first) / step)));
  };
  for (const event of buffers(trace, lane)) {
    const layer = layers[index.get(node[event]) ?? nodes.length];
    const bytes = Math.max(0, outputBytes[event]);
    layer[slot(start[event])] += bytes;
    layer[slot(trace.endOf(event))] -= bytes;
  }
  for (const layer of layers) for (let i = 1; i < layer.length; i++) layer[i] += layer[i - 1];
  return layers.map((layer) => layer.subarray(0, times.length));
}

function* buffers(trace: Trace, lane: number): Generator<number> {
  for (const row of trace.laneRows[lane]) {
    for (let i = row.from; i < row.to; i++) if (trace.columns.kind[i] === Kind.BUFFER) yield i;
  }
}

function sweep(trace: Trace, events: Iterable<number>): MemoryUse {
  const list = Uint32Array.from(events);
  const { start, outputBytes } = trace.columns;
  const byEnd = list.slice();
  const ends = new Float64Array(list.length);
  const order = Array.from(list.keys()).sort((a, b) => trace.endOf(list[a]) - trace.endOf(list[b]));
  order.forEach((position, i) => {
    byEnd[i] = list[position];
    ends[i] = trace.endOf(list[position]);
  });
  const time = new Float64Array(2 * list.length);
  const bytes = new Float64Array(2 * list.length);
  let [live, peak, peakTime, a, b] = [0, 0, trace.begin, 0, 0];
  for (let i = 0; i < time.length; i++) {
    const isRelease = a >= list.length || ends[b] <= start[list[a]];
    const event = isRelease ? byEnd[b] : list[a];
    time[i] = isRelease ? ends[b++] : start[list[a++]];
    live += (isRelease ? -1 : 1) * Math.max(0, outputBytes[event]);
    bytes[i] = live;
    if (live > peak) [peak, peakTime] = [live, time[i]];
  }
  return { time, bytes, peak, peakTime };
}

/** Builds a trace from decoded chunks. */

import type { EventColumns, Numbers, SampleColumns } from "../format/columns";
import { makeCommon, permute } from "../format/columns";
import type { Records } from "../format/records";
import { assignRows, sortOrder } from "../model/rows";
import { LaneKind, NO_STEP } from "../model/schema";
import { BLOCK, Trace, type Row, type Series } from "../model/trace";

type Name = Exclude<keyof EventColumns, "rows" | "lanes" | "laneFirst">;
type Chunks = (Partial<EventColumns> & Pick<EventColumns, "rows" | "lanes" | "laneFirst">)[];

/** Return the trace that chunks contain. The columns of the chunks are released on the way. */
export function assemble(
  name: string, origin: bigint, records: Records, events: EventColumns[],
  samples: readonly SampleColumns[], warnings: readonly string[],
): Trace {
  const chunks: Chunks = events;
  describeLanes(records, chunks, samples);
  const offsets = laneOffsets(chunks, records.lanes.length);
  const count = offsets[records.lanes.length];
  const start = gather(chunks, "start", offsets, count) as Float64Array;
  const duration = gather(chunks, "duration", offsets, count);
  const { order, ranges } = orderByRow(records, offsets, start, duration);
  const finish = <T extends Numbers>(column: T) => (order ? permute(column, order) : column);
  const take = (column: Name) => finish(gather(chunks, column, offsets, count));
  const columns = {
    count,
    start: finish(start),
    duration: finish(duration),
    kind: take("kind") as Uint8Array,
    flags: take("flags") as Uint8Array,
    node: shorten(take("node") as Uint32Array, 0),
    step: shorten(take("step") as Uint32Array, 1),
    iteration: shorten(take("iteration") as Uint32Array, 0),
    delay: take("delay"),
    inputBytes: take("inputBytes"),
    outputBytes: take("outputBytes"),
  };
  const rows = ranges.map((range): Row => ({ ...range, busy: busyBlocks(columns.duration, range) }));
  const noStep = columns.step instanceof Uint16Array ? 0xffff : NO_STEP;
  return new Trace(name, origin, records, columns, rows, makeSeries(samples), warnings, noStep);
}

/** Add descriptions of lanes that events refer to and that the file does not describe. */
function describeLanes(records: Records, chunks: Chunks, samples: readonly SampleColumns[]): void {
  let highest = records.lanes.length - 1;
  for (const chunk of chunks) highest = Math.max(highest, ...chunk.lanes);
  for (const chunk of samples) for (const lane of chunk.lane) if (lane > highest) highest = lane;
  while (records.lanes.length <= highest) {
    const name = `lane ${records.lanes.length} (not described)`;
    records.lanes.push({ process: 0, kind: LaneKind.THREAD, name });
  }
}

function laneOffsets(chunks: Chunks, lanes: number): Float64Array {
  const offsets = new Float64Array(lanes + 1);
  for (const chunk of chunks) {
    chunk.lanes.forEach((lane, k) => {
      offsets[lane + 1] += chunk.laneFirst[k + 1] - chunk.laneFirst[k];
    });
  }
  for (let lane = 0; lane < lanes; lane++) offsets[lane + 1] += offsets[lane];
  return offsets;
}

/** Return a column of all chunks, sorted by lane, and remove it from the chunks. */
function gather(chunks: Chunks, name: Name, offsets: Float64Array, count: number): Numbers {
  const out = makeCommon(chunks.map((chunk) => chunk[name]!), count);
  const next = offsets.slice();
  for (const chunk of chunks) {
    const column = chunk[name]!;
    chunk.lanes.forEach((lane, k) => {
      const part = column.subarray(chunk.laneFirst[k], chunk.laneFirst[k + 1]);
      out.set(part, next[lane]);
      next[lane] += part.length;
    });
    delete chunk[name];
  }
  return out;
}

/** Return a column of ids in two bytes each if they fit, and `spare` values above them are free. */
function shorten(column: Uint32Array, spare: number): Uint16Array | Uint32Array {
  for (let i = 0; i < column.length; i++) {
    if (column[i] >= 0x10000 - spare && !(spare && column[i] === NO_STEP)) return column;
  }
  return Uint16Array.from(column);
}

interface Range {
  lane: number;
  depth: number;
  from: number;
  to: number;
}

/** Return the order of events by lane, row and start (null if they have it), and all rows. */
function orderByRow(
  records: Records, offsets: Float64Array, start: Float64Array, duration: Numbers,
): { order: Uint32Array | null; ranges: Range[] } {
  const ranges: Range[] = [];
  const order = new Uint32Array(start.length);
  let isOrdered = true;
  records.lanes.forEach((lane, id) => {
    const [from, to] = [offsets[id], offsets[id + 1]];
    if (from === to) return;
    const sorted = sortOrder(start, duration, from, to);
    isOrdered &&= sorted === null;
    if (lane.kind === LaneKind.MEMORY) {
      for (let i = from; i < to; i++) order[i] = sorted ? sorted[i - from] : i;
      ranges.push({ lane: id, depth: 0, from, to });
      return;
    }
    const starts = sorted ? permute(start, sorted) : start.subarray(from, to);
    const durations = sorted ? permute(duration, sorted) : duration.subarray(from, to);
    const rows = assignRows(starts, durations, 0, to - from);
    const counts = new Uint32Array(257);
    for (const row of rows) counts[row + 1]++;
    for (let row = 0; row < 256; row++) {
      if (!counts[row + 1]) break;
      ranges.push({ lane: id, depth: row, from: from + counts[row], to: from + counts[row] + counts[row + 1] });
      counts[row + 1] += counts[row];
      if (row) isOrdered = false;
    }
    for (let i = 0; i < rows.length; i++) {
      order[from + counts[rows[i]]++] = sorted ? sorted[i] : from + i;
    }
  });
  return { order: isOrdered ? null : order, ranges };
}

function busyBlocks(duration: Numbers, { from, to }: Range): Float64Array {
  const busy = new Float64Array(Math.floor((to - from) / BLOCK) + 1);
  let sum = 0;
  for (let i = from; i < to; i++) {
    if ((i - from) % BLOCK === 0) busy[(i - from) / BLOCK] = sum;
    sum += duration[i];
  }
  if ((to - from) % BLOCK === 0) busy[(to - from) / BLOCK] = sum;
  return busy;
}

/** Return the counters, each sorted by time. */
function makeSeries(chunks: readonly SampleColumns[]): Series[] {
  const keyOf = (chunk: SampleColumns, i: number) => chunk.lane[i] * 65536 + chunk.series[i];
  const counts = new Map<number, number>();
  for (const chunk of chunks) {
    for (let i = 0; i < chunk.rows; i++) {
      const key = keyOf(chunk, i);
      counts.set(key, (counts.get(key) ?? 0) + 1);
    }
  }
  const parts = new Map<number, { time: Float64Array; value: Float64Array; used: number }>();
  for (const [key, count] of counts) {
    parts.set(key, { time: new Float64Array(count), value: new Float64Array(count), used: 0 });
  }
  for (const chunk of chunks) {
    for (let i = 0; i < chunk.rows; i++) {
      const part = parts.get(keyOf(chunk, i))!;
      part.time[part.used] = chunk.time[i];
      part.value[part.used++] = chunk.value[i];
    }
  }
  return [...parts].map(([key, { time, value }]) => {
    const order = sortOrder(time, new Float64Array(time.length), 0, time.length);
    const lane = Math.floor(key / 65536);
    return {
      lane, series: key % 65536, time: order ? permute(time, order) : time,
      value: order ? permute(value, order) : value,
    };
  });
}

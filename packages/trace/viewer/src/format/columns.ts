/** Packed columns of event and sample chunks. */

import { TraceError } from "./chunks";

export type Numbers = Int8Array | Uint8Array | Uint16Array | Uint32Array | Int32Array | Float64Array;

/** Events of a chunk, sorted by lane and start. Times are nanoseconds from the origin. */
export interface EventColumns {
  rows: number;
  /** Lanes that occur, and the first row of each; the last entry of `laneFirst` is `rows`. */
  lanes: Uint32Array;
  laneFirst: Uint32Array;
  kind: Uint8Array;
  flags: Uint8Array;
  node: Uint32Array;
  step: Uint32Array;
  iteration: Uint32Array;
  start: Float64Array;
  /** From start to end. */
  duration: Numbers;
  /** From ready to start. */
  delay: Numbers;
  inputBytes: Numbers;
  outputBytes: Numbers;
}

export interface SampleColumns {
  rows: number;
  lane: Uint16Array;
  series: Uint16Array;
  time: Float64Array;
  value: Float64Array;
}

const EVENT_COLUMNS = 11;
const SAMPLE_COLUMNS = 4;
const LEVEL_COLUMNS = 8;

/** The types of arrays with the range of their values, smallest first. */
const TYPES = [
  { Type: Int8Array, low: -128, high: 127 },
  { Type: Uint16Array, low: 0, high: 2 ** 16 - 1 },
  { Type: Uint32Array, low: 0, high: 2 ** 32 - 1 },
  { Type: Int32Array, low: -(2 ** 31), high: 2 ** 31 - 1 },
  { Type: Float64Array, low: -Infinity, high: Infinity },
] as const;

/** Return an array of the smallest type that holds values of a range. */
export function makeNarrow(low: number, high: number, length: number): Numbers {
  const { Type } = TYPES.find((type) => type.low <= low && high <= type.high)!;
  return new Type(length);
}

/** Return an array of the smallest type that holds the values of all columns. */
export function makeCommon(columns: readonly Numbers[], length: number): Numbers {
  let [low, high] = [0, 0];
  for (const column of columns) {
    const type = TYPES.find(({ Type }) => column instanceof Type);
    if (!type) return new (columns[0].constructor as Uint8ArrayConstructor)(length);
    low = Math.min(low, type.low);
    high = Math.max(high, type.high);
  }
  return makeNarrow(low, high, length);
}

/** Reads one packed column after the other. */
class ColumnReader {
  private offset = 1;
  private readonly data: DataView;

  constructor(private readonly bytes: Uint8Array, private readonly rows: number, count: number) {
    if (!bytes.length || bytes[0] < count) {
      throw new TraceError(`a chunk has ${bytes.length ? bytes[0] : 0} of ${count} columns`);
    }
    this.data = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  private begin(): { width: number; base: bigint; planes: Uint8Array } {
    if (this.offset + 9 > this.bytes.length) throw new TraceError("a chunk ends before a column");
    const width = this.data.getUint8(this.offset);
    const base = this.data.getBigInt64(this.offset + 1, true);
    const offset = this.offset + 9;
    this.offset = offset + this.rows * width;
    if (width > 8 || this.offset > this.bytes.length) {
      throw new TraceError("a chunk has a damaged column");
    }
    return { width, base, planes: this.bytes.subarray(offset, this.offset) };
  }

  /** Read a column into `out`: integers of less than 2⁵³. */
  read<T extends Numbers>(out: T): T {
    const { width, base, planes } = this.begin();
    this.fill(out, width, Number(base), planes);
    return out;
  }

  /** Read a column into the smallest array that holds its values. */
  readNarrow(): Numbers {
    const { width, base, planes } = this.begin();
    const low = Number(base);
    const high = low + this.largest(width, planes);
    const out = makeNarrow(low, high, this.rows);
    this.fill(out, width, low, planes);
    return out;
  }

  /** Return a bound of the unsigned numbers of a column. */
  private largest(width: number, planes: Uint8Array): number {
    if (width === 0) return 0;
    if (width > 4) return Infinity;
    let most = 0;
    for (let i = (width - 1) * this.rows; i < width * this.rows; i++) {
      if (planes[i] > most) most = planes[i];
    }
    return (most + 1) * 2 ** (8 * (width - 1)) - 1;
  }

  /** Read a column of differences as nanoseconds from `origin`. */
  readTimes(origin: bigint): Float64Array {
    if (this.offset + 8 > this.bytes.length) throw new TraceError("a chunk ends before a column");
    const first = this.data.getBigInt64(this.offset, true);
    this.offset += 8;
    const out = this.read(new Float64Array(this.rows));
    if (out.length) out[0] = Number(first - origin);
    for (let i = 1; i < out.length; i++) out[i] += out[i - 1];
    return out;
  }

  private fill(out: Numbers, width: number, base: number, planes: Uint8Array): void {
    if (width === 0) out.fill(base);
    else if (out instanceof Float64Array) fillFloats(out, planes, width, base);
    else if (out instanceof Uint32Array) fillIntegers(out, planes, width, base);
    else {
      const wide = new Uint32Array(this.rows);
      fillIntegers(wide, planes, width, base);
      out.set(wide);
    }
  }
}

// Loops over arrays are written once for each element type: a loop that meets several of them is
// compiled to code that is ten times as slow.

function fillIntegers(out: Uint32Array, planes: Uint8Array, width: number, base: number): void {
  const n = out.length;
  if (width === 1) for (let i = 0; i < n; i++) out[i] = base + planes[i];
  else if (width === 2) for (let i = 0; i < n; i++) out[i] = base + (planes[i] | (planes[n + i] << 8));
  else {
    for (let i = 0; i < n; i++) {
      const high = width > 3 ? planes[3 * n + i] << 24 : 0;
      out[i] = base + (planes[i] | (planes[n + i] << 8) | (planes[2 * n + i] << 16) | high);
    }
  }
}

function fillFloats(out: Float64Array, planes: Uint8Array, width: number, base: number): void {
  const n = out.length;
  for (let i = 0; i < n; i++) out[i] = base + planes[i];
  if (width > 1) for (let i = 0; i < n; i++) out[i] += planes[n + i] << 8;
  for (let k = 2; k < width; k++) {
    const [plane, factor] = [planes.subarray(k * n, (k + 1) * n), 256 ** k];
    for (let i = 0; i < n; i++) out[i] += plane[i] * factor;
  }
}

/** Return the events of a payload. Throws a TraceError if its columns are damaged. */
export function unpackEvents(payload: Uint8Array, rows: number, origin: bigint): EventColumns {
  const reader = new ColumnReader(payload, rows, EVENT_COLUMNS);
  const kind = reader.read(new Uint8Array(rows));
  const flags = reader.read(new Uint8Array(rows));
  const lane = reader.read(new Uint16Array(rows));
  const node = reader.read(new Uint32Array(rows));
  const step = reader.read(new Uint32Array(rows));
  const iteration = reader.read(new Uint32Array(rows));
  const delay = reader.readNarrow();
  const start = reader.readTimes(origin);
  const duration = reader.readNarrow();
  const inputBytes = reader.readNarrow();
  const outputBytes = reader.readNarrow();
  const { order, lanes, laneFirst } = sortByLane(lane);
  const take = <T extends Numbers>(column: T): T => permute(column, order);
  return {
    rows, lanes, laneFirst,
    kind: take(kind), flags: take(flags), node: take(node), step: take(step),
    iteration: take(iteration), start: take(start), duration: take(duration), delay: take(delay),
    inputBytes: take(inputBytes), outputBytes: take(outputBytes),
  };
}

/** Return the samples of a payload. Throws a TraceError if its columns are damaged. */
export function unpackSamples(payload: Uint8Array, rows: number, origin: bigint): SampleColumns {
  const reader = new ColumnReader(payload, rows, SAMPLE_COLUMNS);
  const lane = reader.read(new Uint16Array(rows));
  const series = reader.read(new Uint16Array(rows));
  const time = reader.readTimes(origin);
  const value = reader.read(new Float64Array(rows));
  // A value is stored as the difference from the last one of its counter.
  const last = new Map<number, number>();
  for (let i = 0; i < rows; i++) {
    const key = lane[i] * 65536 + series[i];
    value[i] += last.get(key) ?? 0;
    last.set(key, value[i]);
  }
  return { rows, lane, series, time, value };
}

/** Rows of a level of detail: the counterpart of `LEVEL` of `weft_trace/schema.py`. */
export interface LevelColumns {
  rows: number;
  kind: Uint8Array;
  lane: Uint16Array;
  start: Float64Array;
  span: Float64Array;
  busy: Float64Array;
}

/** Return the rows of a LEVELS payload. Throws a TraceError if its columns are damaged. */
export function unpackLevels(payload: Uint8Array, rows: number, origin: bigint): LevelColumns {
  const reader = new ColumnReader(payload, rows, LEVEL_COLUMNS);
  reader.read(new Uint8Array(rows)); // the level, which the header of the chunk has too
  const kind = reader.read(new Uint8Array(rows));
  const lane = reader.read(new Uint16Array(rows));
  reader.read(new Uint32Array(rows)); // the node
  reader.read(new Uint32Array(rows)); // the number of events
  const start = reader.readTimes(origin);
  const span = reader.read(new Float64Array(rows));
  return { rows, kind, lane, start, span, busy: reader.read(new Float64Array(rows)) };
}

/** Return a stable order of rows by lane, and where each lane begins. */
function sortByLane(lane: Uint16Array): {
  order: Uint32Array; lanes: Uint32Array; laneFirst: Uint32Array;
} {
  const counts = new Uint32Array(65537);
  for (let i = 0; i < lane.length; i++) counts[lane[i] + 1]++;
  const lanes: number[] = [];
  const first: number[] = [];
  for (let k = 0; k < 65536; k++) {
    if (counts[k + 1]) {
      lanes.push(k);
      first.push(counts[k]);
    }
    counts[k + 1] += counts[k];
  }
  const order = new Uint32Array(lane.length);
  for (let i = 0; i < lane.length; i++) order[counts[lane[i]]++] = i;
  return { order, lanes: Uint32Array.from(lanes), laneFirst: Uint32Array.from([...first, lane.length]) };
}

/** Return the values of a column in another order. */
export function permute<T extends Numbers>(column: T, order: Uint32Array): T {
  const Type = column.constructor as new (buffer: number | ArrayBuffer) => T;
  const out = new Type(order.length);
  // Values are moved and not computed with, so that only their width matters.
  const view = <V>(View: new (b: ArrayBufferLike, o: number, n: number) => V, array: Numbers): V =>
    new View(array.buffer, array.byteOffset, array.length);
  switch (column.BYTES_PER_ELEMENT) {
    case 1: permute8(view(Uint8Array, out), view(Uint8Array, column), order); break;
    case 2: permute16(view(Uint16Array, out), view(Uint16Array, column), order); break;
    case 4: permute32(view(Uint32Array, out), view(Uint32Array, column), order); break;
    default: permute64(view(Float64Array, out), view(Float64Array, column), order);
  }
  return out;
}

function permute8(out: Uint8Array, column: Uint8Array, order: Uint32Array): void {
  for (let i = 0; i < order.length; i++) out[i] = column[order[i]];
}

function permute16(out: Uint16Array, column: Uint16Array, order: Uint32Array): void {
  for (let i = 0; i < order.length; i++) out[i] = column[order[i]];
}

function permute32(out: Uint32Array, column: Uint32Array, order: Uint32Array): void {
  for (let i = 0; i < order.length; i++) out[i] = column[order[i]];
}

function permute64(out: Float64Array, column: Float64Array, order: Uint32Array): void {
  for (let i = 0; i < order.length; i++) out[i] = column[order[i]];
}

/** Packed columns of event and sample chunks. */

import { TraceError } from "./chunks";

export type Numbers = Uint8Array | Uint16Array | Uint32Array | Int32Array | Float64Array;

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

  private begin(): { width: number; base: bigint; offset: number } {
    if (this.offset + 9 > this.bytes.length) throw new TraceError("a chunk ends before a column");
    const width = this.data.getUint8(this.offset);
    const base = this.data.getBigInt64(this.offset + 1, true);
    const offset = this.offset + 9;
    this.offset = offset + this.rows * width;
    if (![0, 1, 2, 4, 8].includes(width) || this.offset > this.bytes.length) {
      throw new TraceError("a chunk has a damaged column");
    }
    return { width, base, offset };
  }

  /** Read a column into `out`: integers of less than 2⁵³. */
  read<T extends Numbers>(out: T): T {
    const { width, base, offset } = this.begin();
    this.fill(out, width, Number(base), offset);
    return out;
  }

  /** Read a column into the smallest array that holds its values. */
  readNarrow(): Numbers {
    const { width, base, offset } = this.begin();
    const low = Number(base);
    const high = low + (width === 8 ? Infinity : 2 ** (8 * width) - 1);
    let out: Numbers;
    if (low >= 0 && high < 2 ** 32) out = new Uint32Array(this.rows);
    else if (low >= -(2 ** 31) && high < 2 ** 31) out = new Int32Array(this.rows);
    else out = new Float64Array(this.rows);
    this.fill(out, width, low, offset);
    return out;
  }

  /** Read a column of differences as nanoseconds from `origin`. */
  readTimes(origin: bigint): Float64Array {
    const { width, base, offset } = this.begin();
    const out = new Float64Array(this.rows);
    if (!this.rows) return out;
    this.fill(out, width, Number(base), offset);
    // The first difference is an absolute time, too large for a float.
    out[0] = Number(BigInt.asIntN(64, base + this.unsigned(width, offset) - origin));
    for (let i = 1; i < out.length; i++) out[i] += out[i - 1];
    return out;
  }

  private unsigned(width: number, offset: number): bigint {
    let value = 0n;
    for (let i = width - 1; i >= 0; i--) value = (value << 8n) | BigInt(this.bytes[offset + i]);
    return value;
  }

  private fill(out: Numbers, width: number, base: number, offset: number): void {
    const n = this.rows;
    const bytes = this.bytes;
    const data = this.data;
    if (width === 0) out.fill(base);
    else if (width === 1) for (let i = 0; i < n; i++) out[i] = base + bytes[offset + i];
    else if (width === 2) {
      for (let i = 0, at = offset; i < n; i++, at += 2) out[i] = base + data.getUint16(at, true);
    } else if (width === 4) {
      for (let i = 0, at = offset; i < n; i++, at += 4) out[i] = base + data.getUint32(at, true);
    } else {
      for (let i = 0, at = offset; i < n; i++, at += 8) {
        out[i] = base + data.getUint32(at, true) + data.getUint32(at + 4, true) * 2 ** 32;
      }
    }
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
  return {
    rows,
    lane: reader.read(new Uint16Array(rows)),
    series: reader.read(new Uint16Array(rows)),
    time: reader.readTimes(origin),
    value: reader.read(new Float64Array(rows)),
  };
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
  const Type = column.constructor as new (length: number) => T;
  const out = new Type(order.length);
  for (let i = 0; i < order.length; i++) out[i] = column[order[i]];
  return out;
}

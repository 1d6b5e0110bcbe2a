/** Bins of levels of detail: the counterpart of `weft_trace/bins.py`. */

import type { LevelColumns, SampleColumns } from "../format/columns";
import { Kind } from "../model/schema";
import type { LaneBins } from "./parted";

const KINDS = 12;

/** Adds rows of levels of detail up to bins. */
export class Binning {
  private readonly times: (Float32Array | undefined)[] = [];

  constructor(readonly begin: number, readonly end: number, readonly count: number) {}

  /** Add the rows that overlap the interval. */
  add(rows: LevelColumns): void {
    const { kind, lane, start, span, busy } = rows;
    const scale = this.count / (this.end - this.begin);
    for (let i = 0; i < rows.rows; i++) {
      if (start[i] >= this.end || start[i] + span[i] <= this.begin) continue;
      if (kind[i] === Kind.STEP || kind[i] === Kind.BUFFER) continue;
      const from = (start[i] - this.begin) * scale;
      const length = Math.max(span[i] * scale, 1e-9);
      const density = Math.max(busy[i] * scale, 1e-9) / length;
      const to = Math.min(this.count, from + length);
      let times = this.times[lane[i]];
      if (!times) times = this.times[lane[i]] = new Float32Array(KINDS * this.count);
      const offset = Math.min(kind[i], KINDS - 1) * this.count;
      for (let bin = Math.max(0, Math.floor(from)); bin < to; bin++) {
        times[offset + bin] += density * (Math.min(to, bin + 1) - Math.max(from, bin, 0));
      }
    }
  }

  /** Return the bins of all lanes. */
  finish(): (LaneBins | undefined)[] {
    return this.times.map((times) => times && this.summarize(times));
  }

  private summarize(times: Float32Array): LaneBins {
    const { count } = this;
    const kinds = new Uint8Array(count);
    const shares = new Uint8Array(count);
    for (let bin = 0; bin < count; bin++) {
      let [sum, most] = [0, 0];
      for (let kind = 0; kind < KINDS; kind++) {
        const time = times[kind * count + bin];
        sum += time;
        if (time > most) [most, kinds[bin]] = [time, kind];
      }
      // The kernels of a region are inside of it.
      const inner = times[Kind.GENERATED * count + bin];
      shares[bin] = Math.min(255, Math.ceil(Math.max(sum - inner, inner) * 255));
    }
    return { kinds, shares };
  }
}

/** Return the bytes in use of a memory lane in each bin, as a share of their largest number. */
export function binMemory(
  samples: readonly SampleColumns[], lane: number, begin: number, end: number, count: number,
): LaneBins {
  const values = new Float64Array(count).fill(-1);
  let [peak, before] = [0, 0];
  for (const { rows, lane: lanes, series, time, value } of samples) {
    for (let i = 0; i < rows; i++) {
      if (lanes[i] !== lane || series[i] !== 0) continue;
      peak = Math.max(peak, value[i]);
      if (time[i] < begin) before = value[i];
      const bin = Math.floor(((time[i] - begin) / (end - begin)) * count);
      if (bin >= 0 && bin < count && value[i] > values[bin]) values[bin] = value[i];
    }
  }
  const shares = new Uint8Array(count);
  for (let bin = 0; bin < count; bin++) {
    if (values[bin] >= 0) before = values[bin];
    shares[bin] = peak > 0 ? Math.min(255, Math.ceil((before / peak) * 255)) : 0;
  }
  return { kinds: new Uint8Array(count), shares };
}

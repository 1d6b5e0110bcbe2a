/** A trace in memory: its records, and its events in typed arrays. */

import type { Numbers } from "../format/columns";
import type { Records } from "../format/records";
import { upperBound } from "./rows";
import { ESTIMATED, FAILED, Kind, type Lane, type Node, type Process } from "./schema";

/** Events of one lane that do not overlap: those of [from, to), sorted by start. */
export interface Row {
  lane: number;
  depth: number;
  from: number;
  to: number;
  /** The sum of the durations before each block of `BLOCK` events. */
  busy: Float64Array;
}

export const BLOCK = 16;

/** The columns of events, sorted by lane, row and start. Times are nanoseconds from the origin. */
export interface Columns {
  count: number;
  kind: Uint8Array;
  flags: Uint8Array;
  node: Uint16Array | Uint32Array;
  step: Uint16Array | Uint32Array;
  iteration: Uint16Array | Uint32Array;
  start: Float64Array;
  duration: Numbers;
  delay: Numbers;
  inputBytes: Numbers;
  outputBytes: Numbers;
}

/** A counter of a lane; `time` is sorted. */
export interface Series {
  lane: number;
  series: number;
  time: Float64Array;
  value: Float64Array;
}

/** A step and its event; `start` and `end` are nanoseconds from the origin. */
export interface StepSpan {
  id: number;
  event: number;
  start: number;
  end: number;
  label: string;
  number: number;
}

const UNKNOWN: Node = {
  name: "(unknown node)", op: "", device: "", line: "", inputs: [], origins: [], crossing: 0,
  members: [], outputBytes: -1,
};

export class Trace {
  readonly begin: number;
  readonly end: number;
  readonly laneRows: readonly (readonly Row[])[];
  readonly steps: readonly StepSpan[];
  private readonly stepOf = new Map<number, number>();

  /** `noStep` is the value of the column `step` outside of steps. */
  constructor(
    readonly name: string,
    readonly origin: bigint,
    readonly records: Records,
    readonly columns: Columns,
    readonly rows: readonly Row[],
    readonly series: readonly Series[],
    readonly warnings: readonly string[],
    readonly noStep: number,
  ) {
    const laneRows: Row[][] = records.lanes.map(() => []);
    let begin = Infinity;
    let end = -Infinity;
    for (const row of rows) {
      laneRows[row.lane].push(row);
      begin = Math.min(begin, columns.start[row.from]);
      end = Math.max(end, this.endOf(row.to - 1));
    }
    this.laneRows = laneRows;
    this.begin = Number.isFinite(begin) ? begin : 0;
    this.end = Number.isFinite(end) ? end : 1;
    this.steps = this.findSteps();
    this.steps.forEach((step, index) => this.stepOf.set(step.id, index));
  }

  /** Return the same trace with other warnings before its own. */
  withWarnings(warnings: readonly string[]): Trace {
    const { name, origin, records, columns, rows, series, noStep } = this;
    return new Trace(name, origin, records, columns, rows, series, [...warnings, ...this.warnings], noStep);
  }

  endOf(event: number): number {
    return this.columns.start[event] + this.columns.duration[event];
  }

  readyOf(event: number): number {
    return this.columns.start[event] - this.columns.delay[event];
  }

  node(id: number): Node {
    return this.records.nodes[id] ?? UNKNOWN;
  }

  nodeOf(event: number): Node {
    return this.node(this.columns.node[event]);
  }

  isEstimated(event: number): boolean {
    return (this.columns.flags[event] & ESTIMATED) !== 0;
  }

  hasFailed(event: number): boolean {
    return (this.columns.flags[event] & FAILED) !== 0;
  }

  process(lane: Lane): Process {
    const unknown = { name: `process ${lane.process}`, pid: 0, host: "" };
    return (
      this.records.processes[lane.process] ?? { ...unknown, clockOffset: 0, clockError: 0 }
    );
  }

  /** Return the row that contains an event. */
  rowOf(event: number): Row {
    let low = 0;
    let high = this.rows.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >>> 1;
      if (this.rows[middle].from <= event) low = middle;
      else high = middle - 1;
    }
    return this.rows[low];
  }

  laneOf(event: number): number {
    return this.rowOf(event).lane;
  }

  /** Return the step of an event, or null if it is outside of steps. */
  stepOfEvent(event: number): StepSpan | null {
    const id = this.columns.step[event];
    const index = id === this.noStep ? undefined : this.stepOf.get(id);
    return index === undefined ? null : this.steps[index];
  }

  /** Return the events of a row that overlap an interval, as a range of indices. */
  overlapping(row: Row, begin: number, end: number): [number, number] {
    const { start } = this.columns;
    let first = upperBound(start, begin, row.from, row.to);
    while (first > row.from && this.endOf(first - 1) > begin) first--;
    return [first, Math.max(first, upperBound(start, end, row.from, row.to))];
  }

  /** Return the sum of the durations of the events of a row before an index. */
  busyBefore(row: Row, index: number): number {
    const block = Math.floor((index - row.from) / BLOCK);
    let sum = row.busy[block];
    for (let i = row.from + block * BLOCK; i < index; i++) sum += this.columns.duration[i];
    return sum;
  }

  /** Return the time of day of a time, in nanoseconds since the epoch. */
  epoch(time: number): bigint {
    return this.origin + BigInt(Math.round(time));
  }

  private findSteps(): StepSpan[] {
    const { kind, step, start } = this.columns;
    const steps: StepSpan[] = [];
    for (const row of this.rows) {
      if (row.depth > 2) continue;
      for (let i = row.from; i < row.to; i++) {
        if (kind[i] !== Kind.STEP || step[i] === this.noStep) continue;
        const record = this.records.steps[step[i]];
        steps.push({
          id: step[i], event: i, start: start[i], end: this.endOf(i),
          label: record?.label ?? "(unknown step)", number: record?.number ?? 0,
        });
      }
    }
    return steps.sort((a, b) => a.start - b.start);
  }
}

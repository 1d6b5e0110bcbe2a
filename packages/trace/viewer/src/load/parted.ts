/** Traces that are read in parts: an overview at first, and the events of an interval on demand. */

import { TraceError } from "../format/chunks";
import type { StepSpan, Trace } from "../model/trace";

/** Lanes of an interval as bins of equal width, for views of more events than pixels. */
export interface Bins {
  begin: number;
  end: number;
  count: number;
  /** By lane; undefined if nothing happens in it. */
  lanes: readonly (LaneBins | undefined)[];
  /** Number of events that overlap the interval, or a bound of it. */
  events: number;
}

export interface LaneBins {
  /** The kind with the most time. */
  kinds: Uint8Array;
  /** The busy share from 0 to 255; of a memory lane, the share of the largest use. */
  shares: Uint8Array;
}

/** A trace of which parts can be read. Times are nanoseconds from the origin of `base`. */
export interface PartedSource {
  readonly name: string;
  readonly count: number;
  readonly interval: readonly [number, number];
  readonly warnings: readonly string[];
  /** All records, and the events of all steps. */
  readonly base: Trace;
  /** True if it is read as a whole. */
  readonly isSmall: boolean;
  /** The id of the step to begin with, if it is known. */
  readonly firstStep: number | null;
  /** Return an interval as bins. */
  readBins(begin: number, end: number, count: number): Promise<Bins>;
  /** Return the events of an interval. Throws TooManyEvents if they are more than `limit`. */
  readEvents(begin: number, end: number, limit: number): Promise<Trace>;
}

/** A part of a trace: all events of an interval. */
export interface Part {
  trace: Trace;
  begin: number;
  end: number;
}

export class TooManyEvents extends TraceError {}

export const MOST_EVENTS = 2_000_000; // of a step
const NEARBY_EVENTS = 30_000; // before and after a step, which are read with it

/** Return the part around a step. */
export async function readStep(source: PartedSource, step: StepSpan): Promise<Part> {
  const { steps } = source.base;
  const at = steps.findIndex((other) => other.id === step.id);
  const neighbors = Math.ceil((NEARBY_EVENTS * steps.length) / source.count);
  const before = steps[Math.max(0, at - neighbors)];
  const after = steps[Math.min(steps.length - 1, at + neighbors)];
  try {
    return await readPart(source, before.start, after.end + 1, MOST_EVENTS);
  } catch (error) {
    if (!(error instanceof TooManyEvents)) throw error;
    return readPart(source, step.start, step.end + 1, MOST_EVENTS);
  }
}

/** Return the beginning of a trace, which has no steps. */
export async function readBeginning(source: PartedSource): Promise<Part> {
  const [first, last] = source.interval;
  for (let length = last - first; ; length /= 4) {
    const share = Math.min(1, (4 * NEARBY_EVENTS) / source.count);
    try {
      return await readPart(source, first, first + length * share + 1, MOST_EVENTS);
    } catch (error) {
      if (!(error instanceof TooManyEvents) || length < 1000) throw error;
    }
  }
}

export async function readPart(
  source: PartedSource, begin: number, end: number, limit: number,
): Promise<Part> {
  return { trace: await source.readEvents(begin, end, limit), begin, end };
}

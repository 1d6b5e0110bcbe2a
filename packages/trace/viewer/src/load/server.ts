/** Traces of a local server, which are read in parts. README.md describes the URLs. */

import { TraceError } from "../format/chunks";
import type { StepSpan, Trace } from "../model/trace";
import { decodeTrace, type Decoder } from "./decode";

const MOST_EVENTS = 2_000_000; // of a part
const NEARBY_EVENTS = 100_000; // before and after a step, which are read with it

/** A trace on the server: its records and steps, and the way to its parts. */
export class ServedTrace {
  private constructor(
    private readonly index: number,
    readonly name: string,
    readonly count: number,
    private readonly warnings: readonly string[],
    /** All records, and the events of all steps. */
    private readonly base: Trace,
    private readonly interval: readonly [number, number],
    private readonly decoder: Decoder,
  ) {}

  /** Return a trace of the server, or null if it has no trace with this index. */
  static async open(index: number, decoder: Decoder): Promise<ServedTrace | null> {
    const response = await fetch(`${index}/info.json`);
    if (response.status === 404) return null;
    const info = (await checked(response).json()) as {
      name: string; events: number; first: string; last: string; warnings: string[];
    };
    const base = await decodeTrace(info.name, await fetchBytes(`${index}/records`), decoder);
    const interval = [info.first, info.last].map((time) => Number(BigInt(time) - base.origin));
    return new ServedTrace(
      index, info.name, info.events, info.warnings, base, interval as [number, number], decoder,
    );
  }

  get steps(): readonly StepSpan[] {
    return this.base.steps;
  }

  /** Return the whole trace if it is small, and else the part around a step, or the beginning. */
  async read(step: StepSpan | null): Promise<Trace> {
    const [first, last] = this.interval;
    if (this.count <= MOST_EVENTS) return this.readPart(first, last + 1);
    if (!step) return this.readPart(first, first + (last - first) * (MOST_EVENTS / this.count) * 0.5);
    const at = this.steps.findIndex((other) => other.id === step.id);
    const neighbors = Math.ceil((NEARBY_EVENTS * this.steps.length) / this.count);
    const before = this.steps[Math.max(0, at - neighbors)];
    const after = this.steps[Math.min(this.steps.length - 1, at + neighbors)];
    try {
      return await this.readPart(before.start, after.end + 1);
    } catch (error) {
      if (!(error instanceof TooManyEvents)) throw error;
      return this.readPart(step.start, step.end + 1);
    }
  }

  private async readPart(begin: number, end: number): Promise<Trace> {
    const [from, to] = [begin, end].map((time) => this.base.epoch(time));
    const bytes = await fetchBytes(`${this.index}/events?from=${from}&to=${to}&limit=${MOST_EVENTS}`);
    const part = await decodeTrace(this.name, bytes, this.decoder, undefined, this.base);
    return part.withWarnings(this.warnings);
  }
}

class TooManyEvents extends TraceError {}

function checked(response: Response): Response {
  if (response.status === 413) {
    throw new TooManyEvents(
      `the interval has more than ${MOST_EVENTS} events, which this page cannot show together`,
    );
  }
  if (!response.ok) {
    throw new TraceError(`the server of the trace answered ${response.status} to a request`);
  }
  return response;
}

async function fetchBytes(url: string): Promise<Uint8Array> {
  return new Uint8Array(await checked(await fetch(url)).arrayBuffer());
}

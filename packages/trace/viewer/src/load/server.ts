/** Traces of a local server, which are read in parts. README.md describes the URLs. */

import { TraceError } from "../format/chunks";
import type { Trace } from "../model/trace";
import { decodeTrace, type Decoder } from "./decode";
import { TooManyEvents, type Bins, type LaneBins, type PartedSource } from "./parted";

/** A trace on the server: its records and steps, and the way to its parts. */
export class ServedTrace implements PartedSource {
  readonly firstStep = null;

  private constructor(
    private readonly index: number,
    readonly name: string,
    readonly count: number,
    readonly warnings: readonly string[],
    readonly base: Trace,
    readonly interval: readonly [number, number],
    readonly isSmall: boolean,
    private readonly decoder: Decoder,
  ) {}

  /** Return a trace of the server, or null if it has no trace with this index. */
  static async open(index: number, decoder: Decoder): Promise<ServedTrace | null> {
    const response = await fetch(`${index}/info.json`);
    if (response.status === 404) return null;
    const info = (await checked(response).json()) as {
      name: string; events: number; small: boolean; first: string; last: string; warnings: string[];
    };
    const base = await decodeTrace(info.name, await fetchBytes(`${index}/records`), decoder);
    const interval = [info.first, info.last].map((time) => Number(BigInt(time) - base.origin));
    return new ServedTrace(
      index, info.name, info.events, info.warnings, base, interval as [number, number], info.small,
      decoder,
    );
  }

  async readBins(begin: number, end: number, count: number): Promise<Bins> {
    begin = Math.max(begin, -Number(this.base.origin)); // the server knows no times before 1970
    const bytes = await fetchBytes(`${this.index}/levels?${this.query(begin, end)}&bins=${count}`);
    const data = new DataView(bytes.buffer);
    const lanes: LaneBins[] = [];
    for (let lane = 0, at = 16; lane < data.getUint32(0, true); lane++, at += 2 * count) {
      const [kinds, shares] = [bytes.subarray(at, at + count), bytes.subarray(at + count, at + 2 * count)];
      lanes.push({ kinds, shares });
    }
    return { begin, end, count, lanes, events: Number(data.getBigUint64(8, true)) };
  }

  async readEvents(begin: number, end: number, limit: number): Promise<Trace> {
    const bytes = await fetchBytes(`${this.index}/events?${this.query(begin, end)}&limit=${limit}`);
    const part = await decodeTrace(this.name, bytes, this.decoder, undefined, this.base);
    return part.withWarnings(this.warnings);
  }

  private query(begin: number, end: number): string {
    const clip = (time: bigint) => (time < 0n ? 0n : time);
    const [from, to] = [begin, end].map((time) => clip(this.base.epoch(time)));
    return `from=${from}&to=${to}`;
  }
}

function checked(response: Response): Response {
  if (response.status === 413) {
    throw new TooManyEvents("the interval has more events than this page can show together");
  }
  if (!response.ok) {
    throw new TraceError(`the server of the trace answered ${response.status} to a request`);
  }
  return response;
}

async function fetchBytes(url: string): Promise<Uint8Array<ArrayBuffer>> {
  return new Uint8Array(await checked(await fetch(url)).arrayBuffer());
}

/** Decodes the bytes of a file into a trace, with workers where there are any. */

import {
  ChunkType, TraceError, checkFileHeader, listChunks, readPayload, type Damage, type Payload, type StoredChunk,
} from "../format/chunks";
import {
  unpackEvents, unpackLevels, unpackSamples, type EventColumns, type LevelColumns, type SampleColumns,
} from "../format/columns";
import { addRecords, emptyRecords } from "../format/records";
import type { Trace } from "../model/trace";
import { assemble } from "./assemble";

/** The rows of a chunk, or the reason why it is damaged. */
export interface Decoded {
  events?: EventColumns;
  samples?: SampleColumns;
  levels?: LevelColumns;
  error?: string;
}

/** A chunk to decode. `origin` is that of its times. */
export interface Task extends Payload {
  type: number;
  rows: number;
  origin: bigint;
}

/** Decodes chunks of rows, in this thread or in others. */
export type Decoder = (task: Task) => Promise<Decoded>;

/** Decode a chunk of rows in this thread. */
export async function decodeHere(task: Task): Promise<Decoded> {
  try {
    const payload = await readPayload(task);
    switch (task.type) {
      case ChunkType.LEVELS: return { levels: unpackLevels(payload, task.rows, task.origin) };
      case ChunkType.SAMPLES:
      case ChunkType.PEAKS: return { samples: unpackSamples(payload, task.rows, task.origin) };
      default: return { events: unpackEvents(payload, task.rows, task.origin) };
    }
  } catch (error) {
    if (error instanceof TraceError || error instanceof RangeError) return { error: error.message };
    throw error;
  }
}

/** Return what a worker needs of a chunk. */
export function makeTask(chunk: StoredChunk, origin: bigint): Task {
  const { type, isCompressed, checksum, checked, size, rows } = chunk;
  return { type, isCompressed, checksum, checked, size, rows, origin };
}

/**
 * Return the trace that the bytes of one file contain. A damaged file is read as far as it is
 * whole; the warnings of the trace say what is missing. The records and the origin are those of
 * `base` if the bytes are a part of a larger trace. Throws a TraceError if it is not a trace.
 */
export async function decodeTrace(
  name: string, bytes: Uint8Array, decoder: Decoder = decodeHere,
  progress: (share: number) => void = () => undefined, base: Trace | null = null,
): Promise<Trace> {
  checkFileHeader(bytes, name);
  const { chunks, damage } = listChunks(bytes);
  const lost = (offset: number, reason: string) =>
    `${name}: the last ${bytes.length - offset} bytes, from offset ${offset}, were not read: ${reason}`;
  const types = [ChunkType.EVENTS, ChunkType.SAMPLES];
  const trace = await decodeChunks(name, chunks, types, { decoder, progress, base, damage, lost });
  if (trace.warnings.length || chunks.some(({ type }) => type === ChunkType.END)) return trace;
  return trace.withWarnings([`${name}: the recording was not closed, so its last events may be missing`]);
}

interface Options {
  decoder: Decoder;
  base: Trace | null;
  damage: Damage | null;
  /** Describes a damage at an offset. */
  lost: (offset: number, reason: string) => string;
  progress?: (share: number) => void;
}

/** Return the trace of some chunks, of which rows are read from those of the given types. */
export async function decodeChunks(
  name: string, chunks: readonly StoredChunk[], types: readonly ChunkType[], options: Options,
): Promise<Trace> {
  const { base, damage, lost, decoder, progress } = options;
  const warnings: string[] = damage ? [lost(damage.offset, damage.reason)] : [];
  const hasRows = ({ type }: StoredChunk) => types.includes(type);
  const origin = base ? base.origin : firstTime(chunks.filter(hasRows));
  let done = 0;
  const decoding = chunks.map((chunk): Promise<Decoded> => {
    if (!hasRows(chunk)) return Promise.resolve({});
    return decoder(makeTask(chunk, origin)).then((result) => {
      progress?.(++done / chunks.length);
      return result;
    });
  });
  const records = base ? base.records : emptyRecords();
  const events: EventColumns[] = [];
  const samples: SampleColumns[] = [];
  const results = await Promise.all(decoding);
  for (const [index, chunk] of chunks.entries()) {
    try {
      if (chunk.type === ChunkType.RECORDS && !base) addRecords(records, await readPayload(chunk));
      const { events: rows, samples: counts, error } = results[index];
      if (error !== undefined) throw new TraceError(error);
      if (rows) events.push(rows);
      if (counts) samples.push(counts);
    } catch (error) {
      if (!(error instanceof TraceError)) throw error;
      warnings.splice(0, warnings.length, lost(chunk.offset, error.message));
      break;
    }
  }
  return assemble(name, origin, records, events, samples, warnings);
}

function firstTime(chunks: readonly StoredChunk[]): bigint {
  let first: bigint | null = null;
  for (const { first: time } of chunks) if (first === null || time < first) first = time;
  return first ?? 0n;
}

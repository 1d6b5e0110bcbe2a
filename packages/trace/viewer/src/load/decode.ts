/** Decodes the bytes of a file into a trace, with workers where there are any. */

import {
  ChunkType, TraceError, checkFileHeader, listChunks, readPayload, type Payload, type StoredChunk,
} from "../format/chunks";
import { unpackEvents, unpackSamples, type EventColumns, type SampleColumns } from "../format/columns";
import { addRecords, emptyRecords } from "../format/records";
import type { Trace } from "../model/trace";
import { assemble } from "./assemble";

/** The rows of a chunk, or the reason why it is damaged. */
export interface Decoded {
  events?: EventColumns;
  samples?: SampleColumns;
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
    return task.type === ChunkType.EVENTS
      ? { events: unpackEvents(payload, task.rows, task.origin) }
      : { samples: unpackSamples(payload, task.rows, task.origin) };
  } catch (error) {
    if (error instanceof TraceError || error instanceof RangeError) return { error: error.message };
    throw error;
  }
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
  const warnings: string[] = [];
  const lost = (offset: number, reason: string) =>
    `${name}: the last ${bytes.length - offset} bytes, from offset ${offset}, were not read: ${reason}`;
  if (damage) warnings.push(lost(damage.offset, damage.reason));
  const origin = base ? base.origin : firstTime(chunks);
  let done = 0;
  const decoding = chunks.map((chunk): Promise<Decoded> => {
    if (chunk.type !== ChunkType.EVENTS && chunk.type !== ChunkType.SAMPLES) return Promise.resolve({});
    const { type, isCompressed, checksum, checked, size, rows } = chunk;
    return decoder({ type, isCompressed, checksum, checked, size, rows, origin }).then((result) => {
      progress(++done / chunks.length);
      return result;
    });
  });
  const records = base ? base.records : emptyRecords();
  const events: EventColumns[] = [];
  const samples: SampleColumns[] = [];
  const results = await Promise.all(decoding);
  for (const [index, chunk] of chunks.entries()) {
    try {
      if (chunk.type === ChunkType.RECORDS) addRecords(records, await readPayload(chunk));
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
  for (const { type, first: time } of chunks) {
    if (type !== ChunkType.EVENTS && type !== ChunkType.SAMPLES) continue;
    if (first === null || time < first) first = time;
  }
  return first ?? 0n;
}

/** The chunks of a trace file, as `weft_trace/chunks.py` describes them. */

import { crc32 } from "./crc32";

export const VERSION = 2;
export const FILE_HEADER_BYTES = 16;
export const CHUNK_HEADER_BYTES = 40;
const CHECKED = 8; // offset in the header of the first byte that the checksum covers
const MAX_CHUNK = 1 << 28;
const MAGIC = "WEFTTRC\n";

export enum ChunkType {
  RECORDS = 1,
  EVENTS = 2,
  SAMPLES = 3,
  LEVELS = 4,
  STEPS = 5,
  PEAKS = 6,
  END = 7,
}

/** A file, or a part of it, that cannot be read. The message is for the user. */
export class TraceError extends Error {
  override name = "TraceError";
}

/** A chunk whose payload is still stored. */
export interface StoredChunk {
  type: number;
  /** Of the rows of a LEVELS chunk. */
  level: number;
  isCompressed: boolean;
  checksum: number;
  /** The header's bytes that the checksum covers, and the stored payload. */
  checked: Uint8Array;
  stored: Uint8Array;
  size: number;
  rows: number;
  first: bigint;
  last: bigint;
  offset: number;
}

export interface Damage {
  offset: number;
  reason: string;
}

/** Throw a TraceError unless the bytes begin a trace file of a known version. */
export function checkFileHeader(bytes: Uint8Array, name: string): void {
  const magic = String.fromCharCode(...bytes.subarray(0, MAGIC.length));
  if (bytes.length < FILE_HEADER_BYTES || magic !== MAGIC) {
    throw new TraceError(
      `${name} is not a trace of weft: it does not begin with "WEFTTRC". Choose a file that ` +
        "weft.trace or weft trace record wrote.",
    );
  }
  const version = view(bytes).getUint32(8, true);
  if (version > VERSION) {
    throw new TraceError(
      `${name} has version ${version} of the trace format; this page reads version ` +
        `${VERSION}. Make the page with a newer weftml-trace.`,
    );
  }
  if (version < VERSION) {
    throw new TraceError(
      `${name} has version ${version} of the trace format, which was never released; this page ` +
        `reads version ${VERSION}. Record the trace again.`,
    );
  }
}

/** What the header of a chunk says. `bytes` is the size of the chunk with its header. */
export type ChunkHeader = Omit<StoredChunk, "checked" | "stored" | "offset"> & { bytes: number };

/** Return the header at an offset, or the reason why there is none. */
export function readHeader(data: DataView, offset: number): ChunkHeader | string {
  if (offset + CHUNK_HEADER_BYTES > data.byteLength) {
    return "the file ends inside the header of a chunk";
  }
  const storedSize = data.getUint32(offset + 12, true);
  const size = data.getUint32(offset + 16, true);
  const compression = data.getUint8(offset + 9);
  const isMarked = data.getUint32(offset, true) === 0x4b4e4843; // "CHNK"
  if (!isMarked || compression > 1 || Math.max(storedSize, size) > MAX_CHUNK) {
    return "there is no chunk here";
  }
  return {
    type: data.getUint8(offset + 8),
    level: data.getUint16(offset + 10, true),
    isCompressed: compression === 1,
    checksum: data.getUint32(offset + 4, true),
    size,
    rows: data.getUint32(offset + 20, true),
    first: data.getBigInt64(offset + 24, true),
    last: data.getBigInt64(offset + 32, true),
    bytes: CHUNK_HEADER_BYTES + storedSize,
  };
}

/** Return the chunk at an offset, or the reason why there is none. */
export function readChunk(bytes: Uint8Array, offset: number): StoredChunk | string {
  const header = readHeader(view(bytes), offset);
  if (typeof header === "string") return header;
  const end = offset + header.bytes;
  if (end > bytes.length) return "the file ends inside a chunk";
  return {
    ...header,
    checked: bytes.subarray(offset + CHECKED, end),
    stored: bytes.subarray(offset + CHUNK_HEADER_BYTES, end),
    offset,
  };
}

/** Return the chunks of a file whose header was checked, and where the file stops being readable. */
export function listChunks(bytes: Uint8Array): { chunks: StoredChunk[]; damage: Damage | null } {
  const chunks: StoredChunk[] = [];
  let offset = FILE_HEADER_BYTES;
  while (offset < bytes.length) {
    const chunk = readChunk(bytes, offset);
    if (typeof chunk === "string") return { chunks, damage: { offset, reason: chunk } };
    chunks.push(chunk);
    offset += CHUNK_HEADER_BYTES + chunk.stored.length;
  }
  return { chunks, damage: null };
}

/** The parts of a chunk that its payload depends on. */
export type Payload = Pick<StoredChunk, "isCompressed" | "checksum" | "checked" | "size">;

/** Return the payload of a chunk. Throws a TraceError if its bytes are damaged. */
export async function readPayload(chunk: Payload): Promise<Uint8Array> {
  if (crc32(chunk.checked) !== chunk.checksum) {
    throw new TraceError("the checksum of the chunk does not match its bytes");
  }
  const stored = chunk.checked.subarray(CHUNK_HEADER_BYTES - CHECKED);
  const payload = chunk.isCompressed ? await inflate(stored, chunk.size) : stored;
  if (payload === null || payload.length !== chunk.size) {
    throw new TraceError("the chunk cannot be decompressed");
  }
  return payload;
}

/** Return `size` bytes, or null if the data is not compressed to exactly that size. */
async function inflate(stored: Uint8Array, size: number): Promise<Uint8Array | null> {
  const stream = new DecompressionStream("deflate");
  const writer = stream.writable.getWriter();
  const writing = writer.write(stored as BufferSource).then(() => writer.close());
  writing.catch(() => undefined); // the reader reports the same error
  const reader = stream.readable.getReader();
  const result = new Uint8Array(size);
  let length = 0;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return length === size ? result : null;
      if (length + value.length > size) return null;
      result.set(value, length);
      length += value.length;
    }
  } catch {
    return null; // the data is not in the format of zlib
  } finally {
    reader.cancel().catch(() => undefined);
  }
}

function view(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

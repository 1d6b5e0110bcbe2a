/** Files of a million events or more, of which the page decodes only what is visible. */

import { ChunkType, TraceError, readChunk, type ChunkHeader, type StoredChunk } from "../format/chunks";
import type { LevelColumns, SampleColumns } from "../format/columns";
import { LaneKind } from "../model/schema";
import type { Trace } from "../model/trace";
import { Binning, binMemory } from "./binning";
import { decodeChunks, makeTask, type Decoder } from "./decode";
import { TooManyEvents, type Bins, type PartedSource } from "./parted";

/** The place of a chunk in a file, and what its header says of the rows. */
export type ChunkEntry = Pick<ChunkHeader, "type" | "level" | "rows" | "first" | "last"> & {
  /** The number of the part that contains the chunk, and its offset in the part. */
  part: number;
  offset: number;
  bytes: number;
};

/** The chunks of a file. */
export interface ChunkIndex {
  name: string;
  chunks: readonly ChunkEntry[];
  warnings: readonly string[];
  firstStep: number | null;
  /** Return a part that contains at least the bytes of a chunk at its offset. */
  readPart: (entry: ChunkEntry) => Promise<Uint8Array>;
}

const SLACK = 4; // a row of a level may reach into the next bucket

export class FileParts implements PartedSource {
  readonly interval: readonly [number, number];
  readonly count: number;
  readonly isSmall = false;
  private readonly levels: readonly number[];
  private readonly rows = new Map<ChunkEntry, Promise<LevelColumns>>();
  private samples: Promise<SampleColumns[]> | null = null;

  private constructor(
    private readonly index: ChunkIndex, readonly base: Trace, private readonly decoder: Decoder,
  ) {
    const events = this.ofType(ChunkType.EVENTS);
    const times = events.flatMap(({ first, last }) => [this.relative(first), this.relative(last)]);
    this.interval = [Math.min(...times), Math.max(...times)];
    this.count = events.reduce((sum, { rows }) => sum + rows, 0);
    this.levels = [...new Set(this.ofType(ChunkType.LEVELS).map(({ level }) => level))].sort((a, b) => a - b);
  }

  static async open(index: ChunkIndex, decoder: Decoder): Promise<FileParts> {
    const types = [ChunkType.RECORDS, ChunkType.STEPS];
    const chunks = await readChunks(index, index.chunks.filter(({ type }) => types.includes(type)));
    const base = await decodeChunks(index.name, chunks, [ChunkType.STEPS], {
      decoder, base: null, damage: null, lost: (_, reason) => describe(index, reason),
    });
    if (base.warnings.length) throw new TraceError(base.warnings[0]);
    return new FileParts(index, base, decoder);
  }

  get name(): string {
    return this.index.name;
  }

  get warnings(): readonly string[] {
    return this.index.warnings;
  }

  get firstStep(): number | null {
    return this.index.firstStep;
  }

  async readBins(begin: number, end: number, count: number): Promise<Bins> {
    const binning = new Binning(begin, end, count);
    const width = (end - begin) / (SLACK * count);
    const level = this.levels.filter((level) => 2 ** level <= width).at(-1) ?? this.levels[0];
    const entries = this.touching(ChunkType.LEVELS, begin, end).filter((entry) => entry.level === level);
    for (const rows of await Promise.all(entries.map((entry) => this.readLevel(entry)))) binning.add(rows);
    const lanes = binning.finish();
    const samples = await this.readMemory();
    this.base.records.lanes.forEach(({ kind }, lane) => {
      if (kind === LaneKind.MEMORY) lanes[lane] = binMemory(samples, lane, begin, end, count);
    });
    return { begin, end, count, lanes, events: this.numEvents(begin, end) };
  }

  async readEvents(begin: number, end: number, limit: number): Promise<Trace> {
    const count = this.numEvents(begin, end);
    if (count > limit) throw new TooManyEvents(`the interval has up to ${count} events`);
    const entries = [ChunkType.EVENTS, ChunkType.SAMPLES].flatMap((type) => this.touching(type, begin, end));
    const chunks = await readChunks(this.index, entries);
    const trace = await decodeChunks(this.name, chunks, [ChunkType.EVENTS, ChunkType.SAMPLES], {
      decoder: this.decoder, base: this.base, damage: null,
      lost: (_, reason) => describe(this.index, reason),
    });
    return trace.withWarnings(this.warnings);
  }

  private relative(time: bigint): number {
    return Number(time - this.base.origin);
  }

  private ofType(type: ChunkType): ChunkEntry[] {
    return this.index.chunks.filter((chunk) => chunk.type === type);
  }

  private touching(type: ChunkType, begin: number, end: number): ChunkEntry[] {
    return this.ofType(type).filter(
      ({ first, last }) => this.relative(first) < end && this.relative(last) > begin,
    );
  }

  private numEvents(begin: number, end: number): number {
    return this.touching(ChunkType.EVENTS, begin, end).reduce((sum, { rows }) => sum + rows, 0);
  }

  private readLevel(entry: ChunkEntry): Promise<LevelColumns> {
    let rows = this.rows.get(entry);
    if (!rows) {
      rows = this.decode(entry).then(({ levels }) => levels!);
      this.rows.set(entry, rows);
    }
    return rows;
  }

  /** Return the bytes in use over time: the largest of short intervals, if the file has them. */
  private readMemory(): Promise<SampleColumns[]> {
    if (!this.samples) {
      const peaks = this.ofType(ChunkType.PEAKS);
      const entries = peaks.length ? peaks : this.ofType(ChunkType.SAMPLES);
      this.samples = Promise.all(
        entries.map((entry) => this.decode(entry).then(({ samples }) => samples!)),
      );
    }
    return this.samples;
  }

  private async decode(entry: ChunkEntry) {
    const [chunk] = await readChunks(this.index, [entry]);
    const result = await this.decoder(makeTask(chunk, this.base.origin));
    if (result.error !== undefined) throw new TraceError(describe(this.index, result.error));
    return result;
  }
}

async function readChunks(index: ChunkIndex, entries: readonly ChunkEntry[]): Promise<StoredChunk[]> {
  return Promise.all(
    entries.map(async (entry) => {
      const chunk = readChunk(await index.readPart(entry), entry.offset);
      if (typeof chunk === "string") throw new TraceError(describe(index, chunk));
      return chunk;
    }),
  );
}

function describe({ name }: ChunkIndex, reason: string): string {
  return `${name}: a part of the file cannot be read: ${reason}`;
}

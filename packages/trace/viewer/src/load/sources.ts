/** Where the bytes of traces come from. */

import {
  CHUNK_HEADER_BYTES, ChunkType, FILE_HEADER_BYTES, checkFileHeader, readHeader,
} from "../format/chunks";
import type { ChunkEntry, ChunkIndex } from "./file_parts";

/** A trace file that is not parsed yet. */
export interface TraceFile {
  name: string;
  read: () => Promise<Uint8Array>;
  /** Return the chunks of a file that can be read in parts, or else null. */
  list: () => Promise<ChunkIndex | null>;
}

/** Return the trace files that `weft_trace.page.write_page` put into this page. */
export function embeddedFiles(): TraceFile[] {
  const parts = new Map<string, HTMLScriptElement[]>();
  for (const element of document.querySelectorAll<HTMLScriptElement>("script.trace")) {
    const index = element.dataset["index"] ?? "0";
    parts.set(index, [...(parts.get(index) ?? []), element]);
  }
  return [...parts.values()].slice(0, 2).map((elements) => ({
    name: elements[0].dataset["name"] ?? "trace",
    read: async () => {
      // Parts are removed while they are decoded, so that the text and the bytes do not add up.
      const bytes = elements.map((element) => {
        const part = decodeBase64(element.textContent ?? "");
        element.remove();
        return part;
      });
      return join(bytes);
    },
    list: async () => embeddedIndex(elements[0]),
  }));
}

/** The attribute `data-chunks`: part, offset, bytes, type, level, rows, first and last time. */
type Row = [number, number, number, number, number, number, string, string];

/**
 * Return the chunks of a trace whose parts follow in the page. The browser may not have read all of
 * it yet: reading a part waits for its element.
 */
function embeddedIndex(head: HTMLScriptElement): ChunkIndex | null {
  const { name = "trace", index = "0", chunks, step } = head.dataset;
  if (chunks === undefined) return null;
  const rows = JSON.parse(chunks) as Row[];
  const bytes = new Map<number, Promise<Uint8Array>>();
  const readPart = async (part: number): Promise<Uint8Array> => {
    if (part < 0) return decodeBase64(head.textContent ?? "");
    const element = await waitForElement(`part-${index}-${part}`);
    return decodeBase64(element.firstChild?.nodeValue ?? "");
  };
  return {
    name, warnings: [], firstStep: step === undefined ? null : Number(step),
    chunks: rows.map(([part, offset, bytes, type, level, count, first, last]) => (
      { part, offset, bytes, type, level, rows: count, first: BigInt(first), last: BigInt(last) }
    )),
    readPart: ({ part }) => {
      let reading = bytes.get(part);
      if (!reading) {
        reading = readPart(part);
        bytes.set(part, reading);
        // Chunks that are read together share the bytes, which are not kept longer.
        void reading.finally(() => setTimeout(() => bytes.delete(part)));
      }
      return reading;
    },
  };
}

/** Return an element, when the browser has read it. */
async function waitForElement(id: string): Promise<Element> {
  for (;;) {
    const isComplete = document.readyState !== "loading";
    const element = document.getElementById(id);
    // The text of an element is whole when the element after it has begun.
    if (element?.nextElementSibling || (element && isComplete)) return element;
    if (isComplete) throw new DOMException(`the page has no element ${id}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** Return a file that the user chose. */
export function pickedFile(file: File): TraceFile {
  const slice = async (begin: number, end: number) =>
    new Uint8Array(await file.slice(begin, end).arrayBuffer());
  return {
    name: file.name,
    read: async () => new Uint8Array(await file.arrayBuffer()),
    list: async () => {
      checkFileHeader(await slice(0, FILE_HEADER_BYTES), file.name);
      const chunks: ChunkEntry[] = [];
      for (let offset = FILE_HEADER_BYTES; offset < file.size; ) {
        const bytes = await slice(offset, offset + CHUNK_HEADER_BYTES);
        const header = readHeader(new DataView(bytes.buffer), 0);
        if (typeof header === "string" || offset + header.bytes > file.size) return null;
        chunks.push({ ...header, part: offset, offset: 0 });
        offset += header.bytes;
      }
      if (!chunks.some(({ type }) => type === ChunkType.LEVELS)) return null;
      const readPart = ({ part, bytes }: ChunkEntry) => slice(part, part + bytes);
      return { name: file.name, chunks, warnings: [], firstStep: null, readPart };
    },
  };
}

function join(parts: Uint8Array[]): Uint8Array {
  if (parts.length === 1) return parts[0];
  const bytes = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let offset = 0;
  for (const [index, part] of parts.entries()) {
    bytes.set(part, offset);
    offset += part.length;
    parts[index] = new Uint8Array(0);
  }
  return bytes;
}

type Decoding = { fromBase64?: (text: string) => Uint8Array };

function decodeBase64(text: string): Uint8Array {
  const native = (Uint8Array as Decoding).fromBase64;
  if (native) return native(text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

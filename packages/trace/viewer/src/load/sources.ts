/** Where the bytes of traces come from. */

/** A trace file that is not parsed yet. */
export interface TraceFile {
  name: string;
  read: () => Promise<Uint8Array>;
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
  }));
}

/** Return a file that the user chose. */
export function pickedFile(file: File): TraceFile {
  return { name: file.name, read: async () => new Uint8Array(await file.arrayBuffer()) };
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

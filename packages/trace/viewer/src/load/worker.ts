/** A worker that decodes chunks. */

import type { EventColumns, LevelColumns, SampleColumns } from "../format/columns";
import { decodeHere, type Task } from "./decode";

/** Return the buffers of all arrays of a record, which are moved instead of copied. */
function buffers(columns: EventColumns | LevelColumns | SampleColumns | undefined): Transferable[] {
  const arrays = Object.values(columns ?? {}).filter((value) => ArrayBuffer.isView(value));
  return arrays.map((array) => (array as Uint8Array).buffer as ArrayBuffer);
}

self.addEventListener("message", (message: MessageEvent<{ id: number; task: Task }>) => {
  const { id, task } = message.data;
  void decodeHere(task).then((result) => {
    const { events, levels, samples } = result;
    const moved = [events, levels, samples].flatMap(buffers);
    (self as unknown as Worker).postMessage({ id, result }, moved);
  });
});

/** A worker that decodes chunks. */

import type { EventColumns, SampleColumns } from "../format/columns";
import { decodeHere, type Task } from "./decode";

/** Return the buffers of all arrays of a record, which are moved instead of copied. */
function buffers(columns: EventColumns | SampleColumns | undefined): Transferable[] {
  const arrays = Object.values(columns ?? {}).filter((value) => ArrayBuffer.isView(value));
  return arrays.map((array) => (array as Uint8Array).buffer as ArrayBuffer);
}

self.addEventListener("message", (message: MessageEvent<{ id: number; task: Task }>) => {
  const { id, task } = message.data;
  void decodeHere(task).then((result) => {
    const moved = [...buffers(result.events), ...buffers(result.samples)];
    (self as unknown as Worker).postMessage({ id, result }, moved);
  });
});

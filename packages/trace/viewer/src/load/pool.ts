/** Workers that decode chunks in parallel. */

import { decodeHere, type Decoded, type Decoder, type Task } from "./decode";

/** Compiled from `worker.ts`; the build inserts it. */
declare const WORKER_SOURCE: string;

const MOST_WAITING = 3; // tasks that a worker holds, so that chunks are copied only when needed

/** Return a decoder over one worker per processor, and a function that ends the workers. */
export function startWorkers(): { decoder: Decoder; stop: () => void } {
  const count = Math.max(1, Math.min(8, navigator.hardwareConcurrency || 2));
  const url = URL.createObjectURL(new Blob([WORKER_SOURCE], { type: "text/javascript" }));
  const queue: { id: number; task: Task }[] = [];
  const finish = new Map<number, (result: Decoded) => void>();
  let nextId = 0;
  const workers = Array.from({ length: count }, () => new Worker(url));
  const load = new Map(workers.map((worker) => [worker, 0]));
  const feed = (worker: Worker) => {
    while (queue.length && load.get(worker)! < MOST_WAITING) {
      const { id, task } = queue.shift()!;
      const checked = task.checked.slice();
      load.set(worker, load.get(worker)! + 1);
      worker.postMessage({ id, task: { ...task, checked } }, [checked.buffer]);
    }
  };
  for (const worker of workers) {
    worker.onmessage = (message: MessageEvent<{ id: number; result: Decoded }>) => {
      const { id, result } = message.data;
      load.set(worker, load.get(worker)! - 1);
      feed(worker);
      finish.get(id)!(result);
      finish.delete(id);
    };
  }
  const decoder: Decoder = (task) => {
    if (task.rows < 2000) return decodeHere(task);
    const id = nextId++;
    return new Promise((resolve) => {
      finish.set(id, resolve);
      queue.push({ id, task });
      for (const worker of workers) feed(worker);
    });
  };
  const stop = () => {
    for (const worker of workers) worker.terminate();
    URL.revokeObjectURL(url);
  };
  return { decoder, stop };
}

"""Queues: one program that runs with weft or tensorflow.compat.v1 as `tf`."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import timing
from timing import Timer

tf: Any = None  # weft or tensorflow.compat.v1

ELEMENTS = 1000
IMAGES, IMAGE = 32, [64, 64, 3]
WAKES = 300
MATRIX = 500
PREFETCHED = 60


def session(threads: int) -> Any:
    # A step that waits must not keep others from running: TensorFlow needs a thread for each.
    inter = {"inter_op_parallelism_threads": max(2, threads)}
    return tf.Session(config=tf.ConfigProto(intra_op_parallelism_threads=threads, **inter))


def queue_of(kind: str, shape: list[int]) -> Any:
    capacity = 10 * ELEMENTS
    if kind == "shuffle":
        return tf.RandomShuffleQueue(capacity, 0, [tf.float32], shapes=[shape], seed=1)
    classes = {
        "fifo": tf.FIFOQueue,
        "padding": tf.PaddingFIFOQueue,
        "priority": tf.PriorityQueue,
    }
    return classes[kind](capacity, [tf.float32], shapes=[shape])


def batches(timer: Timer) -> None:
    """Measure enqueuing and dequeuing a thousand scalars at once."""
    values = np.random.RandomState(0).rand(ELEMENTS).astype(np.float32)
    priorities = np.random.RandomState(1).randint(0, 1 << 40, ELEMENTS)
    with session(timer.threads) as s:
        for kind in ("fifo", "padding", "shuffle", "priority"):
            queue = queue_of(kind, [])
            fed = tf.placeholder(tf.float32, [ELEMENTS])
            first = tf.placeholder(tf.int64, [ELEMENTS])
            lead = [first] if kind == "priority" else []
            put, take = queue.enqueue_many([*lead, fed]), queue.dequeue_many(ELEMENTS)
            feeds = {fed: values, first: priorities} if lead else {fed: values}
            fetch = take[-1] if lead else take

            def step(put: Any = put, fetch: Any = fetch, feeds: Any = feeds) -> None:
                s.run(put, feeds)
                s.run(fetch)

            timer.time(f"queue_{kind}_{ELEMENTS}", step)


def singly(timer: Timer) -> None:
    """Measure single scalars; and images that are enqueued one by one and dequeued as a batch."""
    scalars, images = queue_of("fifo", []), queue_of("fifo", IMAGE)
    fed = tf.placeholder(tf.float32, [])
    put, take = scalars.enqueue(fed), scalars.dequeue()
    scale = tf.placeholder_with_default(np.float32(2), [])
    put_image = images.enqueue(tf.ones(IMAGE) * scale)
    take_images = images.dequeue_many(IMAGES)
    value = np.float32(1)

    with session(timer.threads) as s:

        def scalar() -> None:
            s.run(put, {fed: value})
            s.run(take)

        def batch() -> None:
            for _ in range(IMAGES):
                s.run(put_image)
            s.run(take_images)

        timer.time("queue_single", scalar)
        timer.time("queue_images", batch)


def wake(timer: Timer) -> None:
    """Measure the time from an enqueue to the return of a dequeue that waits for it."""
    queue = queue_of("fifo", [])
    put, take = queue.enqueue(1.0), queue.dequeue()
    waits, returned = threading.Event(), threading.Event()
    times = [0.0]
    with session(timer.threads) as s:
        s.run(put)
        s.run(take)

        def wait() -> None:
            for _ in range(WAKES):
                waits.set()
                s.run(take)
                times[0] = time.perf_counter()
                returned.set()

        thread = threading.Thread(target=wait)
        thread.start()
        samples = []
        for _ in range(WAKES):
            waits.wait()
            waits.clear()
            time.sleep(0.002)  # until it waits in the queue, where nothing shows it
            started = time.perf_counter()
            s.run(put)
            returned.wait()
            returned.clear()
            samples.append(times[0] - started)
        thread.join()
    timer.report("queue_wake", samples)


def prefetch(timer: Timer) -> None:
    """Measure a step and a reader of the same duration: sequentially, and overlapped by a queue."""
    delay = [0.0]

    def read() -> Any:
        time.sleep(delay[0])
        return np.ones([MATRIX, MATRIX], np.float32)

    def work(matrix: Any) -> Any:
        return tf.reduce_sum(tf.matmul(tf.matmul(matrix, weights), weights))

    weights = tf.Variable(np.full([MATRIX, MATRIX], 1 / MATRIX, np.float32))
    reader = tf.py_func(read, [], tf.float32)
    reader.set_shape([MATRIX, MATRIX])
    queue = tf.FIFOQueue(4, [tf.float32], shapes=[[MATRIX, MATRIX]])
    runner = tf.train.QueueRunner(queue, [queue.enqueue(reader)])
    in_line, queued = work(reader), work(queue.dequeue())
    with session(timer.threads) as s:
        s.run(weights.initializer)
        samples = [seconds(lambda: s.run(in_line)) for _ in range(10)]
        delay[0] = sorted(samples)[len(samples) // 2]
        timer.report("queue_in_line", [seconds(lambda: s.run(in_line)) for _ in range(PREFETCHED)])
        coord = tf.train.Coordinator()
        runner.create_threads(s, coord, daemon=True, start=True)
        for _ in range(10):
            s.run(queued)
        started = time.perf_counter()
        for _ in range(PREFETCHED):
            s.run(queued)
        timer.report("queue_prefetched", [(time.perf_counter() - started) / PREFETCHED])
        coord.request_stop()
        coord.join(stop_grace_period_secs=30)


def seconds(step: timing.Step) -> float:
    started = time.perf_counter()
    step()
    return time.perf_counter() - started


PROGRAMS: dict[str, timing.Program] = {
    "queue_batches": batches,
    "queue_singly": singly,
    "queue_wake": wake,
    "queue_prefetch": prefetch,
}


def use(module: Any) -> None:
    global tf
    tf = module


if __name__ == "__main__":
    timing.graph_mode(PROGRAMS, use)

"""Several CPU devices: one program that runs with weft or tensorflow.compat.v1 as `tf`."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import timing
from timing import Timer

tf: Any = None  # weft or tensorflow.compat.v1

CROSSINGS = 200
SIZE, PRODUCTS = 768, 6
BRANCHES, DEVICES = 8, 4
LAYERS, DEEP_BATCH, DEEP_WIDTH = 64, 2048, 256


def session(devices: int, threads: int) -> Any:
    return tf.Session(
        config=tf.ConfigProto(
            device_count={"CPU": devices},
            intra_op_parallelism_threads=1,
            inter_op_parallelism_threads=threads,
        )
    )


def chain(x: Any, devices: int) -> Any:
    y = x
    for i in range(CROSSINGS):
        with tf.device(f"/cpu:{i % devices}"):
            y = tf.tanh(y)
    return y


def crossings(timer: Timer) -> None:
    """Measure a transfer: a chain that alternates between devices, minus one that does not."""
    x = tf.placeholder(tf.float32, [1024])
    feed = {x: np.zeros(1024, np.float32)}
    there, to_and_fro = chain(x, 1).op, chain(x, 2).op
    samples: list[float] = []
    with session(2, 1) as s:
        for op in (there, to_and_fro):
            s.run(op, feed)
        end = time.perf_counter() + timer.budget
        while not samples or time.perf_counter() < end:
            started = time.perf_counter()
            s.run(there, feed)
            middle = time.perf_counter()
            s.run(to_and_fro, feed)
            beside = time.perf_counter() - middle
            samples.append((beside - (middle - started)) / CROSSINGS)
    timer.report("device_crossing", samples)


def branch(seed: int) -> Any:
    y = tf.constant(np.random.RandomState(seed).rand(SIZE, SIZE).astype(np.float32))
    w = tf.Variable(np.eye(SIZE, dtype=np.float32))
    for _ in range(PRODUCTS):
        y = tf.matmul(y, w)
    return y


def products(timer: Timer) -> None:
    """Measure independent products on one device with one thread, and on two devices."""
    for row, devices in (("device_products_one", 1), ("device_products_two", 2)):
        with tf.Graph().as_default():
            ends = []
            for i in range(2):
                with tf.device(f"/cpu:{i % devices}"):
                    ends.append(branch(i).op)
            with session(devices, devices) as s:
                s.run(tf.global_variables_initializer())
                timer.time(row, lambda s=s, ends=ends: s.run(ends))  # type: ignore[misc]


def placing(timer: Timer, count: int) -> None:
    """Measure placement and partitioning over four devices alone."""
    from weft_exec.executor.priority import sort_by_priority
    from weft_graph.ir.gc_pause import pause_gc
    from weft_graph.passes import prune

    x = tf.placeholder(tf.float32, [32, 64])
    ends = []
    for i in range(BRANCHES):
        with tf.device(f"/cpu:{i % DEVICES}" if i % 2 else None):  # half of them are not told where
            y = x
            for _ in range(count // BRANCHES // 3):
                y = tf.tanh(y) * y + y
        ends.append(y)
    total = tf.add_n(ends)
    samples: list[float] = []
    end = time.perf_counter() + timer.budget
    while not samples or time.perf_counter() < end:
        with session(DEVICES, 1) as s, pause_gc():
            s._extend()
            step = prune([x], [total], [])
            nodes = sort_by_priority(step.live_nodes())
            started = time.perf_counter()
            s._planner._parts(step, nodes, s._planner._placer.assign(nodes))
            samples.append(time.perf_counter() - started)
    timer.report(f"place_{count}", samples)


def deep(timer: Timer) -> None:
    """Measure training with all activations saved, and with two fifths of that memory."""
    memory = tf.config.experimental
    cpu = memory.list_physical_devices("CPU")[0]
    kept = deep_step(timer, "kept", cpu, None)
    deep_step(timer, "recomputed", cpu, int(0.4 * kept / 2**20))


def deep_step(timer: Timer, how: str, cpu: Any, limit: int | None) -> int:
    """Measure a step under a limit in megabytes; return its peak in bytes."""
    memory = tf.config.experimental
    limits = [memory.VirtualDeviceConfiguration(memory_limit=limit or 4096)]
    memory.set_virtual_device_configuration(cpu, limits)
    options = tf.GraphOptions()
    options.rewrite_options.memory_optimization = 1 if limit is None else 0
    config = tf.ConfigProto(
        intra_op_parallelism_threads=timer.threads,
        inter_op_parallelism_threads=1,
        graph_options=options,
    )
    with tf.Graph().as_default():
        x = y = tf.placeholder(tf.float32, [DEEP_BATCH, DEEP_WIDTH])
        for i in range(LAYERS):
            y = tf.layers.dense(y, DEEP_WIDTH, tf.tanh, name=f"layer{i}")
        loss = tf.reduce_mean(tf.squared_difference(y, x))
        train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
        feed = {x: np.random.RandomState(0).randn(DEEP_BATCH, DEEP_WIDTH).astype(np.float32)}
        with tf.Session(config=config) as s:
            s.run(tf.global_variables_initializer())
            timer.time(f"deep_{how}", lambda: s.run(train, feed))
            peak: int = s.list_devices()[0].statistics.peak_bytes_in_use
    timer.report(f"deep_{how}_peak", [peak])
    memory.set_virtual_device_configuration(cpu, None)
    return peak


def use(module: Any) -> None:
    global tf
    tf = module


PROGRAMS: dict[str, timing.Program] = {
    "device_crossing": crossings,
    "device_products": products,
    "deep": deep,
    **{
        f"place_{count}": lambda timer, count=count: placing(timer, count)  # type: ignore[misc]
        for count in (9000, 18_000, 36_000)
    },
}

if __name__ == "__main__":
    timing.graph_mode(PROGRAMS, use)

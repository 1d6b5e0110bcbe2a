"""Clusters of processes: one program that runs with weft or tensorflow.compat.v1 as `tf`.

This process is the client, and worker 0 with its server; `serve` is every other task.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import timing
from timing import Timer

tf: Any = None  # weft or tensorflow.compat.v1
PROTOCOL = os.environ.get("WEFT_BENCH_PROTOCOL", "grpc")

MB = 1 << 20
TRANSFERS = (1, 10, 100)
TABLE_ROWS, ROW = 1 << 18, 1 << 10
LOOKED_UP = 32
WORKERS = (1, 2, 4, 8)
NODES, SPREAD = 36_000, 8
SYNC_STEPS = 20
SLOW, USUAL = 0.5, 0.05


# ------------------------------------------------------------------------------- tasks


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("localhost", 0)) for _ in range(count)]
    ports = [sock.getsockname()[1] for sock in sockets]
    for sock in sockets:
        sock.close()
    return ports


class Here:
    """Worker 0, in this process, with the processes of the other tasks."""

    def __init__(self, server: Any, others: list[subprocess.Popen[bytes]]) -> None:
        self.target: str = server.target
        self.server = server
        self._others = others

    def received(self) -> int:
        """Return the bytes that worker 0 has received, as counted by weft."""
        return sum(each.bytes_received for each in self.server.traffic())

    def let_begin(self) -> None:
        """Announce that the variables are initialized; others check only every 30 s."""
        for process in self._others:
            assert process.stdin is not None
            process.stdin.close()


@contextmanager
def cluster(ps: int, workers: int, command: str = "serve", *told: str) -> Iterator[Any]:
    """Start all tasks except worker 0 as processes, and worker 0 here; yield worker 0."""
    ports = free_ports(ps + workers)
    jobs = {"ps": ports[:ps], "worker": ports[ps:]}
    spec = {job: [f"localhost:{port}" for port in each] for job, each in jobs.items() if each}
    tasks = [(job, i) for job, each in spec.items() for i in range(len(each))]
    module = "weft" if tf.__name__ == "weft" else "tensorflow.compat.v1"
    others = [
        subprocess.Popen(
            [
                *(sys.executable, __file__, command if job == "worker" else "serve"),
                *("--module", module, "--cluster", json.dumps(spec)),
                *("--job", job, "--task", str(i), *told),
            ],
            stdin=subprocess.PIPE,
        )
        for job, i in tasks
        if (job, i) != ("worker", 0)
    ]
    try:
        yield Here(tf.train.Server(spec, "worker", 0, protocol=PROTOCOL), others)
    finally:
        for process in others:
            process.kill()
            process.wait()


def serve(server: Any, arguments: argparse.Namespace) -> None:
    server.join()


# -------------------------------------------------------------------------------- rows


def stepper(session: Any, fetches: Any) -> Callable[[], Any]:
    step: Callable[[], Any] = session.make_callable(fetches)
    return step


def variable(nbytes: int) -> Any:
    return tf.Variable(tf.zeros([max(nbytes // 4, 1)]))


def transfer(timer: Timer) -> None:
    """Measure one Send and Receive: a part of a value on the parameter server."""
    with cluster(1, 1) as server:
        with tf.device("/job:ps/task:0"):
            values = {size: variable(size * MB) for size in (0, *TRANSFERS)}
        with tf.device("/job:worker/task:0"):
            here = {size: tf.reshape(v, [-1])[:1] for size, v in values.items()}
            nothing = tf.constant([1.0]) * tf.random_uniform([1])
        with tf.Session(server.target) as session:
            session.run(tf.global_variables_initializer())
            timer.time("step_of_one_task", stepper(session, nothing))
            for size, fetched in here.items():
                timer.time(f"transfer_{size}MB", stepper(session, fetched))


def null_steps(timer: Timer, name: str, per_worker: Callable[[], Any]) -> None:
    """Measure steps in which each worker fetches a value of one parameter server and sums it."""
    for count in WORKERS:
        with tf.Graph().as_default(), cluster(1, count) as server:
            with tf.device("/job:ps/task:0"):
                give = per_worker()
            sums = []
            for i in range(count):
                with tf.device("/job:ps/task:0"):
                    given = give()
                with tf.device(f"/job:worker/task:{i}"):
                    sums.append(tf.reduce_sum(given))
            with tf.Session(server.target) as session:
                session.run(tf.global_variables_initializer())
                timer.time(f"{name}_{count}", stepper(session, sums))
                if tf.__name__ == "weft":
                    before = server.received()
                    session.run(sums)
                    moved = {"moved": f"{name}_{count}", "bytes": server.received() - before}
                    print(json.dumps(moved), flush=True)


def null_scalar(timer: Timer) -> None:
    def make() -> Any:
        v = tf.Variable(1.0)
        return lambda: v

    null_steps(timer, "null_scalar", make)


def null_dense(timer: Timer) -> None:
    def make() -> Any:
        v = variable(100 * MB)
        return lambda: v

    null_steps(timer, "null_dense", make)


def sparse(rows: int) -> Callable[[], Any]:
    def make() -> Any:
        table = tf.Variable(tf.zeros([rows, ROW]))
        rng = np.random.RandomState(0)
        return lambda: tf.nn.embedding_lookup(table, rng.randint(0, rows, LOOKED_UP))

    return make


def null_sparse(timer: Timer) -> None:
    """Measure fetches of rows of a 1 GB table."""
    null_steps(timer, "null_sparse", sparse(TABLE_ROWS))


def null_sparse_small(timer: Timer) -> None:
    """Measure fetches of rows of a 16 MB table."""
    null_steps(timer, "null_sparse_small", sparse(TABLE_ROWS // 64))


def update(timer: Timer) -> None:
    """Measure sending a gradient of 100 MB to the parameter server, which adds it to a variable."""
    with cluster(1, 1) as server:
        with tf.device("/job:ps/task:0"):
            v = variable(100 * MB)
        with tf.device("/job:worker/task:0"):
            kept = variable(100 * MB)
        with tf.device("/job:ps/task:0"):
            added = tf.assign_add(v, kept).op
        with tf.Session(server.target) as session:
            session.run(tf.global_variables_initializer())
            timer.time("update_100MB", stepper(session, added))


def first_run(timer: Timer) -> None:
    """Measure 36,000 nodes over 8 workers: time of the first and of a second result."""
    with cluster(0, SPREAD) as server:
        towers = []
        for i in range(SPREAD):
            with tf.device(f"/job:worker/task:{i}"):
                x = tf.constant(float(i))
                for k in range(NODES // SPREAD // 4):  # four nodes each, on average
                    x = tf.tanh(x * 0.5 + float(k % 7)) if k % 3 else tf.add(tf.tanh(x), x)
                towers.append(x)
        with tf.device("/job:worker/task:0"):
            total = tf.add_n(towers)
            second = tf.add_n(towers) * 2.0
        with tf.Session(server.target) as session:
            session.run(tf.constant(0.0))
            for row, fetch in (("first_run", total), ("second_signature", second)):
                began = time.perf_counter()
                session.run(fetch)
                timer.report(row, [time.perf_counter() - began])


# ---------------------------------------------------------------------- backup workers


def replica(index: int, count: int, aggregate: int) -> tuple[Any, Any]:
    """Return a worker's step of synchronous training, and its optimizer."""
    with tf.device("/job:ps/task:0"):
        step = tf.train.get_or_create_global_step()
        w = tf.get_variable("w", initializer=tf.zeros([4]))
    with tf.device(f"/job:worker/task:{index}"):
        loss = tf.reduce_sum(tf.square(w - 1.0))
        optimizer = tf.train.SyncReplicasOptimizer(
            tf.train.GradientDescentOptimizer(0.01), aggregate, total_num_replicas=count
        )
        train = optimizer.minimize(loss, global_step=step)
    return train, optimizer


def train(server: Any, index: int, count: int, aggregate: int, seconds: float, steps: int) -> float:
    """Train for some steps; return their durations. A sleep simulates computation."""
    with tf.Graph().as_default():
        op, optimizer = replica(index, count, aggregate)
        hook = optimizer.make_session_run_hook(index == 0, num_tokens=0)
        taken = []
        with tf.train.MonitoredTrainingSession(
            server.target, is_chief=index == 0, hooks=[hook]
        ) as session:
            if index == 0:
                server.let_begin()
            while len(taken) < steps:
                began = time.perf_counter()
                time.sleep(seconds)
                session.run(op)
                taken.append(time.perf_counter() - began)
            return float(np.median(taken))


def replicate(server: Any, arguments: argparse.Namespace) -> None:
    sys.stdin.read()
    seconds = SLOW if arguments.slow == arguments.task else USUAL
    train(server, arguments.task, 4, arguments.aggregate, seconds, 1 << 30)


def backup(timer: Timer) -> None:
    """Measure four workers: all of 50 ms, then one of 500 ms, without and with a backup."""
    for row, aggregate, slow in (("even", 4, 0), ("slow", 4, 3), ("backup", 3, 3)):
        told = ["--aggregate", str(aggregate), "--slow", str(slow)]
        with cluster(1, 4, "replicate", *told) as server:
            timer.report(f"sync_{row}", [train(server, 0, 4, aggregate, USUAL, SYNC_STEPS)])


# -------------------------------------------------------------------------------- main

PROGRAMS = {
    each.__name__: each
    for each in (
        transfer,
        null_scalar,
        null_dense,
        null_sparse,
        null_sparse_small,
        update,
        first_run,
        backup,
    )
}
TASKS = {"serve": serve, "replicate": replicate}


def use(module: Any) -> None:
    global tf
    tf = module


def be_task() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=TASKS)
    for name in ("module", "cluster", "job"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--task", type=int, required=True)
    parser.add_argument("--aggregate", type=int, default=0)
    parser.add_argument("--slow", type=int, default=0)
    arguments = parser.parse_args()
    module = importlib.import_module(arguments.module)
    if arguments.module != "weft":
        module.disable_v2_behavior()
    use(module)
    spec = json.loads(arguments.cluster)
    server = tf.train.Server(spec, arguments.job, arguments.task, protocol=PROTOCOL)
    TASKS[arguments.command](server, arguments)


if __name__ == "__main__":
    if sys.argv[1] in TASKS:
        be_task()
    else:
        timing.graph_mode(PROGRAMS, use)

"""Two processes train the CIFAR convnet: by all-reduce, with a parameter server, and independently.

    python benchmarks/programs/replicas.py --rounds 5 --steps 20

Each round runs all three ways one after the other, in processes that were started before. It prints
medians of the steps' times, and each way's speed over independent trainers' in the same round.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from typing import Any

import numpy as np

WAYS = ("independent", "all-reduce", "parameter server")
BATCH = 32


def network(images: Any, labels: Any) -> Any:
    """Return the loss of the convolutional network of the CIFAR-10 tutorial."""
    import weft as wf

    x = images
    for i, width in enumerate((64, 64)):
        with wf.variable_scope(f"conv{i}"):
            channels = int(x.shape[-1])
            kernel = wf.get_variable("w", [5, 5, channels, width])
            bias = wf.get_variable("b", [width], initializer=wf.zeros_initializer())
            x = wf.nn.relu(wf.nn.bias_add(wf.nn.conv2d(x, kernel, 1, "SAME"), bias))
            x = wf.nn.max_pool(x, 3, 2, "SAME")
    x = wf.layers.flatten(x)
    for i, width in enumerate((384, 192)):
        x = wf.layers.dense(x, width, wf.nn.relu, name=f"dense{i}")
    logits = wf.layers.dense(x, 10, name="logits")
    return wf.losses.sparse_softmax_cross_entropy(labels, logits)


def built(way: str, task: int, cluster: Any) -> tuple[Any, Any]:
    """Return the training step of a replica, and its initializer."""
    import weft as wf
    import weft_distrib

    rng = np.random.RandomState(task)
    own = f"/job:worker/task:{task}"
    spread = way == "parameter server"
    place = wf.train.replica_device_setter(cluster=cluster, worker_device=own) if spread else own
    with wf.device(place), wf.variable_scope(f"way{WAYS.index(way)}"):
        images = wf.constant(rng.standard_normal((BATCH, 32, 32, 3)).astype(np.float32))
        loss = network(images, wf.constant(rng.randint(0, 10, BATCH)))
        optimizer: Any = wf.train.GradientDescentOptimizer(0.01)
        if way == "all-reduce":
            optimizer = weft_distrib.AllReduceOptimizer(optimizer, 2)
        variables = wf.global_variables(f"way{WAYS.index(way)}/")
        train = optimizer.minimize(loss, var_list=variables)
    return train, wf.variables_initializer(variables)


def serve(cluster: Any, job: str, task: int) -> None:
    """Run a task; a worker reads numbers of steps, runs them, and prints the time."""
    import weft as wf

    config = wf.ConfigProto(inter_op_parallelism_threads=1, intra_op_parallelism_threads=1)
    server = wf.train.Server(cluster, job, task, config=config)
    if job == "ps":
        print("ready", flush=True)
        server.join()
        return
    ways = {}
    for way in WAYS:
        with wf.Graph().as_default() as graph:
            train, init = built(way, task, cluster)
        session = wf.Session(server.target, graph=graph)
        if task == 0 or way != "parameter server":
            session.run(init)
        ways[way] = session.make_callable(train)
    print("ready", flush=True)
    for line in sys.stdin:
        way, steps = json.loads(line)
        began = time.perf_counter()
        for _ in range(steps):
            ways[way]()
        print((time.perf_counter() - began) / steps, flush=True)


def main() -> None:
    """Run the rounds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--serve", nargs=3)
    options = parser.parse_args()
    if options.serve:
        cluster, job, task = options.serve
        serve(json.loads(cluster), job, int(task))
        return
    from cluster_v1 import free_ports

    ports = free_ports(3)
    cluster = {"ps": [f"localhost:{ports[0]}"], "worker": [f"localhost:{p}" for p in ports[1:]]}
    away = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
    environment = {name: value for name, value in os.environ.items() if name not in away}
    tasks = [
        subprocess.Popen(
            [sys.executable, __file__, "--serve", json.dumps(cluster), job, str(task)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for job, task in (("ps", 0), ("worker", 0), ("worker", 1))
    ]
    try:
        for each in tasks:
            assert each.stdout is not None
            assert each.stdout.readline() == "ready\n"
        report(rounds(tasks[1:], options.rounds, options.steps))
    finally:
        for each in tasks:
            each.kill()


def rounds(workers: Any, count: int, steps: int) -> list[dict[str, float]]:
    """Return the seconds per step of the slower worker, by method, for each round."""
    found = []
    for number in range(count + 1):
        taken = {}
        for way in WAYS[number % 3 :] + WAYS[: number % 3]:
            for worker in workers:
                worker.stdin.write(json.dumps([way, 2 if number == 0 else steps]) + "\n")
                worker.stdin.flush()
            taken[way] = max(float(worker.stdout.readline()) for worker in workers)
        found.append(taken)
    return found[1:]  # the first one warms up


def report(found: list[dict[str, float]]) -> None:
    """Print medians, and ratios of the same round."""
    print("| way | ms a step | speed over independent trainers |\n| --- | ---: | ---: |")
    for way in WAYS:
        median = statistics.median(taken[way] for taken in found)
        ratios = [taken[WAYS[0]] / taken[way] for taken in found]
        low, high = min(ratios), max(ratios)
        middle = statistics.median(ratios)
        print(f"| {way} | {median * 1e3:.1f} | {middle:.2f} ({low:.2f} to {high:.2f}) |")


if __name__ == "__main__":
    main()

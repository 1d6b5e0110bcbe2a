"""Simulation of the step protocol with up to 1,000 workers and 100 parameter servers.

hatch run scale                 # with the costs that were kept
hatch run scale --measure       # with this machine's, checked against it with 1 to 8 workers
hatch run scale --draw scale.svg

The curves are those of figures 6 to 8 of the paper "TensorFlow: A System for Large-Scale Machine
Learning": null steps, an image model with many workers, and backup workers.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))

from simulator import Cluster, Costs, Load, percentile

from weft_distrib.master.step import StepCoordinator
from weft_tensor import errors

KEPT = Path(__file__).with_name("costs.json")
BANDWIDTH = 3.1e9
"""Of the network cards that are simulated: 25 Gbit/s."""

WORKERS = (1, 10, 25, 50, 100, 250, 1000)
MANY = (100, 1000, 10_000)
SERVERS = 16
NULL_STEPS = {
    "scalar": 4.0 * SERVERS,
    "sparse, 32 rows of 8 kB": 32 * 8192.0,
    "dense 100 MB": 1e8,
    "dense 1 GB": 1e9,
}
MODEL_BYTES, MODEL_SERVERS, BATCH = 9.5e7, 17, 32
"""An Inception-v3, as the paper trains it."""

COMPUTE_SECONDS, SPREAD = 1.5, 0.1
"""The median of a step's computation, and the deviation of its logarithm."""

_MACHINES = 50
_STEPS = 3
_ASKS = 2.0  # questions of a watch a second


class Point(NamedTuple):
    """One point of a curve.

    Attributes:
      curve: its name.
      x: workers, or backup workers.
      y: by the figure: milliseconds, images a second, or seconds.
      note: what is saturated, or the like.
    """

    curve: str
    x: int
    y: float
    note: str


def null_steps(
    costs: Costs,
    workers: Sequence[int],
    servers: int = SERVERS,
    curves: Sequence[str] = tuple(NULL_STEPS),
) -> Iterator[Point]:
    """Return figure 6: the median time of steps that only fetch parameters."""
    for name in curves:
        size = NULL_STEPS[name]
        for count in workers:
            cluster = Cluster(costs, servers, count, Load(pulled=size))
            cluster.asynchronous(_STEPS)
            yield Point(name, count, 1e3 * cluster.medians(), cluster.saturated(cluster.clock.now))


def compute(generator: random.Random) -> float:
    """Return the time of a step's computation, with a few stragglers."""
    slow = 2.0 if generator.random() < 0.01 else 1.0
    return slow * COMPUTE_SECONDS * math.exp(generator.gauss(0.0, SPREAD))


def model_load() -> Load:
    """Return a step of the image model."""
    return Load(pulled=MODEL_BYTES, pushed=MODEL_BYTES, compute=compute)


def image_model(
    costs: Costs, workers: Sequence[int], servers: int = MODEL_SERVERS
) -> Iterator[Point]:
    """Return figure 7: images per second, asynchronous and synchronous."""
    for count in workers:
        cluster = Cluster(costs, servers, count, model_load())
        rate = cluster.asynchronous(_STEPS)
        yield Point("asynchronous", count, BATCH * rate, cluster.saturated(cluster.clock.now))
        steps = Cluster(costs, servers, count, model_load()).synchronous(_STEPS, count)
        note = (
            f"a step takes {statistics.median(steps):.2f} s, 9 of 10 {percentile(steps, 0.9):.2f}"
        )
        yield Point("synchronous", count, BATCH * count / statistics.mean(steps), note)


def backup_workers(
    costs: Costs, backups: Sequence[int], machines: int = _MACHINES
) -> Iterator[Point]:
    """Return figure 8: the mean time of synchronous steps, by the number of backup workers."""
    base = 0.0
    for backup in backups:
        cluster = Cluster(costs, MODEL_SERVERS, machines + backup, model_load())
        mean = statistics.mean(cluster.synchronous(20, machines))
        base = base or mean
        speedup = base / mean * machines / (machines + backup)
        yield Point("seconds a step", backup, mean, f"{speedup:.3f} for each machine")


def master_steps(costs: Costs, workers: Sequence[int]) -> Iterator[Point]:
    """Return the ms of a step of one master with all workers, and its bookkeeping."""
    for count in workers:
        own = coordinating(count)
        total = costs.client + costs.master_task * count
        yield Point("one master", count, 1e3 * total, f"of it {1e3 * own:.2f} ms for bookkeeping")


def coordinating(tasks: int) -> float:
    """Return the seconds of bookkeeping for a step of some tasks, one of which fails."""
    names = [f"/job:worker/replica:0/task:{i}" for i in range(tasks)]
    began = time.perf_counter()
    coordinator = StepCoordinator(names)
    for name in names[:-1]:
        coordinator.replied(name)
    coordinator.failed(names[-1], errors.AbortedError("simulated"))
    return time.perf_counter() - began


def watching(costs: Costs, peers: Sequence[int]) -> Iterator[Point]:
    """Return the processor share of heartbeats with this number of peers, at both ends."""
    for count in peers:
        yield Point("who asks", count, _ASKS * count * costs.answer, "of a processor")
        yield Point("who is asked", count, _ASKS * count * costs.answerer, "of a processor")


def table(title: str, unit: str, points: Sequence[Point]) -> str:
    """Return the curves as lines."""
    lines = [f"{title} ({unit})"]
    for name in dict.fromkeys(point.curve for point in points):
        lines.append(f"  {name}")
        for point in points:
            if point.curve == name:
                lines.append(f"    {point.x:6} {point.y:12.3f}  {point.note}")
    return "\n".join(lines) + "\n"


def shown(title: str, unit: str, points: Iterator[Point]) -> tuple[str, str, list[Point]]:
    """Simulate and print a figure; return the data for drawing it."""
    found = list(points)
    print(table(title, unit, found), flush=True)
    return title, unit, found


def checked(costs: Costs, seconds: float) -> str:
    """Compare the simulation with the runtime on this machine, whose processors all tasks share.

    What a step takes is measured before each run: it varies with what else the machine does.
    """
    import measure

    lines = ["Null steps of a scalar on this machine (steps a second)"]
    lines.append("  workers  runtime  simulated  with the costs of this very run  processors left")
    for workers in (1, 2, 4, 8):
        one = measure.pulling(1, 4, seconds)
        real = measure.together(workers, 1, 4, seconds)
        delay = max(one.seconds - one.own - one.server, 1e-5) / 2
        alone = costs._replace(client=0.0, client_task=one.own, server=one.server, delay=delay)
        own = alone._replace(client_task=real.worker, server=real.server)
        found = [on_this_machine(each, workers, real.cores) for each in (alone, own)]
        lines.append(
            f"  {workers:7} {real.rate:8.0f} {found[0]:10.0f} {found[1]:32.0f} {real.cores:16.2f}"
        )
    return "\n".join(lines) + "\n"


def on_this_machine(costs: Costs, workers: int, left: float) -> float:
    """Simulate null steps per second of one server, with a limited number of processors.

    Who needs less than is left is not slowed down.
    """
    cores = os.cpu_count() or 1
    rate = Cluster(costs, 1, workers, Load(4.0), cores).asynchronous(400)
    return min(rate, left / (costs.client + costs.client_task + costs.server))


def draw(path: Path, figures: Sequence[tuple[str, str, list[Point]]]) -> None:
    """Draw the curves."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    picture, axes = pyplot.subplots(1, len(figures), figsize=(5 * len(figures), 4))
    for axis, (title, unit, points) in zip(axes, figures, strict=True):
        for name in dict.fromkeys(point.curve for point in points):
            own = [point for point in points if point.curve == name]
            axis.plot([p.x for p in own], [p.y for p in own], marker="o", label=name)
        if max(point.x for point in points) > 50:
            axis.set(xscale="log", yscale="log")
        axis.set(title=title, ylabel=unit)
        axis.legend(fontsize=7)
    picture.tight_layout()
    picture.savefig(path)
    pyplot.close(picture)


def main(arguments: Any = None) -> int:
    """Simulate the figures and print them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--measure", action="store_true", help="measure and check on this machine")
    parser.add_argument("--seconds", type=float, default=3.0, help="for each measurement")
    parser.add_argument("--draw", type=Path, help="draw the curves into this file")
    options = parser.parse_args(arguments)
    costs = Costs(**json.loads(KEPT.read_text()))
    if options.measure:
        import measure

        costs = measure.costs(options.seconds, BANDWIDTH)
        print(json.dumps(costs._asdict(), indent=2))
        print(checked(costs, options.seconds))
    drawn = [
        shown("Figure 6: null steps, 16 servers", "ms a step", null_steps(costs, WORKERS)),
        shown("Figure 7: an image model", "images a second", image_model(costs, WORKERS[2:])),
        shown("Figure 8: backup workers", "s a step", backup_workers(costs, range(6))),
    ]
    scalar = null_steps(costs, (1000,), 100, ["scalar"])
    shown("Null steps, 100 servers", "ms a step", scalar)
    shown("One master that drives all", "ms a step", master_steps(costs, MANY))
    shown("Watching peers", "processors", watching(costs, MANY))
    if options.draw:
        draw(options.draw, drawn)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The same model at several sizes: where memory, time or loss departs from the expected growth."""

from __future__ import annotations

__all__ = ["measure_growth"]

import math
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np

from weft_exec.costs.work import cost_of
from weft_exec.devices.machine import get_memory_info, reset_memory_stats
from weft_exec.profiling.timeline import node_times
from weft_exec.session.session import Session
from weft_graph import proto
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Node
from weft_graph.variables.reference import global_variables, global_variables_initializer
from weft_io.porting.run_comparison import Batch, Program
from weft_io.porting.tables import format_table
from weft_tensor import errors

_NOISE: Final = 1e-4
"""Seconds; shorter times are not compared."""

_SMALL: Final = 1 << 20
"""Bytes; smaller peaks of memory are not compared."""


class SizeMeasurement(NamedTuple):
    """The measurements of one size.

    Attributes:
      size: the size, as given to `build`.
      num_parameters: number of elements of all variables.
      flops: floating-point operations of the nodes of a step with static shapes.
      bytes: bytes that these nodes read and write.
      seconds: median time of a step.
      peak_bytes: peak memory of the CPU's allocator during the steps.
      loss: after the last step; NaN if the program has no "loss".
      scopes: seconds, and expected work, of each name scope in the traced step.
    """

    size: Any
    num_parameters: int
    flops: float
    bytes: float
    seconds: float
    peak_bytes: int
    loss: float
    scopes: Mapping[str, tuple[float, float]]


class Deviation(NamedTuple):
    """A quantity that grew otherwise than expected.

    Attributes:
      quantity: "time", "memory" or "loss".
      scope: the name scope; "" for the whole step.
      sizes: the two sizes.
      expected: the range of expected ratios of the quantity at the two sizes.
      ratio: the measured one.
    """

    quantity: str
    scope: str
    sizes: tuple[Any, Any]
    expected: tuple[float, float]
    ratio: float

    def __str__(self) -> str:
        scope_text = f" of {self.scope}" if self.scope else ""
        low, high = self.expected
        small, large = self.sizes
        return (
            f"{self.quantity}{scope_text} from size {small} to {large}: × {self.ratio:.2f}, "
            f"expected × {low:.2f} to {high:.2f}"
        )


class Growth(NamedTuple):
    """The growth of a model with its size.

    Attributes:
      sizes: the measurements, from small to large.
      departures: where they depart from the expected growth.
    """

    sizes: Sequence[SizeMeasurement]
    departures: Sequence[Deviation]

    def __str__(self) -> str:
        rows = [
            (
                str(m.size), f"{m.num_parameters:,}", f"{m.flops:.3g}", f"{1e3 * m.seconds:.3f}",
                f"{m.peak_bytes / 2**20:.1f}", f"{m.loss:.4g}",
            )
            for m in self.sizes
        ]  # fmt: skip
        header = ("size", "parameters", "flops", "ms per step", "peak MiB", "loss")
        lines = [format_table(header, rows), ""]
        lines += map(str, self.departures)
        if not self.departures:
            lines.append("time, memory and loss grow as expected")
        return "\n".join(lines)


def measure_growth(
    build: Callable[[Any], Program],
    batch: Callable[[Any], Batch],
    sizes: Sequence[Any],
    steps: int = 20,
    tolerance: float = 1.6,
) -> Growth:
    """Run a model at several sizes, and compare its growth with the growth of its work.

    The time of a step, and of each name scope, should grow at a rate between the growth of its
    floating-point operations and of the bytes that its nodes read and write; memory, at a rate
    between the growth of the parameters and of the bytes. The loss after the same number of steps
    should be finite, and should not grow.

    Args:
      build: builds the model of a size in the default graph, with static shapes. If a fetch is
        named "loss", the loss is compared.
      batch: returns the feeds of a step at a size.
      sizes: from small to large, at least two.
      steps: number of training steps of each size.
      tolerance: factor by which a ratio may be outside the expected range.
    Raises: InvalidArgumentError: fewer than two sizes, or no steps, or `tolerance` is below 1.

    Examples:
      >>> def build(size):
      ...     x = wf.placeholder(wf.float32, [size, size], name="x")
      ...     return wf.porting.Program({"loss": wf.reduce_sum(x @ x)}, {"x": x})
      >>> def batch(size):
      ...     return {"x": np.zeros([size, size])}
      >>> growth = wf.porting.measure_growth(build, batch, [4, 8], steps=2)
      >>> growth.sizes[1].flops > growth.sizes[0].flops
      True
    """
    if len(sizes) < 2 or steps < 1 or not tolerance >= 1:
        raise errors.InvalidArgumentError(
            "growth needs at least 2 sizes, 1 step and a tolerance of at least 1; got "
            f"{len(sizes)}, {steps} and {tolerance}"
        )
    measured = [_measure(build, batch, size, steps) for size in sizes]
    departures = [
        departure
        for small, large in pairwise(measured)
        for departure in _departures(small, large, tolerance)
    ]
    return Growth(measured, departures)


def _measure(
    build: Callable[[Any], Program], batch: Callable[[Any], Batch], size: Any, steps: int
) -> SizeMeasurement:
    graph = Graph()
    with graph.as_default():
        program = build(size)
        feeds = {program.inputs[name]: value for name, value in batch(size).items()}
        fetches = [dict(program.fetches), list(program.then)]
        initializer = global_variables_initializer()
        variables = global_variables()
        with Session() as session:
            session.run(initializer)
            metadata = proto.RunMetadata()
            options = proto.RunOptions(trace_level=proto.RunOptions.FULL_TRACE)
            session.run(fetches, feeds)  # the first step also plans
            session.run(fetches, feeds, options, metadata)
            reset_memory_stats("CPU:0")
            seconds = []
            for _ in range(steps):
                start = time.perf_counter()
                values, _ = session.run(fetches, feeds)
                seconds.append(time.perf_counter() - start)
            peak = get_memory_info("CPU:0")["peak"]
    scopes, flops, moved = _scopes(graph, metadata)
    parameters = sum(v.shape.num_elements() or 0 for v in variables)
    loss = float(np.mean(values["loss"])) if "loss" in values else math.nan
    return SizeMeasurement(
        size, parameters, flops, moved, statistics.median(seconds), peak, loss, scopes
    )


def _scopes(graph: Graph, metadata: Any) -> tuple[dict[str, tuple[float, float]], float, float]:
    """Return time and work of each outermost scope, and the flops and bytes of the step."""
    scopes: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    flops = moved = 0.0
    for execution in node_times(metadata.step_stats):
        scope = scopes[execution.name.partition("/")[0]]
        scope[0] += execution.duration / 1e9
        node = graph.find_node(execution.name)
        cost = _static_cost(node) if node is not None else None
        if cost is not None:
            flops, moved = flops + cost[0], moved + cost[1]
            scope[1] += max(cost)
    return {name: (seconds, work) for name, (seconds, work) in scopes.items()}, flops, moved


def _static_cost(node: Node) -> tuple[float, float] | None:
    dims = [value.dims for value in (*node.inputs, *node.outputs)]
    if any(d is None or None in d for d in dims):
        return None
    shapes: Any = dims
    count = len(node.inputs)
    cost = cost_of(node, shapes[:count], shapes[count:])
    return cost.flops, cost.bytes


def _departures(
    small: SizeMeasurement, large: SizeMeasurement, tolerance: float
) -> list[Deviation]:
    sizes = small.size, large.size
    result = []

    def check(quantity: str, scope: str, ratio: float, *expected: float) -> None:
        low, high = min(expected), max(expected)
        if not low / tolerance <= ratio <= high * tolerance:
            result.append(Deviation(quantity, scope, sizes, (low, high), ratio))

    work = _ratio(small.flops, large.flops), _ratio(small.bytes, large.bytes)
    if small.seconds >= _NOISE:
        check("time", "", large.seconds / small.seconds, 1.0, *work)
    for scope, (seconds, amount) in small.scopes.items():
        large_scope = large.scopes.get(scope)
        if large_scope is not None and seconds >= _NOISE and amount:
            check("time", scope, large_scope[0] / seconds, 1.0, _ratio(amount, large_scope[1]))
    if small.peak_bytes >= _SMALL:
        parameters = _ratio(small.num_parameters, large.num_parameters)
        ratio = large.peak_bytes / small.peak_bytes
        check("memory", "", ratio, 1.0, parameters, work[1])
    if not math.isnan(small.loss):
        ratio = 1.0 if large.loss == small.loss else large.loss / (small.loss or 1e-30)
        if not ratio <= tolerance:  # also if it is NaN
            result.append(Deviation("loss", "", sizes, (0.0, 1.0), ratio))
    return result


def _ratio(small: float, large: float) -> float:
    return large / small if small else 1.0

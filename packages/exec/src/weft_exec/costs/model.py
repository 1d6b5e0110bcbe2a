"""The cost model: estimates from static shapes, blended with measurements of traced steps."""

from __future__ import annotations

__all__ = ["CostModel"]

import math
import os
import threading
from collections.abc import Iterable
from math import prod
from typing import Any, Final
from weakref import WeakKeyDictionary

from weft_exec.costs.measurements import WARM_UP, Mean, Measurements, Ratio, add_to_mean
from weft_exec.costs.signature import (
    Profile,
    Signature,
    fill_unknown_sizes,
    fit_shape,
    is_known,
    resolve_signature,
    signature_of,
)
from weft_exec.devices.description import DeviceDescription, link_between
from weft_exec.devices.performance import DevicePerformance, default_performance
from weft_exec.tracing.records import NodeRecord
from weft_graph.functions.function import Function
from weft_graph.functions.state import callee
from weft_graph.ir.costs import Cost
from weft_graph.ir.deep_stack import deeper
from weft_graph.ir.device_spec import parse
from weft_graph.ir.node import Node, Output
from weft_graph.ir.traits import Role

ASSUMED_SIZE: Final = 32
"""Value that is assumed for an unknown size until such sizes have been measured."""

_MOST_PROFILES: Final = 1 << 16
_LARGEST_LOGARITHM: Final = 40.0


class _Entry:
    """Cached estimates of one node, valid for its current shapes and measurements.

    It holds no reference to its node, which would keep the node alive.

    Attributes:
      generation: the generation of the measurements.
      profile: the profile with unknown sizes left unknown.
      exact: the profile with all sizes known or assumed.
      seconds: for each device type, the performance figures and the estimate for them.
    """

    __slots__ = ("exact", "generation", "profile", "seconds")

    def __init__(self, generation: int, profile: Profile, exact: Profile) -> None:
        self.generation = generation
        self.profile = profile
        self.exact = exact
        self.seconds: dict[str, tuple[DevicePerformance, float]] = {}


class CostModel:
    """Estimates of the times of nodes and transfers and of the sizes of outputs.

    A static estimate is the launch overhead plus the larger of arithmetic time and memory time. It
    is blended with measurements, whose weight grows with their number. The most specific
    measurements are used: those of the node itself, then those of nodes with equal op, types and
    shapes, and last a correction factor over all nodes of the device type.

    Thread-safe: `observe`, `save` and `load` exclude each other, and reads need no lock.

    Args:
      node_limit: maximum number of measured nodes on each device type; the least recently measured
        are evicted.
      op_limit: maximum number of measured kinds of nodes (nodes with equal op, types and shapes).
    """

    def __init__(self, node_limit: int = 200_000, op_limit: int = 50_000) -> None:
        self._lock = threading.Lock()
        self._measurements = Measurements(node_limit, op_limit)
        self._entries: WeakKeyDictionary[Node, _Entry] = WeakKeyDictionary()
        self._profiles: dict[Signature, Profile] = {}
        self._performances: dict[str, DevicePerformance] = {}
        self._factors: dict[str, tuple[Ratio, float]] = {}
        self._calls: WeakKeyDictionary[Function, dict[tuple[str, int], float]]
        self._calls = WeakKeyDictionary()
        self._generation = 0
        self._num_given = 0
        self._active = threading.local()

    # ------------------------------------------------------------------ estimates

    def seconds(self, node: Node, device: DeviceDescription) -> float:
        """Return the estimated time of one execution of a node on a device, in seconds."""
        entry = self._entry(node)
        performance = device.performance
        if self._performances.get(device.name) is not performance:
            self._performances[device.name] = self._performances[device.type] = performance
        measured = entry.seconds.get(device.type)
        if measured is not None and measured[0] is performance:
            return measured[1]
        estimate = self._estimate(node, entry, device, performance)
        entry.seconds[device.type] = performance, estimate
        return estimate

    def _estimate(
        self, node: Node, entry: _Entry, device: DeviceDescription, performance: DevicePerformance
    ) -> float:
        kind, exact, result = device.type, entry.exact, self._measurements
        estimate = performance.seconds(*exact.work)
        ratio = result.ratios.get(kind)
        if ratio is not None:
            estimate *= self._factor(kind, ratio)
        if node.role is Role.CALL:
            estimate += self._body_seconds(node, device)
        if exact.shared:
            mean = result.ops.get((kind, exact.text))
            if mean is not None:
                estimate = mean.blend(estimate)
        mean = result.nodes.get((kind, node.name, entry.profile.text))
        return estimate if mean is None else mean.blend(estimate)

    def _factor(self, kind: str, ratio: Ratio) -> float:
        factor = self._factors.get(kind)
        if factor is None or factor[0] is not ratio:
            factor = self._factors[kind] = ratio, ratio.factor
        return factor[1]

    def nbytes(self, output: Output) -> int:
        """Return the estimated size of an output in bytes; exact if its static shape is known.

        The size of a handle is 1, because its resource is not moved.
        """
        dims = output.dims
        if dims is not None and None not in dims:
            exact: int = prod(dims) * output.dtype.size  # type: ignore[arg-type]
            return exact
        entry = self._entry(output.node)
        mean = self._measured_bytes(output, entry.profile)
        if mean is not None:
            return round(mean)
        size: int = prod(entry.exact.outputs[output.index]) * output.dtype.size
        return size

    def transfer_seconds(
        self, nbytes: int, source: DeviceDescription, target: DeviceDescription
    ) -> float:
        """Return the estimated time of a transfer to another device, in seconds.

        It is 0 on the same device, and only the latency between devices that share memory.
        """
        if source is target or source.name == target.name:
            return 0.0
        return link_between(source, target).seconds(nbytes)

    def persistent_bytes(self, node: Node) -> int:
        """Return the estimated size of a variable's value in bytes; 0 for other nodes."""
        if node.role is not Role.VARIABLE:
            return 0
        dims = fill_unknown_sizes(node.attrs["shape"], self._assumed_size())
        size: int = node.attrs["dtype"].size
        return prod(dims) * size

    def work(self, node: Node) -> Cost:
        """Return the work of one execution of a node; the body of a call is not included."""
        return self._entry(node).exact.work

    def is_measured(self, node: Node, device: DeviceDescription) -> bool:
        """Return True if this exact node was measured on a device of this type."""
        text = self._entry(node).profile.text
        return self._measurements.nodes.get((device.type, node.name, text)) is not None

    def assume(self, size: int) -> None:
        """Set the value of unknown sizes for the next plan.

        0 selects the measured or the default value.
        """
        if size != self._num_given:
            with self._lock:
                self._num_given = size
                self._generation += 1

    # ------------------------------------------------------------------ measurements

    def observe(self, records: Iterable[NodeRecord]) -> None:
        """Update the measurements with the records of a traced step.

        The times of nodes that wait for something other than their inputs are ignored; only their
        sizes are used.
        """
        batch = list(records)
        with self._lock:
            for record in batch:
                self._observe_sizes(record)
            self._generation += 1
            for record in batch:
                if not record.waited and record.end >= record.start:
                    self._observe_time(record)
            self._generation += 1

    def _observe_sizes(self, record: NodeRecord) -> None:
        node = record.node
        if len(record.sizes) != len(node.outputs):
            return
        if all(is_known(output.dims) for output in node.outputs):
            return
        key = (node.name, self._entry(node).profile.text)
        old_sizes: tuple[Mean | None, ...] = self._measurements.sizes.get(key) or ()
        if len(old_sizes) != len(record.sizes):
            old_sizes = (None,) * len(record.sizes)
        pairs = zip(old_sizes, record.sizes, strict=True)
        self._measurements.sizes.put(key, tuple(add_to_mean(mean, size)[0] for mean, size in pairs))
        for output, size in zip(node.outputs, record.sizes, strict=True):
            if output.dims is not None and None in output.dims:
                fit = fit_shape(output, size / output.dtype.size)
                self._measure_unknown(fit[output.dims.index(None)])

    def _measure_unknown(self, size: int) -> None:
        if size > 0:
            self._measurements.unknown, _ = add_to_mean(self._measurements.unknown, math.log(size))

    def _observe_time(self, record: NodeRecord) -> None:
        node, result = record.node, self._measurements
        seconds = (record.end - record.start) * 1e-9
        kind = (parse(record.device).device_type if record.device else None) or "CPU"
        entry = self._entry(node)
        exact = entry.exact
        key = (kind, node.name, entry.profile.text)
        mean, weight = add_to_mean(result.nodes.get(key), seconds)
        result.nodes.put(key, mean)
        if not exact.shared:
            return
        shared = result.ops.get((kind, exact.text))
        result.ops.put(
            (kind, exact.text),
            Mean(seconds, WARM_UP) if shared is None else shared.add(seconds, weight),
        )
        performance = self._performances.get(record.device) or self._performances.get(kind)
        estimate = (performance or default_performance(kind)).seconds(*exact.work)
        result.ratios[kind] = result.ratios.get(kind, Ratio()).add(seconds, estimate, weight)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the measurements to a file, which is replaced atomically.

        Raises:
          ResourceExhaustedError: the measurements exceed the maximum file size.
          NotFoundError: the directory does not exist.
        """
        from weft_exec.costs import storage

        with self._lock:
            storage.write(os.fspath(path), self._measurements)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Add the measurements of a file; if the file is invalid, nothing changes.

        Raises:
          NotFoundError: the file does not exist.
          InvalidArgumentError: it is not a cost model file, has another version, or is too large.
          DataLossError: it is damaged.
        """
        from weft_exec.costs import storage

        limits = self._measurements.node_limit, self._measurements.op_limit
        older = storage.read(os.fspath(path), lambda: Measurements(*limits))
        with self._lock:
            self._measurements.merge(older)
            self._generation += 1

    # ------------------------------------------------------------------ profiles and sizes

    def _entry(self, node: Node) -> _Entry:
        """Return the cached estimates of a node, renewed if shapes or measurements have changed."""
        entry = self._entries.get(node)
        generation = self._generation
        if entry is None or not entry.profile.fits(node):
            profile = self._profile(node, signature_of(node))
        elif entry.generation == generation:
            return entry
        else:
            profile = entry.profile
        exact = profile if profile.known else self._resolve_profile(node, profile.signature)
        entry = self._entries[node] = _Entry(generation, profile, exact)
        return entry

    def _profile(self, node: Node, signature: Signature) -> Profile:
        profile = self._profiles.get(signature)
        if profile is None:
            if len(self._profiles) >= _MOST_PROFILES:
                self._profiles = {}
            profile = self._profiles[signature] = Profile(node, signature)
        return profile

    def _resolve_profile(self, node: Node, signature: Signature) -> Profile:
        """Return the profile of a node with measured or assumed values for its unknown sizes."""
        values = (*node.inputs, *node.outputs)
        result: list[tuple[int, ...] | None] = []
        typical = None
        for output in values:
            dims = output.dims
            if dims is not None and None not in dims:
                result.append(dims)  # type: ignore[arg-type]
                continue
            measured = self._infer_dims(output)
            result.append(measured)
            if typical is None and measured is not None and dims is not None:
                typical = measured[dims.index(None)]
        if None in result:
            size = self._assumed_size() if typical is None else typical
            result = [
                fill_unknown_sizes(output.dims, size) if dims is None else dims
                for output, dims in zip(values, result, strict=True)
            ]
        count = len(node.inputs)
        exact = resolve_signature(signature, result[:count], result[count:])
        return self._profile(node, exact)

    def _infer_dims(self, output: Output) -> tuple[int, ...] | None:
        """Return the shape that an output has according to its measured size in bytes."""
        if not len(self._measurements.sizes):
            return None
        node = output.node
        entry = self._entries.get(node)
        if entry is None or not entry.profile.fits(node):
            profile = self._profile(node, signature_of(node))
        else:
            profile = entry.profile
        mean = self._measured_bytes(output, profile)
        return None if mean is None else fit_shape(output, mean / output.dtype.size)

    def _measured_bytes(self, output: Output, profile: Profile) -> float | None:
        means = self._measurements.sizes.get((output.node.name, profile.text))
        if means is None or output.index >= len(means):
            return None
        return means[output.index].value * max(1.0, self._num_given / self._typical_size())

    def _assumed_size(self) -> int:
        """Return the assumed value of an unknown size."""
        return self._num_given or self._typical_size()

    def _typical_size(self) -> int:
        """Return the typical value that unknown sizes had in measured steps."""
        unknown = self._measurements.unknown
        if unknown is None:
            return ASSUMED_SIZE
        return max(1, round(math.exp(min(unknown.value, _LARGEST_LOGARITHM))))

    # ------------------------------------------------------------------ calls

    def _body_seconds(self, call: Node, device: DeviceDescription) -> float:
        """Return the time of all nodes in the body of a call; a recursive call counts once."""
        function = callee(call)
        active: set[Any] = self._active.__dict__.setdefault("functions", set())
        if function is None or function in active:
            return 0.0
        cached = self._calls.setdefault(function, {})
        key = (device.name, self._generation)
        if key not in cached:
            active.add(function)
            try:
                total = deeper(self._sum, function.graph.nodes, device, active)
            finally:
                active.discard(function)
            if active:  # the body of a recursive function may be incomplete here
                return total
            for old in [old for old in cached if old[1] != key[1]]:
                cached.pop(old, None)
            cached[key] = total
        return cached[key]

    def _sum(self, nodes: Iterable[Node], device: DeviceDescription, active: set[Any]) -> float:
        self._active.functions = active  # may run on a new thread if the stack is deep
        return sum([self.seconds(node, device) for node in nodes])

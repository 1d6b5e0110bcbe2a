"""The cost model: estimates from static shapes, blended with what traced steps took."""

from __future__ import annotations

__all__ = ["CostModel"]

import math
import os
import threading
from collections.abc import Iterable
from math import prod
from typing import Any, Final
from weakref import WeakKeyDictionary

from weft_exec.costs.measurements import WARM_UP, Mean, Measurements, Ratio, added
from weft_exec.costs.signature import (
    Profile,
    Signature,
    filled,
    fitted,
    is_known,
    resolved_signature,
    signature_of,
)
from weft_exec.devices.description import DeviceDescription, link_between
from weft_exec.devices.performance import DevicePerformance, default_performance
from weft_exec.tracing import NodeRecord
from weft_graph.functions.function import Function
from weft_graph.functions.state import callee
from weft_graph.ir.costs import Cost
from weft_graph.ir.deep_stack import deeper
from weft_graph.ir.device_spec import parse
from weft_graph.ir.node import Node, Output
from weft_graph.ir.traits import Role

ASSUMED_SIZE: Final = 32
"""What a size that is not known statically is taken for, until some have been measured."""

_MOST_PROFILES: Final = 1 << 16
_LARGEST_LOGARITHM: Final = 40.0


class _Entry:
    """What is known of one node, as long as its shapes and the measurements are the same.

    It refers to no node, since it must not keep its own alive.

    Attributes:
      generation: of the measurements.
      profile: with sizes unknown as they are.
      exact: the profile with all sizes known or assumed.
      seconds: device type to the estimate there, and what it was made for.
    """

    __slots__ = ("exact", "generation", "profile", "seconds")

    def __init__(self, generation: int, profile: Profile, exact: Profile) -> None:
        self.generation = generation
        self.profile = profile
        self.exact = exact
        self.seconds: dict[str, tuple[DevicePerformance, float]] = {}


class CostModel:
    """Estimates what nodes take on devices, how large their outputs are, and what transfers take.

    An estimate follows from static shapes: the launch, and the arithmetic or the memory traffic,
    whichever takes longer. Where a node was measured, what was measured counts the more the more
    often it was: for the node itself, for nodes with equal op, types and shapes, and at last, as a
    factor on estimates, for all nodes of the device's type.

    May be used by several threads; only `observe`, `save` and `load` wait for one another.

    Args:
      node_limit: how many measured nodes are remembered, each on each device type; at the limit
        those go that were not measured for the longest time.
      op_limit: how many measured kinds of nodes, with equal op, types and shapes.
    """

    def __init__(self, node_limit: int = 200_000, op_limit: int = 50_000) -> None:
        self._lock = threading.Lock()
        self._found = Measurements(node_limit, op_limit)
        self._entries: WeakKeyDictionary[Node, _Entry] = WeakKeyDictionary()
        self._profiles: dict[Signature, Profile] = {}
        self._performances: dict[str, DevicePerformance] = {}
        self._factors: dict[str, tuple[Ratio, float]] = {}
        self._calls: WeakKeyDictionary[Function, dict[tuple[str, int], float]]
        self._calls = WeakKeyDictionary()
        self._generation = 0
        self._given = 0
        self._inside = threading.local()

    # ------------------------------------------------------------------ estimates

    def seconds(self, node: Node, device: DeviceDescription) -> float:
        """Estimated time of one execution of a node on a device, in seconds."""
        entry = self._entry(node)
        performance = device.performance
        if self._performances.get(device.name) is not performance:
            self._performances[device.name] = self._performances[device.type] = performance
        known = entry.seconds.get(device.type)
        if known is not None and known[0] is performance:
            return known[1]
        estimate = self._estimate(node, entry, device, performance)
        entry.seconds[device.type] = performance, estimate
        return estimate

    def _estimate(
        self, node: Node, entry: _Entry, device: DeviceDescription, performance: DevicePerformance
    ) -> float:
        kind, exact, found = device.type, entry.exact, self._found
        estimate = performance.seconds(*exact.work)
        ratio = found.ratios.get(kind)
        if ratio is not None:
            estimate *= self._factor(kind, ratio)
        if node.role is Role.CALL:
            estimate += self._body_seconds(node, device)
        if exact.shared:
            mean = found.ops.get((kind, exact.text))
            if mean is not None:
                estimate = mean.blend(estimate)
        mean = found.nodes.get((kind, node.name, entry.profile.text))
        return estimate if mean is None else mean.blend(estimate)

    def _factor(self, kind: str, ratio: Ratio) -> float:
        known = self._factors.get(kind)
        if known is None or known[0] is not ratio:
            known = self._factors[kind] = ratio, ratio.factor
        return known[1]

    def nbytes(self, output: Output) -> int:
        """Estimated bytes of an output; exact where its static shape is known.

        Of a handle this is 1, as what is behind it stays where it is.
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
        """Estimated time until a value is on another device, in seconds.

        0 on the same device, and the latency alone between devices that share memory.
        """
        if source is target or source.name == target.name:
            return 0.0
        return link_between(source, target).seconds(nbytes)

    def persistent_bytes(self, node: Node) -> int:
        """Estimated bytes that a node keeps between steps: a variable's value, else 0."""
        if node.role is not Role.VARIABLE:
            return 0
        dims = filled(node.attrs["shape"], self._assumed())
        size: int = node.attrs["dtype"].size
        return prod(dims) * size

    def work(self, node: Node) -> Cost:
        """What one execution of a node computes and moves; for a call, without the body's."""
        return self._entry(node).exact.work

    def is_measured(self, node: Node, device: DeviceDescription) -> bool:
        """Whether an execution of this very node was measured on a device of this type."""
        text = self._entry(node).profile.text
        return self._found.nodes.get((device.type, node.name, text)) is not None

    def assume(self, size: int) -> None:
        """Take unknown sizes for what the next plan is for; 0 for what was measured, or assumed."""
        if size != self._given:
            with self._lock:
                self._given = size
                self._generation += 1

    # ------------------------------------------------------------------ measurements

    def observe(self, records: Iterable[NodeRecord]) -> None:
        """Learn from the records of a traced step.

        Nodes that wait for something other than their inputs tell their sizes, but no time.
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
        before: tuple[Mean | None, ...] = self._found.sizes.get(key) or ()
        if len(before) != len(record.sizes):
            before = (None,) * len(record.sizes)
        pairs = zip(before, record.sizes, strict=True)
        self._found.sizes.put(key, tuple(added(mean, size)[0] for mean, size in pairs))
        for output, size in zip(node.outputs, record.sizes, strict=True):
            if output.dims is not None and None in output.dims:
                fit = fitted(output, size / output.dtype.size)
                self._learn_unknown(fit[output.dims.index(None)])

    def _learn_unknown(self, size: int) -> None:
        if size > 0:
            self._found.unknown, _ = added(self._found.unknown, math.log(size))

    def _observe_time(self, record: NodeRecord) -> None:
        node, found = record.node, self._found
        seconds = (record.end - record.start) * 1e-9
        kind = (parse(record.device).device_type if record.device else None) or "CPU"
        entry = self._entry(node)
        exact = entry.exact
        key = (kind, node.name, entry.profile.text)
        mean, weight = added(found.nodes.get(key), seconds)
        found.nodes.put(key, mean)
        if not exact.shared:
            return
        shared = found.ops.get((kind, exact.text))
        found.ops.put(
            (kind, exact.text),
            Mean(seconds, WARM_UP) if shared is None else shared.add(seconds, weight),
        )
        performance = self._performances.get(record.device) or self._performances.get(kind)
        estimate = (performance or default_performance(kind)).seconds(*exact.work)
        found.ratios[kind] = found.ratios.get(kind, Ratio()).add(seconds, estimate, weight)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write what was measured to a file, which is replaced at one moment.

        Raises:
          ResourceExhaustedError: it takes more than such a file may have.
          NotFoundError: there is no such directory.
        """
        from weft_exec.costs import storage

        with self._lock:
            storage.write(os.fspath(path), self._found)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Add what was measured before; where it is refused, nothing changes.

        Raises:
          NotFoundError: there is no such file.
          InvalidArgumentError: it is no cost model's, is of another version, or is too large.
          DataLossError: it is damaged.
        """
        from weft_exec.costs import storage

        limits = self._found.node_limit, self._found.op_limit
        older = storage.read(os.fspath(path), lambda: Measurements(*limits))
        with self._lock:
            self._found.merge(older)
            self._generation += 1

    # ------------------------------------------------------------------ profiles and sizes

    def _entry(self, node: Node) -> _Entry:
        """What is known of a node now: its shapes may have changed, or more has been measured."""
        entry = self._entries.get(node)
        generation = self._generation
        if entry is None or not entry.profile.fits(node):
            profile = self._profile(node, signature_of(node))
        elif entry.generation == generation:
            return entry
        else:
            profile = entry.profile
        exact = profile if profile.known else self._resolved(node, profile.signature)
        entry = self._entries[node] = _Entry(generation, profile, exact)
        return entry

    def _profile(self, node: Node, signature: Signature) -> Profile:
        profile = self._profiles.get(signature)
        if profile is None:
            if len(self._profiles) >= _MOST_PROFILES:
                self._profiles = {}
            profile = self._profiles[signature] = Profile(node, signature)
        return profile

    def _resolved(self, node: Node, signature: Signature) -> Profile:
        """The profile of a node with its unknown sizes as they were measured, or else assumed."""
        values = (*node.inputs, *node.outputs)
        found: list[tuple[int, ...] | None] = []
        typical = None
        for output in values:
            dims = output.dims
            if dims is not None and None not in dims:
                found.append(dims)  # type: ignore[arg-type]
                continue
            measured = self._measured_dims(output)
            found.append(measured)
            if typical is None and measured is not None and dims is not None:
                typical = measured[dims.index(None)]
        if None in found:
            size = self._assumed() if typical is None else typical
            found = [
                filled(output.dims, size) if dims is None else dims
                for output, dims in zip(values, found, strict=True)
            ]
        count = len(node.inputs)
        exact = resolved_signature(signature, found[:count], found[count:])
        return self._profile(node, exact)

    def _measured_dims(self, output: Output) -> tuple[int, ...] | None:
        """The shape that follows from an output's measured bytes."""
        if not len(self._found.sizes):
            return None
        node = output.node
        entry = self._entries.get(node)
        if entry is None or not entry.profile.fits(node):
            profile = self._profile(node, signature_of(node))
        else:
            profile = entry.profile
        mean = self._measured_bytes(output, profile)
        return None if mean is None else fitted(output, mean / output.dtype.size)

    def _measured_bytes(self, output: Output, profile: Profile) -> float | None:
        means = self._found.sizes.get((output.node.name, profile.text))
        if means is None or output.index >= len(means):
            return None
        return means[output.index].value * max(1.0, self._given / self._typical())

    def _assumed(self) -> int:
        """What an unknown size is taken for."""
        return self._given or self._typical()

    def _typical(self) -> int:
        """What unknown sizes were in steps that were measured."""
        unknown = self._found.unknown
        if unknown is None:
            return ASSUMED_SIZE
        return max(1, round(math.exp(min(unknown.value, _LARGEST_LOGARITHM))))

    # ------------------------------------------------------------------ calls

    def _body_seconds(self, call: Node, device: DeviceDescription) -> float:
        """The time of all nodes in the body of a call; of a recursive one, once around."""
        function = callee(call)
        active: set[Any] = self._inside.__dict__.setdefault("functions", set())
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
            if active:  # what is inside a recursive function may lack a part
                return total
            for old in [old for old in cached if old[1] != key[1]]:
                cached.pop(old, None)
            cached[key] = total
        return cached[key]

    def _sum(self, nodes: Iterable[Node], device: DeviceDescription, active: set[Any]) -> float:
        self._inside.functions = active  # on a new thread too, where the stack is deep
        return sum([self.seconds(node, device) for node in nodes])

"""Segments of a GPU, launched as CUDA graphs.

Instructions run one by one in the first call, so that their regions are compiled. In the second
call, their reads and writes are recorded. Then they are divided into pieces. Runs of instructions
that work on the GPU alone become graphs (`graph_piece.py`); instructions that involve the host run
as before. Instructions on values of the host alone, such as counters, and copies to the GPU are
moved before a run, since they do not depend on it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from weft_exec.executor.linear import Check, Compound, Instruction, Segment, Slots
from weft_exec.executor.region import RegionCall
from weft_exec.gpu.capture import current
from weft_exec.gpu.residency import is_of_host, stays
from weft_exec.gpu.shadows import state_in
from weft_exec.kernels.random_counters import needs_counters
from weft_exec.resources.resources import VariableState
from weft_graph.ir.node import Node

if TYPE_CHECKING:
    from weft_exec.gpu.device import GpuDevice
    from weft_exec.gpu.graph_piece import GraphPiece
    from weft_exec.tracing import StepTrace

_log: Final = logging.getLogger(__name__)

LEAST: Final = 2
"""Minimum number of instructions of a graph."""


class Kind(Enum):
    """The processor on which an instruction works."""

    HOST = "takes values of the host alone"
    DEVICE = "takes and gives values of the GPU, and the host looks at none"
    BREAK = "neither"


class Seen(NamedTuple):
    """The recorded trace of an instruction.

    Attributes:
      at: its position.
      reads: the slots that it reads, with their values.
      writes: the slots that it writes.
      multiplies: whether it computes matrix products.
    """

    at: int
    kind: Kind
    reads: dict[int, Any]
    writes: frozenset[int]
    multiplies: bool


class _Watched(list[Any]):
    """A slot list that records reads and writes."""

    def __init__(self, slots: Slots) -> None:
        super().__init__(slots)
        self.forget()

    def forget(self) -> None:
        """Clear the record."""
        self.reads: dict[int, Any] = {}
        self.writes: set[int] = set()

    def __getitem__(self, at: Any) -> Any:
        for slot in range(len(self))[at] if isinstance(at, slice) else (at,):
            if slot not in self.writes:
                self.reads.setdefault(slot, list.__getitem__(self, slot))
        return list.__getitem__(self, at)

    def __setitem__(self, at: Any, value: Any) -> None:
        self.writes.update(range(len(self))[at] if isinstance(at, slice) else (at,))
        list.__setitem__(self, at, value)


def graphed(device: GpuDevice, segment: Segment) -> None:
    """Launch a segment as graphs if it has compiled regions; includes loops."""
    if not device.in_graphs():
        return
    for function, *_ in segment.instructions:
        if isinstance(function, Compound) and not isinstance(function, RegionCall):
            for inner in function.segments:
                graphed(device, inner)
    compiled = [f for f, *_ in segment.instructions if isinstance(f, RegionCall) and f.is_compiled]
    if compiled and len(segment.instructions) >= LEAST:
        segment.become(StepGraph(device, segment.copy()))


class StepGraph(Compound):
    """Instructions that become graphs; see the module."""

    def __init__(self, device: GpuDevice, segment: Segment) -> None:
        self._device = device
        self._inner = segment
        self._pieces: Sequence[GraphPiece | Segment] | None = None
        self._refused: dict[int, str] = {}
        self._seen: Sequence[Seen] = ()
        self._runs = 0
        self._stopped = False
        self._lock = threading.Lock()

    @property
    def segments(self) -> Sequence[Segment]:
        """The original instructions."""
        return (self._inner,)

    def call_checked(self, check: Check, trace: StepTrace | None, *inputs: Any) -> None:
        """Run with `check` and `trace`; traced instructions run one by one."""
        (slots,) = inputs
        if trace is not None:
            self._inner.run_checked(slots, check, trace)
            return
        check()
        self(slots)
        check()

    def __call__(self, slots: Slots) -> None:
        """Run all instructions."""
        pieces = self._pieces
        if pieces is None:
            self._begin(slots)
            return
        for piece in pieces:
            piece.run(slots)

    def stop(self) -> None:
        """Stop the pieces."""
        self._stopped = True
        for piece in self._pieces or ():
            piece.cancel()

    def _begin(self, slots: Slots) -> None:
        """Run the instructions one by one; from the second call on, one thread records them."""
        with self._lock:
            self._runs += 1
            watching = self._runs == 2
        if not watching:
            self._inner.run(slots)
            return
        try:
            self._seen = self._watch(slots)
        except BaseException:  # because the record is incomplete after any error
            self._runs = 1  # so the next call is recorded
            raise
        self._cut()

    def refuse(self, at: int, why: str) -> None:
        """Exclude an instruction from graphs from now on."""
        if at in self._refused:
            return
        node = self._inner.nodes[at]
        _log.info("%s stays out of CUDA graphs: %s", node.name, why)
        with self._lock:
            self._refused[at] = why
            self._cut()

    # ------------------------------------------------------------------ watching

    def _watch(self, slots: Slots) -> list[Seen]:
        """Run the instructions one by one, and record the reads and writes of each."""
        inner, found, watched = self._inner, [], _Watched(slots)
        for at, instruction in enumerate(list(inner.instructions)):
            watched.forget()
            products = current.products
            line = Segment([instruction], inner.nodes[at : at + 1], inner.devices[at : at + 1])
            line.run(watched)
            dead = instruction[3]
            watched.writes.discard(0)
            given = {slot: list.__getitem__(watched, slot) for slot in watched.writes}
            kind = self._kind(instruction, inner.nodes[at], watched.reads, given.values())
            writes = frozenset(watched.writes.difference(dead))
            multiplies = current.products > products
            found.append(Seen(at, kind, self._held(watched.reads), writes, multiplies))
            for slot, value in given.items():
                slots[slot] = value
        return found

    def _held(self, reads: dict[int, Any]) -> dict[int, Any]:
        """Return the values that were read, without the arrays."""
        return {slot: None if self._device.is_own(v) else v for slot, v in reads.items()}

    def _kind(
        self, instruction: Instruction, node: Node, reads: dict[int, Any], given: Any
    ) -> Kind:
        function, is_own = instruction[0], self._device.is_own
        is_region = isinstance(function, RegionCall)
        if isinstance(function, Compound) and not is_region:
            return Kind.BREAK
        taken = [*reads.values(), *_bound(function)]
        variables = list(filter(None, map(state_in, taken)))
        on_device = [state for state in variables if state.xp is self._device.xp]
        if not any(map(is_own, taken)) and not on_device:
            return Kind.BREAK if is_region else Kind.HOST
        others = [v for v in taken if not is_own(v) and state_in(v) is None and v is not None]
        if len(on_device) < len(variables) or not all(map(_is_small, others)):
            return Kind.BREAK
        if not all(v is None or is_own(v) or state_in(v) in on_device for v in given):
            return Kind.BREAK
        if not is_region and (needs_counters(node) or (node.op_def.stateful and not variables)):
            return Kind.BREAK
        return Kind.DEVICE

    # ------------------------------------------------------------------ cutting

    def _cut(self) -> None:
        """Divide the instructions into new pieces."""
        from weft_exec.gpu.graph_piece import GraphPiece

        pieces: list[GraphPiece | Segment] = []
        for is_run, run in _runs(self._seen, self._refused):
            if is_run:
                pieces.append(GraphPiece(self._device, self._inner, run, self.refuse))
            else:
                pieces.append(_line(self._inner, run))
        self._pieces = pieces
        if self._stopped or not self._inner.instructions:  # closed meanwhile
            self.stop()


def _runs(seen: Sequence[Seen], refused: dict[int, str]) -> list[tuple[bool, list[Seen]]]:
    """Group consecutive instructions, and tell whether each group becomes a graph."""
    found: list[tuple[bool, list[Seen]]] = []
    for each in seen:
        inside = each.kind is not Kind.BREAK and each.at not in refused
        if not found or found[-1][0] is not inside:
            found.append((inside, []))
        found[-1][1].append(each)
    worth = [
        (inside and sum(each.kind is Kind.DEVICE for each in run) >= LEAST, run)
        for inside, run in found
    ]
    joined: list[tuple[bool, list[Seen]]] = []
    for inside, run in worth:
        if joined and not inside and not joined[-1][0]:
            joined[-1][1].extend(run)
        else:
            joined.append((inside, run))
    return joined


def _line(inner: Segment, run: Sequence[Seen]) -> Segment:
    """Return some of the instructions as a segment."""
    return Segment(
        [inner.instructions[each.at] for each in run],
        [inner.nodes[each.at] for each in run],
        [inner.devices[each.at] for each in run],
    )


def _bound(function: Callable[..., Any]) -> list[VariableState]:
    """Return the variable that a function reads if it is a bound method of one."""
    of = getattr(function, "__self__", None)
    return [of] if isinstance(of, VariableState) else []


def _is_small(value: Any) -> bool:
    """Return True if a value of the host is small enough to be part of a graph's conditions."""
    if not is_of_host(value) or value.dtype.hasobject:
        return False
    return stays(value) or value.nbytes <= np.dtype(np.complex128).itemsize

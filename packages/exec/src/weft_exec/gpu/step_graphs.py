"""Segments of a GPU, launched as CUDA graphs.

In the first call, instructions run one by one, so that their regions are compiled. In the second
call, their reads and writes are recorded (`instruction_trace.py`). Then they are divided into
pieces. Sequences of instructions that work only on the GPU become graphs (`graph_piece.py`);
instructions that involve the host run as before. Instructions that use only host values, such as
counters, and copies to the GPU are moved before a sequence, because they do not depend on it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from weft_exec.executor.linear import Check, Compound, Segment, Slots
from weft_exec.executor.region import RegionCall
from weft_exec.gpu.base_device import BaseGpuDevice
from weft_exec.gpu.graph_piece import GraphPiece
from weft_exec.gpu.instruction_trace import InstructionTrace, Kind, trace_instructions

if TYPE_CHECKING:
    from weft_exec.tracing.step_trace import ThreadLog

_log: Final = logging.getLogger(__name__)

LEAST: Final = 2
"""Minimum number of instructions of a graph."""


def replace_by_graphs(device: BaseGpuDevice, segment: Segment) -> None:
    """Replace the instructions of a segment and its loops by graphs if regions are compiled."""
    if not device.prefers_graphs():
        return
    for function, *_ in segment.instructions:
        if isinstance(function, Compound) and not isinstance(function, RegionCall):
            for inner in function.segments:
                replace_by_graphs(device, inner)
    compiled = [f for f, *_ in segment.instructions if isinstance(f, RegionCall) and f.is_compiled]
    if compiled and len(segment.instructions) >= LEAST:
        segment.replace_with(StepGraph(device, segment.copy()))


class StepGraph(Compound):
    """Instructions that become graphs; see the module docstring."""

    def __init__(self, device: BaseGpuDevice, segment: Segment) -> None:
        self._device = device
        self._inner = segment
        self._pieces: Sequence[GraphPiece | Segment] | None = None
        self._refused: dict[int, str] = {}
        self._traces: Sequence[InstructionTrace] = ()
        self._runs = 0
        self._stopped = False
        self._lock = threading.Lock()

    @property
    def segments(self) -> Sequence[Segment]:
        """The original instructions."""
        return (self._inner,)

    def call_checked(self, check: Check, *inputs: Any) -> None:
        """Run with `check` before and after."""
        check()
        self(*inputs)
        check()

    def call_traced(self, log: ThreadLog, check: Check | None, *inputs: Any) -> None:
        """Run the instructions one by one, and record each."""
        self._inner.run_traced(inputs[0], log, check)

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
        """Run the instructions one by one.

        From the second call on, one thread records their traces.
        """
        with self._lock:
            self._runs += 1
            recording = self._runs == 2
        if not recording:
            self._inner.run(slots)
            return
        try:
            self._traces = trace_instructions(self._device, self._inner, slots)
        except BaseException:  # because the record is incomplete after any error
            self._runs = 1  # so the next call is recorded
            raise
        self._cut()

    def refuse(self, position: int, why: str) -> None:
        """Exclude an instruction from graphs, and log the reason."""
        if position in self._refused:
            return
        node = self._inner.nodes[position]
        _log.info("%s is not part of CUDA graphs: %s", node.name, why)
        with self._lock:
            self._refused[position] = why
            self._cut()

    # ------------------------------------------------------------------ cutting

    def _cut(self) -> None:
        """Divide the instructions into new pieces."""
        pieces: list[GraphPiece | Segment] = []
        for is_run, run in _group_instructions(self._traces, self._refused):
            if is_run:
                pieces.append(GraphPiece(self._device, self._inner, run, self.refuse))
            else:
                pieces.append(_make_segment(self._inner, run))
        self._pieces = pieces
        if self._stopped or not self._inner.instructions:  # closed meanwhile
            self.stop()


def _group_instructions(
    traces: Sequence[InstructionTrace], refused: dict[int, str]
) -> list[tuple[bool, list[InstructionTrace]]]:
    """Group consecutive instructions; the flag of a group is True if it becomes a graph."""
    groups: list[tuple[bool, list[InstructionTrace]]] = []
    for trace in traces:
        is_captured = trace.kind is not Kind.BREAK and trace.position not in refused
        if not groups or groups[-1][0] is not is_captured:
            groups.append((is_captured, []))
        groups[-1][1].append(trace)
    worth = [
        (is_captured and sum(trace.kind is Kind.DEVICE for trace in run) >= LEAST, run)
        for is_captured, run in groups
    ]
    joined: list[tuple[bool, list[InstructionTrace]]] = []
    for is_captured, run in worth:
        if joined and not is_captured and not joined[-1][0]:
            joined[-1][1].extend(run)
        else:
            joined.append((is_captured, run))
    return joined


def _make_segment(inner: Segment, run: Sequence[InstructionTrace]) -> Segment:
    """Return some of the instructions as a segment."""
    return Segment(
        [inner.instructions[trace.position] for trace in run],
        [inner.nodes[trace.position] for trace in run],
        [inner.devices[trace.position] for trace in run],
    )

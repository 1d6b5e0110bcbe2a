"""A piece of a segment as CUDA graphs, one for each set of captured conditions.

A graph is captured for certain shapes and host values. If one of them differs, or if a check of the
graph failed, the instructions run separately.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from weft_exec.executor.kernel_errors import raise_located, to_op_error
from weft_exec.executor.linear import Instruction, Segment, Slots
from weft_exec.executor.region import RegionCall
from weft_exec.gpu.base_device import BaseGpuDevice
from weft_exec.gpu.capture import NotCaptured
from weft_exec.gpu.captured_graph import CapturedGraph, InputSources, is_equal
from weft_exec.gpu.instruction_trace import InstructionTrace, Kind
from weft_exec.gpu.residency import is_of_host
from weft_exec.gpu.shadows import variable_state
from weft_tensor import errors

GRAPHS: Final = 4
"""Maximum number of graphs of a piece."""
TRIES: Final = 64
"""Number of calls with new conditions after which no further graphs are captured."""
_COST: Final = 4
"""Number of such calls that a capture counts for if variables keep changing their memory."""

_log: Final = logging.getLogger(__name__)


class GraphPiece:
    """Instructions that need no host between them; interleaved host instructions run before them.

    Args:
      inner: the segment of the instructions.
      run: the traces that were recorded of the instructions.
      refuse: called with the position of an instruction that cannot be captured, and the reason.
    """

    def __init__(
        self,
        device: BaseGpuDevice,
        inner: Segment,
        run: Sequence[InstructionTrace],
        refuse: Callable[[int, str], None],
    ) -> None:
        self._device = device
        self._refuse = refuse
        hosts = [trace.position for trace in run if trace.kind is Kind.HOST]
        self._ats = [trace.position for trace in run if trace.kind is Kind.DEVICE]
        lines = list(inner.instructions)
        # Slots that later GPU instructions read, too, are cleared at the end.
        self._host_segment = _segment(
            inner, [(*lines[position][:3], ()) for position in hosts], hosts
        )
        self._line = _segment(inner, [lines[position] for position in self._ats], self._ats)
        self._dead = sorted({slot for trace in run for slot in lines[trace.position][3]})
        produced: set[int] = set()
        inputs: dict[int, Any] = {}
        for trace in run:
            if trace.kind is Kind.DEVICE:
                inputs |= {
                    s: v for s, v in trace.reads.items() if s not in produced and s not in inputs
                }
                produced |= trace.writes
        self._multiplies = any(trace.multiplies for trace in run)
        self._input_slots = sorted(inputs)
        self._host_only_slots = _host_value_slots(lines, run)
        self._varying: set[int] = set()
        self._results = sorted(produced.difference(self._dead))
        self._graphs: list[CapturedGraph] = []
        self._last: tuple[Any, ...] = ()
        self._arrays: dict[int, weakref.ref[Any]] = {}
        self._host: dict[int, Any] = {}
        self._tries = 0
        self._lock = threading.Lock()

    def cancel(self) -> None:
        """End at the next instruction, and reject further runs."""
        self._host_segment.cancel()
        self._line.cancel()

    def run(self, slots: Slots) -> None:
        """Run all instructions.

        Raises: OpError: see `Segment.run`.
        """
        self._host_segment.run(slots)
        if not self._try_launch(slots):
            self._line.run(slots)
        for slot in self._dead:
            slots[slot] = None

    def _try_launch(self, slots: Slots) -> bool:
        """Launch a graph that fits the slots; return False if there is none."""
        if not self._line.instructions:
            return False  # closed; the caller reports it
        graph = next((item for item in list(self._graphs) if item.fits(slots)), None)
        if graph is None:
            graph = self._new(slots)
        if graph is None:
            return False
        try:
            was_launched = graph.launch(slots)
            self._tries += 0 if was_launched else 2 * _COST
            return was_launched
        except errors.FailedPreconditionError:
            return False  # a variable lost its value; the caller reports which
        except Exception as error:  # because CUDA may raise anything
            node, device = self._line.nodes[-1], self._line.devices[-1]
            raise_located(to_op_error(error, node, device, ()))

    def _new(self, slots: Slots) -> CapturedGraph | None:
        """Capture a graph if its conditions occur for the second time; return it or None."""
        with self._lock:
            if self._tries > TRIES:
                return None
            self._note_varying(slots)
            result = tuple(map(partial(_description, self._device), self._values(slots)))
            fixed = [s for s in self._input_slots if self._is_same_array(s, slots[s])]
            arrays = {s: slots[s] for s in self._input_slots if self._device.is_own(slots[s])}
            self._arrays = {slot: weakref.ref(array) for slot, array in arrays.items()}
            is_repeated = result == self._last
            self._last = result
            self._tries += _COST if is_repeated else 1
            if self._tries > TRIES:
                description = f"{len(self._ats)} instructions before {self._line.nodes[-1].name}"
                _log.info("%s run one by one: their inputs keep changing", description)
            if not is_repeated or self._tries > TRIES:
                return None
            try:
                input_sources = InputSources(
                    self._input_slots, fixed, self._varying, self._dead, self._multiplies
                )
                graph = CapturedGraph(self._device, self._line, input_sources, self._results, slots)
            except NotCaptured as why:
                self._last = ()
                position, words = self._ats[why.at or 0], str(why)
            else:
                self._graphs = [*self._graphs[-GRAPHS + 1 :], graph]
                return graph
        self._refuse(position, words)
        return None

    def _values(self, slots: Slots) -> list[Any]:
        bound = [getattr(function, "__self__", None) for function, *_ in self._line.instructions]
        inputs = [
            _ShapeOnly(slots[slot].shape, slots[slot].dtype)
            if slot in self._varying
            else slots[slot]
            for slot in self._input_slots
        ]
        return [*inputs, *filter(variable_state, bound)]

    def _note_varying(self, slots: Slots) -> None:
        """Find host values that vary between calls and that regions copy to the GPU anyway.

        These are copied before each launch. All other host values are part of a graph's conditions.
        """
        previous_host, self._host = (
            self._host,
            {s: slots[s] for s in self._input_slots if is_of_host(slots[s])},
        )
        for slot, value in self._host.items():
            known_value = previous_host.get(slot)
            if known_value is None or slot in self._host_only_slots or not _is_bringable(value):
                continue
            if not is_equal(value, known_value):
                self._varying.add(slot)
        self._varying.intersection_update(self._host)

    def _is_same_array(self, slot: int, value: Any) -> bool:
        """Return True if an array is the same one as in the previous call."""
        reference = self._arrays.get(slot)
        return reference is not None and reference() is value


class _ShapeOnly(NamedTuple):
    """A value that is used only for its shape and type."""

    shape: tuple[int, ...]
    dtype: Any


def _is_bringable(value: Any) -> bool:
    return not value.dtype.hasobject


def _host_value_slots(lines: Sequence[Instruction], run: Sequence[InstructionTrace]) -> set[int]:
    """Return the slots of host values that GPU instructions depend on."""
    result: set[int] = set()
    for trace in run:
        if trace.kind is Kind.DEVICE:
            function = lines[trace.position][0]
            result |= function.deciding if isinstance(function, RegionCall) else trace.reads.keys()
    return result


def _segment(inner: Segment, instructions: Iterable[Any], ats: Sequence[int]) -> Segment:
    nodes, devices = inner.nodes, inner.devices
    return Segment(
        list(instructions),
        [nodes[position] for position in ats],
        [devices[position] for position in ats],
    )


def _description(device: BaseGpuDevice, value: Any) -> Any:
    """Return the properties of a value that are part of a graph's conditions."""
    state = variable_state(value)
    if state is not None:
        array: Any = state.read() if state.is_initialized else None
        return id(state), array.shape if device.is_own(array) else None
    if device.is_own(value) or isinstance(value, _ShapeOnly):
        return value.shape, value.dtype
    if is_of_host(value):
        return value.shape, value.dtype, value.tobytes()
    return id(value)

"""A run of instructions captured into a CUDA graph, for the current values of its slots.

Inputs are copied to fixed addresses before each launch, and results are copied from there.
Constants are not copied. Variables are changed in place under their locks, provided that their
memory is still the same and no snapshot is held.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from weft_exec.executor.linear import Segment, Slots
from weft_exec.executor.region import RegionCall
from weft_exec.gpu.base_device import BaseGpuDevice
from weft_exec.gpu.capture import Capture, NotCaptured
from weft_exec.gpu.captured_matmul import prepare
from weft_exec.gpu.residency import is_of_host
from weft_exec.gpu.shadows import CapturedVariable, make_handle_to, variable_state
from weft_exec.resources.resources import ResourceHandle, VariableState


class InputSources(NamedTuple):
    """Sources of a graph's inputs, as slots.

    Attributes:
      input_slots: all input slots.
      fixed: the slots of arrays that were the same in the previous call.
      varying: the slots of host values that differ from call to call.
      dead: the slots without later users, possibly with others.
      multiplies: True if there are matrix products.
    """

    input_slots: Sequence[int]
    fixed: Collection[int]
    varying: Collection[int]
    dead: Collection[int]
    multiplies: bool


class CapturedGraph:
    """Instructions captured for the current values of the slots.

    Raises: NotCaptured: they cannot be captured; the error names the instruction.
    """

    def __init__(
        self,
        device: BaseGpuDevice,
        line: Segment,
        input_sources: InputSources,
        results: Sequence[int],
        slots: Slots,
    ) -> None:
        self._device = device
        self._lock = threading.Lock()
        self._capture = capture = Capture(device.hardware)
        self._shadows: dict[int, CapturedVariable] = {}
        self._host: dict[int, Any] = {}
        self._objects: dict[int, Any] = {}
        self._fixed: dict[int, Any] = {}
        self._inputs: dict[int, Any] = {}
        self._snapshots: dict[int, CapturedVariable] = {}
        self._dead = set(input_sources.dead)
        with capture.capture_context():
            graph_slots = self._places(line, slots, input_sources)
            self._results = self._capture_results(
                line, graph_slots, results, input_sources.multiplies
            )

    # ------------------------------------------------------------------ capturing

    def _places(self, line: Segment, slots: Slots, input_sources: InputSources) -> Slots:
        """Return the slots for capturing the instructions."""
        graph_slots = list(slots)
        bound = [getattr(function, "__self__", None) for function, *_ in line.instructions]
        for state in filter(
            None, map(variable_state, [*bound, *(slots[s] for s in input_sources.input_slots)])
        ):
            self._shadow(state)
        for slot in input_sources.input_slots:
            graph_slots[slot] = self._place(slot, slots[slot], input_sources)
        return graph_slots

    def _place(self, slot: int, value: Any, input_sources: InputSources) -> Any:
        """Return the replacement of a value during the capture."""
        device, state = self._device, variable_state(value)
        if state is not None:
            self._objects[slot] = value
            shadow = self._shadow(state)
            return shadow if state is value else make_handle_to(value, shadow)
        if not device.is_own(value) and slot not in input_sources.varying:
            self._host[slot] = value
            return value
        snapshot_of = self._find_mirror(value) if device.is_own(value) else None
        if snapshot_of is not None:  # an earlier read that is still the value
            self._snapshots[slot] = snapshot_of
            return snapshot_of.read()
        if slot in input_sources.fixed:
            self._fixed[slot] = value
            return value
        self._inputs[slot] = buffer = device.xp.empty(value.shape, value.dtype)
        return buffer

    def _find_mirror(self, array: Any) -> CapturedVariable | None:
        """Return the variable that has an array as its value."""
        result = [s for s in self._shadows.values() if self._has_place(s, array)]
        return result[0] if result and array.size else None

    def _shadow(self, state: VariableState) -> CapturedVariable:
        result = self._shadows.get(id(state))
        if result is None:
            array: Any = state.read() if state.is_initialized else None
            if not self._device.is_own(array) or not array.flags.c_contiguous:
                raise NotCaptured(f"variable {state.name} has no value on the GPU")
            result = self._shadows[id(state)] = CapturedVariable(
                state, array, self._device.new_array
            )
        return result

    def _capture_results(
        self, line: Segment, graph_slots: Slots, result_slots: Sequence[int], multiplies: bool
    ) -> Mapping[int, Any]:
        """Capture the instructions and return the slots and arrays of the results."""
        capture, stream = self._capture, self._capture.stream
        if multiplies:
            with suppress(NotCaptured):  # then the product itself reports the error
                prepare(capture, self._device)
        # The default mode is relaxed so that other threads can continue meanwhile.
        stream.begin_capture()
        results: Mapping[int, Any] = {}
        problem: Exception | None = None
        try:
            with stream:
                self._run(line, graph_slots)
                results = self._collect_results(graph_slots, result_slots)
                for shadow in self._shadows.values():
                    shadow.put_back()
        except Exception as error:  # because CUDA and CuPy may raise anything
            problem = error
        try:
            self._graph = stream.end_capture()
        except Exception as error:  # because the capture is invalid after some failures
            problem = problem or error
        for function in capture.at_end:
            function()
        if problem is not None:
            position = problem.at if isinstance(problem, NotCaptured) else None
            words = str(problem) if isinstance(problem, NotCaptured) else repr(problem)
            raise NotCaptured(
                words, capture.position if position is None else position
            ) from problem
        return results

    def _run(self, line: Segment, graph_slots: Slots) -> None:
        for position, (function, take, slot, dead) in enumerate(line.instructions):
            self._capture.position = position
            if isinstance(function, RegionCall):
                if not function.run_function(graph_slots):
                    raise NotCaptured("it runs with kernels")
            else:
                state = getattr(function, "__self__", None)
                if isinstance(state, VariableState):
                    function = self._shadow(state).read
                graph_slots[slot] = function(*take(graph_slots))
            for item in dead:
                graph_slots[item] = None

    def _collect_results(self, graph_slots: Slots, result_slots: Sequence[int]) -> dict[int, Any]:
        """Return the results: arrays of the graph, or values that are the same in each launch."""
        device, result = self._device, {}
        changed = [shadow for shadow in self._shadows.values() if shadow.changed]
        for slot in result_slots:
            value = graph_slots[slot]
            if device.is_own(value):
                if any(shadow.has_memory_of(value) for shadow in changed):
                    value = value.copy()  # copied before a later instruction overwrites it
            elif isinstance(value, CapturedVariable):
                value = value.of
            elif isinstance(value, ResourceHandle) and isinstance(value.resource, CapturedVariable):
                value = make_handle_to(value, value.resource.of)
            elif value is not None:
                raise NotCaptured("it returns a value in host memory")
            result[slot] = value
        return result

    # ------------------------------------------------------------------ launching

    def fits(self, slots: Slots) -> bool:
        """Return True if the graph is valid for the values in the slots."""
        device = self._device
        for slot, array in self._inputs.items():
            value = slots[slot]
            if (
                not (device.is_own(value) or is_of_host(value))
                or value.shape != array.shape
                or value.dtype != array.dtype
            ):
                return False
        is_own = device.is_own
        pairs = [(slots[slot], shadow) for slot, shadow in self._snapshots.items()]
        return (
            all([is_own(value) and self._has_place(shadow, value) for value, shadow in pairs])
            and all([slots[slot] is value for slot, value in self._fixed.items()])
            and all([_is_same(slots[slot], value) for slot, value in self._objects.items()])
            and all([is_equal(slots[slot], value) for slot, value in self._host.items()])
            and all([self._is_there(shadow) for shadow in self._shadows.values()])
        )

    def _is_there(self, shadow: CapturedVariable) -> bool:
        """Return True if the memory of a variable is still the same."""
        if not shadow.of.is_initialized:
            return False
        array = shadow.of.read()
        return self._device.is_own(array) and self._has_place(shadow, array)

    def _has_place(self, shadow: CapturedVariable, array: Any) -> bool:
        return bool(array.data.ptr == shadow.place and array.shape == shadow.shape)

    def launch(self, slots: Slots) -> bool:
        """Launch the graph and write the results to the slots.

        Return False if that was not possible.

        Raises: FailedPreconditionError: a variable has no value.
        """
        with self._device.active(), self._lock:
            for slot, array in self._inputs.items():
                self._device.xp.copyto(array, self._device.own(slots[slot]))
            for array, streams in self._capture.draws:
                states = np.array([stream.next_state() for stream in streams], np.uint64)
                self._device.xp.copyto(array, self._device.own(states))
            forgotten = self._forget(slots)
            if not self._try_launch() or self._has_failed_check():
                self._restore_slots(slots, forgotten)
                return False
            for slot, value in self._results.items():
                slots[slot] = value.copy() if self._device.is_own(value) else value
        return True

    def _forget(self, slots: Slots) -> dict[int, weakref.ref[Any]]:
        """Clear dead slots, because a snapshot would prevent in-place changes of a variable.

        Returns: weak references to the values.
        """
        result = {}
        for slot in self._dead.intersection((*self._inputs, *self._snapshots)):
            if self._device.is_own(slots[slot]):
                result[slot] = weakref.ref(slots[slot])
                slots[slot] = None
        return result

    def _restore_slots(self, slots: Slots, forgotten: Mapping[int, weakref.ref[Any]]) -> None:
        """Undo `_forget`; values without other owners are restored from copies."""
        for slot, reference in forgotten.items():
            value = reference()
            if value is None and slot in self._inputs:
                value = self._inputs[slot].copy()
            slots[slot] = self._snapshots[slot].of.read() if value is None else value

    def _try_launch(self) -> bool:
        """Launch the graph if all variables still have the same memory; return True if so."""
        shadows = list(self._shadows.values())
        changed = [shadow for shadow in shadows if shadow.changed]
        unchanged = [shadow for shadow in shadows if not shadow.changed]
        was_launched = False

        def launch(*arrays: Any) -> None:
            nonlocal was_launched
            # A variable that is unchanged once it is locked stays unchanged until the launch.
            references = [*arrays, *(shadow.of.read() for shadow in unchanged)]
            pairs = zip([*changed, *unchanged], references, strict=True)
            if all([self._has_place(shadow, array) for shadow, array in pairs]):
                self._graph.launch(stream=self._device.hardware.compute)
                was_launched = True

        VariableState.update_all(tuple([shadow.of for shadow in changed]), launch)
        return was_launched

    def _has_failed_check(self) -> bool:
        """Wait for the checks, if there are any; return True if one failed."""
        return any([int(self._device.to_host(flag)[0]) for flag in self._capture.checks])


def _is_same(value: Any, known_value: Any) -> bool:
    return variable_state(value) is variable_state(known_value)


def is_equal(value: Any, known_value: Any) -> bool:
    """Return True if two host values have the same type, shape and bits."""
    if not is_of_host(value) or not is_of_host(known_value):
        return value is known_value
    is_same_array = value.dtype == known_value.dtype and value.shape == known_value.shape
    return bool(is_same_array and value.tobytes() == known_value.tobytes())

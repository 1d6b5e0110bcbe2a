"""Loops compiled as one function: their selection, and the function of each.

A loop runs with its kernels until it is compiled for its shapes, and whenever the compiled code
declines; then nothing has changed, because TensorArrays and stacks are only updated after its last
iteration.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from itertools import islice
from typing import Any, Final, NamedTuple

import numpy as np

from weft_exec.devices.device import Device
from weft_exec.executor.compilers import CompileOffer
from weft_exec.executor.kernel_fallback import ComparisonRequest
from weft_exec.executor.linear import gather
from weft_exec.executor.native.function import known_shape
from weft_exec.executor.native.random_streams import Executions
from weft_exec.executor.native.region_profile import Function
from weft_exec.executor.native.result_check import describe_difference, is_different, max_magnitude
from weft_exec.executor.native.specialization_cache import Mode, SpecializationCache
from weft_exec.executor.native.tensor_list_buffers import TensorListBuffer, buffer_for
from weft_exec.executor.priority import is_update
from weft_exec.executor.step_check import raise_if_ended
from weft_exec.kernels.philox import RandomStream
from weft_exec.kernels.random import stream_of
from weft_exec.kernels.random_counters import iteration_tag, needs_counters
from weft_exec.resources.resources import VariableState, state_of
from weft_graph.ir.code_generators import CodeGenerator, Generated, Shape
from weft_graph.ir.interrupts import defer_interrupts
from weft_graph.ir.node import Node
from weft_graph.ir.traits import Role
from weft_graph.passes.flow import Flow, Frame, has_control_flow
from weft_graph.passes.functional_form import Structurer
from weft_graph.passes.whole_loops import (
    Extent,
    LoopRequest,
    LoopStorage,
    Use,
    WholeLoop,
    is_inside,
    updated_references,
)
from weft_tensor import dtypes, errors

_ROOM: Final = 128
"""Initial capacity for values pushed onto a stack, and for elements written to an array that
grows."""
_MOST_ROOM: Final = 1 << 14
_MOST_AT_ONCE: Final = 1 << 22
"""Maximum capacity of loops that cannot continue; those that need more run with kernels."""
_REFUSED: Final = 3
"""Number of consecutive runs repeated with kernels after which a loop always uses kernels."""

_log: Final = logging.getLogger(__name__)


class ChosenLoops(NamedTuple):
    """Selection of loops to compile as one function.

    Attributes:
      found: loops to compile, each with its device, outer ones first. Inner loops are compiled if
        outer loops cannot be compiled because their shapes change.
      left: reasons why other loops, inside none of these, run with kernels, by name.
    """

    found: list[tuple[WholeLoop, Device]]
    left: dict[str, str]

    @property
    def outermost(self) -> list[WholeLoop]:
        """Loops that are not inside other ones."""
        frames = [loop.loop.frame for loop, _ in self.found]
        return [
            loop
            for loop, _ in self.found
            if not any(
                frame is not loop.loop.frame and is_inside(loop.loop.frame, frame)
                for frame in frames
            )
        ]


def choose_loops(
    offer: CompileOffer, generator: CodeGenerator, requested: Collection[Node]
) -> ChosenLoops:
    """Choose the loops that can be compiled as one function."""
    result = ChosenLoops([], {})
    if not has_control_flow(offer.nodes):
        return result
    flow = Flow(offer.nodes)
    structurer = Structurer(offer.nodes, flow, is_update)  # as kernels run it
    frames: list[Frame] = []
    for frame in flow.frames[1:]:
        frames_within = [candidate for candidate in flow.frames if is_inside(candidate, frame)]
        is_in_another = any(is_inside(frame, other) for other in frames)
        problem = next((candidate.problem for candidate in frames_within if candidate.problem), "")
        if problem:
            result.left[frame.name] = problem
            continue
        loop = WholeLoop(structurer.loop(frame), flow, offer.step.fetches)
        device = _device_of(offer, loop, requested)
        why = device if isinstance(device, str) else generator.unsupported_reason(loop)
        if not isinstance(device, str) and not why:
            frames.append(frame)
            result.found.append((loop, device))
        elif not is_in_another:
            result.left[frame.name] = why
    return result


def _device_of(offer: CompileOffer, loop: WholeLoop, requested: Collection[Node]) -> Device | str:
    """Return the device of a loop whose nodes are all requested, or why kernels should run it."""
    common_device: Device | None = None
    for node in loop.nodes:
        if node.traits.routes or node.role in (Role.CONSTANT, Role.LOOP_COND):
            continue
        if node not in requested:
            return f"of {node.name!r}: compilation of it was not requested"
        device, kernel = offer.place(node)
        counts = needs_counters(node) and not node.traits.random
        if device.type != "CPU" or kernel.asynchronous or counts:
            return (
                f"of {node.name!r}: it is on {device.name}, asynchronous, or counts its executions"
            )
        if common_device is not None and device is not common_device:
            return f"of {node.name!r}: other nodes of the loop are on another device"
        common_device = device
    return common_device or "it computes nothing"


_Change = tuple[VariableState, Any, Any]
"""A variable, its value before the loop, and its value after it."""

_Asked = tuple[Sequence[Any], Sequence[TensorListBuffer], Sequence[VariableState]]
"""Values that enter a loop, the places of its handles, and the variables that it updates."""


class _Key(NamedTuple):
    """Shapes that a loop is compiled for."""

    shapes: tuple[Shape, ...]
    extents: tuple[Extent, ...]


class CompiledLoop:
    """Function that runs a loop, or lets its kernels do so.

    Args:
      generator: compiles functions of the loop.
      device: allocates the memory of results.
      mode: when functions are compiled.
      checked: True if kernels compute the same, for comparison.
      around: the loops around it that may be compiled.
      given_up: records loops that stay with their kernels, at least for some shapes; a loop runs
        with kernels while its outer loops may still be compiled.
    """

    def __init__(
        self,
        generator: CodeGenerator,
        loop: WholeLoop,
        device: Device,
        mode: Mode,
        checked: bool = False,
        enclosing: Collection[Frame] = (),
        given_up: set[Frame] | None = None,
    ) -> None:
        self._checked = checked
        self._enclosing = enclosing
        self._given_up = set() if given_up is None else given_up
        self._loop_region = loop
        self._device = device
        self._handles = {
            index
            for index, e in enumerate(loop.enters)
            if (e.outputs[0].dtype is dtypes.resource or e.outputs[0].dtype.is_ref)
            and index not in loop.reads | loop.updates
        }
        self._updates = sorted(loop.updates)
        self._variables = sorted(loop.reads | loop.updates)
        uses = {tensor_list.use for tensor_list in loop.kept}
        self._changing = [_last_updater(loop, index) for index in self._updates]
        nested = any(
            tensor_list.use is Use.PUSH and len(tensor_list.nodes) > 1 for tensor_list in loop.kept
        )
        at_end = Use.WRITE in uses or bool(loop.updates) or nested
        self._goes_on = Use.PUSH in uses and not at_end
        self._is_result_used = [self._goes_on or is_wanted for is_wanted in loop.wanted()]
        self._all_wanted = all(self._is_result_used)
        self._one_key = self._only_key()
        self._room = 0
        self._rooms: dict[LoopStorage, tuple[int, ...]] = {}
        self._refused = self._unplaced = 0
        self._is_rejected = False
        self.cache = SpecializationCache[_Key, _Key](self, generator, device, mode, checked)
        self._lookup = self.cache.lookup
        self.stop: Callable[[], None] = self.cache.stop

    def __call__(self, *values: Any) -> Any:
        """Return the last values; NotImplemented or a record if the kernels should run."""
        if self._refused > _REFUSED:
            self._reject()
            return NotImplemented
        if self._enclosing and not self._given_up.issuperset(self._enclosing):
            return NotImplemented
        if self._one_key is not None:
            return self._run_for_key(self._one_key, (values, (), ()))
        rooms = self._rooms
        result = self._called(values)
        if result is NotImplemented and self._rooms is not rooms:  # known now
            result = self._called(values)
        return result

    def _called(self, values: Sequence[Any]) -> Any:
        buffers = self._list_buffers(values) if self._loop_region.kept else []
        if buffers is None:
            self._unplaced += 1
            if self._unplaced > _REFUSED:
                self._reject()
            return NotImplemented
        states: dict[int, VariableState] = {}
        if self._variables:
            states = {input_index: state_of(values[input_index]) for input_index in self._variables}
            if not all([state.is_initialized for state in states.values()]):
                return NotImplemented
            if self._updates and len(set(map(id, states.values()))) < len(states):
                return NotImplemented
            values = tuple(
                [
                    states[input_index].read() if input_index in states else v
                    for input_index, v in enumerate(values)
                ]
            )
        shapes = tuple(
            [
                () if input_index in self._handles else v.shape
                for input_index, v in enumerate(values)
            ]
        )
        key = _Key(shapes, tuple([buffer.extent for buffer in buffers]))
        return self._run_for_key(
            key, (values, buffers, [states[input_index] for input_index in self._updates])
        )

    def _run_for_key(self, key: _Key, request: _Asked) -> Any:
        """Run the function for a key; return NotImplemented, or a record, if there is no code."""
        function = self._lookup(key, NotImplemented)
        if function is NotImplemented:
            if self.cache.mode is not Mode.ON:
                function = self.cache.compile_now(key, request)
            elif (function := self.cache.instance(key, request)) is None:
                return self.cache.profile(key, request)
        if function is None:
            self._give_up()
            return NotImplemented
        try:
            result = function(request)
        except errors.CancelledError:
            raise
        except errors.OpError:
            raise_if_ended()
            self._refused += 1
            return NotImplemented
        if result is not NotImplemented:
            self._refused = 0
        return result

    def _give_up(self) -> None:
        """Let loops inside be compiled separately."""
        self._given_up.add(self._loop_region.loop.frame)

    def _reject(self) -> None:
        """Leave the loop to its kernels from now on, for all shapes."""
        if not self._is_rejected:
            _log.info("%s runs with kernels from now on", self.name)
        self._is_rejected = True
        self._give_up()

    # ---------------------------------------------------------------------- keys

    def _only_key(self) -> _Key | None:
        """Return the only key that a loop can have if shapes are static, else None."""
        if self._loop_region.kept or self._variables:
            return None
        shapes = [
            () if index in self._handles else known_shape(enter.outputs[0])
            for index, enter in enumerate(self._loop_region.enters)
        ]
        return None if None in shapes else _Key(tuple([s for s in shapes if s is not None]), ())

    def _list_buffers(self, values: Sequence[Any]) -> list[TensorListBuffer] | None:
        """Return the places of the handles; None if only kernels can handle them."""
        tensor_lists = self._loop_region.kept
        outer_buffers = [
            None if tensor_list.use is Use.PUSH else buffer_for(tensor_list, values, (0,))
            for tensor_list in tensor_lists
        ]
        fixed = [
            buffer.extent
            for buffer in outer_buffers
            if buffer is not None and not buffer.extent.grows
        ]
        room = max(max([extent.shape[0] for extent in fixed], default=0) or _ROOM, self._room)
        buffers: list[TensorListBuffer] = []
        for tensor_list, buffer in zip(tensor_lists, outer_buffers, strict=True):
            if tensor_list.use is Use.PUSH or (buffer is not None and buffer.extent.grows):
                buffer = buffer_for(
                    tensor_list,
                    values,
                    self._rooms.get(tensor_list, (room,) * len(tensor_list.nodes)),
                )
            if buffer is None:
                return None
            buffers.append(buffer)
        return buffers

    # ---------------------------------------------------------------------- see `Binding`

    @property
    def name(self) -> str:
        """Name of the loop's frame."""
        return self._loop_region.loop.frame.name

    @property
    def nodes(self) -> Sequence[Node]:
        """Nodes of the loop."""
        return self._loop_region.nodes

    def choice(self, key: _Key, inputs: Sequence[Any]) -> _Key:
        """Return the key, which has all that a loop is compiled for."""
        return key

    def request(self, choice: _Key) -> LoopRequest:
        """Return the request for the loop and a choice."""
        return LoopRequest(self._loop_region, *choice, self._goes_on)

    # ---------------------------------------------------------------------- running

    def bind(self, generated: Generated, choice: _Key) -> Function:
        """Return a function that calls a loop's function again after emptying full stacks."""
        run = self.cache.make_stoppable(generated, tried=True)
        takes = tuple(generated.input_positions)
        take: Callable[[Any], Sequence[Any]] = gather(takes)
        results = [self._device.array_factory(shape, d.numpy) for d, shape in generated.results]
        finals = sum(self._is_result_used)
        streams = [stream_of(node, self._device.resources) for node in generated.rng_nodes]
        uses = [tensor_list.use for tensor_list in self._loop_region.kept]
        pops = uses.count(Use.POP)
        pushed = uses.index(Use.PUSH) if Use.PUSH in uses else -1

        def call_plain(request: _Asked) -> Any:
            out = [new() for new in results]
            run(*take(request[0]), *out)
            return self._last_values(out)

        def call(request: _Asked) -> Any:
            loop_streams = _LoopStreams(streams)
            result: Any = NotImplemented
            try:
                result = turn(request, loop_streams)
            finally:
                loop_streams.end(result is not NotImplemented)
            return result

        def turn(request: _Asked, loop_streams: _LoopStreams) -> Any:
            values, buffers, variables = request
            inputs = [values[input_index] for input_index in takes]
            states = [buffer.inputs() for buffer in buffers]
            parts: list[list[Any]] = []
            while True:
                out = [new() for new in results]
                arguments = (*inputs, *[array for state in states for array in state])
                run(*arguments, *loop_streams.states(), *out)
                changes = [
                    (state, values[input_index], out.pop(finals))
                    for input_index, state in zip(self._updates, variables, strict=True)
                ]
                if streams:
                    loop_streams.record_call(int(out.pop(finals)), out.pop(finals + pops))
                filled = self._split_results(buffers, out[finals:])
                parts.append(filled)
                if not self._goes_on and self._is_outgrown(buffers, filled):
                    return NotImplemented
                if not self._goes_on or not out[-1]:
                    if self._checked:
                        last = self._last_values(out)
                        return _Comparison(
                            self._loop_region.variables,
                            last,
                            buffers,
                            parts[-1],
                            changes,
                            self._changing,
                        )
                    return self._store_results(buffers, parts, out, changes)
                self._room = min(2 * len(filled[pushed][0]), _MOST_ROOM)
                inputs[:finals] = out[:finals]
                states = [
                    [state[0], new_state[0]] if state else []
                    for state, new_state in zip(states, filled, strict=True)
                ]

        plain = not (self._loop_region.kept or self._updates or streams or self._checked)
        return call_plain if plain else call

    def _split_results(self, buffers: Sequence[TensorListBuffer], out: Sequence[Any]) -> list[Any]:
        """Split the arrays that a function has filled by place."""
        counts = [buffer.use for buffer in buffers].count(Use.POP)
        pop_results, remaining = iter(out[:counts]), iter(out[counts:])
        return [
            list(islice(pop_results if buffer.use is Use.POP else remaining, buffer.outputs))
            for buffer in buffers
        ]

    def _is_outgrown(
        self, buffers: Sequence[TensorListBuffer], filled: Sequence[Sequence[Any]]
    ) -> bool:
        """Return True if the capacity of a loop was too small, and increase it for the next run."""
        rooms: dict[LoopStorage, tuple[int, ...]] = {}
        for tensor_list, buffer, arrays in zip(
            self._loop_region.kept, buffers, filled, strict=True
        ):
            required = buffer.required_capacity(arrays)
            if any(want > room for want, room in zip(required, buffer.room, strict=False)):
                capacities = map(max, required, buffer.room)
                rooms[tensor_list] = tuple([1 << (size - 1).bit_length() for size in capacities])
        if any(max(room) > _MOST_AT_ONCE for room in rooms.values()):
            self._refused = _REFUSED + 1
        elif rooms:
            self._rooms = self._rooms | rooms
        return bool(rooms)

    def _store_results(
        self,
        buffers: Sequence[TensorListBuffer],
        parts: Sequence[list[Any]],
        out: Sequence[Any],
        changes: Sequence[_Change],
    ) -> Any:
        """Update TensorArrays, stacks and variables, and return the last values.

        Args:
          parts: for each call that continued the loop, the arrays filled for each place.
          out: the last results of the function.
          changes: changes of variables.
        """
        if not all(
            buffer.may_take(arrays) for buffer, arrays in zip(buffers, parts[-1], strict=True)
        ):
            return NotImplemented
        # Without this, Ctrl-C could leave some variables and arrays changed and others not.
        with defer_interrupts() if changes else nullcontext():
            if changes and not VariableState.exchange(changes):
                return NotImplemented
            for index, buffer in enumerate(buffers):
                for arrays in parts if buffer.use is Use.PUSH else parts[-1:]:
                    buffer.keep(arrays[index])
        return self._last_values(out)

    def _last_values(self, out: Sequence[Any]) -> Sequence[Any]:
        """Return the last values of loop variables, None for unused ones."""
        if self._all_wanted:
            return out[: len(self._is_result_used)]
        values = iter(out)
        return [next(values) if is_used else None for is_used in self._is_result_used]


def _last_updater(loop: WholeLoop, index: int) -> Node:
    """Return the last node of an iteration that changes a variable."""
    return [
        node
        for node in loop.nodes
        if index in [loop.variable_at(source) for source in updated_references(node)]
    ][-1]


class _LoopStreams:
    """Random streams that a run of a loop draws from."""

    def __init__(self, streams: Sequence[RandomStream]) -> None:
        self._executions = Executions(streams)
        self._has_drawn = np.zeros(len(streams), np.bool_)
        self._num_iterations = 0

    def states(self) -> list[Any]:
        """Return the states of the next iteration as a single array, if there are any."""
        states = self._executions.states
        if not states:
            return []
        advanced = [(*s[:3], iteration_tag(s[3], self._num_iterations), *s[4:]) for s in states]
        return [np.array(advanced, np.uint64)]

    def record_call(self, num_iterations: int, drew: Any) -> None:
        """Count the iterations of a call, and record the streams that it drew from."""
        self._num_iterations += num_iterations
        self._has_drawn |= drew != 0

    def end(self, has_failed: bool) -> None:
        """Return unused executions to the stream; all of them if kernels should draw."""
        self._executions.return_unused(self._has_drawn.tolist() if has_failed else ())


class _Comparison(ComparisonRequest):
    """Results of a compiled loop, for comparison with its kernels' results."""

    def __init__(
        self,
        variables: Sequence[Node],
        last: Sequence[Any],
        buffers: Sequence[TensorListBuffer],
        filled: Sequence[Sequence[Any]],
        changes: Sequence[_Change],
        changing: Sequence[Node],
    ) -> None:
        self._changes = list(zip(changing, changes, strict=True))
        self._last = list(zip(variables, last, strict=True))
        self._list_buffers = list(zip(buffers, filled, strict=True))

    def compare(self, values: Sequence[Any]) -> None:
        """Raise an error that names the first of the loop's nodes that differs."""
        differences = [
            (node, value, want, 0.0)
            for (node, value), want in zip(self._last, values, strict=True)
            if value is not None
        ]
        for buffer, arrays in self._list_buffers:
            pairs = [pair for pair in buffer.beside(arrays) if pair[1] is not None]
            # All iterations contribute to one value, as elements of an array do.
            scale = max(
                [max_magnitude(want) for _, want in pairs if not isinstance(want, tuple)],
                default=0.0,
            )
            differences += [(buffer.node, *pair, scale) for pair in pairs]
        differences += [(node, new, state.read(), 0.0) for node, (state, _, new) in self._changes]
        for node, value, want, scale in differences:
            if not isinstance(want, tuple) and is_different(value, want, scale):
                raise errors.InternalError(
                    f"jit_check: {node.type} returns {describe_difference(value, want)}",
                    op=node.type,
                    node=node.name,
                    line=node.line or None,
                )

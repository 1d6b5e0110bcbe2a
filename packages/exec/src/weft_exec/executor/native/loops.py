"""Loops that are compiled as wholes: their choice, and the function of each.

A loop runs by its kernels until it is compiled for the shapes that it meets, and if the compiled
code refuses; then nothing has changed, because TensorArrays and stacks are only updated after its
last iteration.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from itertools import islice
from typing import Any, Final, NamedTuple

import numpy as np

from weft_exec.devices.device import Device
from weft_exec.executor.by_kernels import ToCompare
from weft_exec.executor.compilers import Offer
from weft_exec.executor.linear import gather
from weft_exec.executor.native.check import describe_difference, differs, largest
from weft_exec.executor.native.function import known_shape
from weft_exec.executor.native.specialization_cache import Mode, SpecializationCache
from weft_exec.executor.native.streams import Executions
from weft_exec.executor.native.tensor_list_buffers import Place, place_of
from weft_exec.executor.native.tiering import Function
from weft_exec.executor.priority import updates
from weft_exec.executor.step_check import raise_if_ended
from weft_exec.kernels.philox import RandomStream
from weft_exec.kernels.random import stream_of
from weft_exec.kernels.random_counters import iteration_tag, needs_counters
from weft_exec.resources.resources import VariableState, state_of
from weft_graph.ir.code_generators import CodeGenerator, Generated, Shape
from weft_graph.ir.interrupts import uninterrupted
from weft_graph.ir.node import Node
from weft_graph.ir.traits import Role
from weft_graph.passes.flow import Flow, Frame, has_control_flow
from weft_graph.passes.structure import Structurer
from weft_graph.passes.whole_loops import (
    Extent,
    Kept,
    LoopRequest,
    Use,
    WholeLoop,
    changed_by,
    inside,
)
from weft_tensor import dtypes, errors

_ROOM: Final = 128
"""Initial capacity for values pushed onto a stack, and for elements written to an array that
grows."""
_MOST_ROOM: Final = 1 << 14
_MOST_AT_ONCE: Final = 1 << 22
"""Maximum capacity of loops that cannot go on; those that need more run by kernels."""
_REFUSED: Final = 3
"""Number of runs in a row that are repeated by kernels, after which a loop stays with these."""

_log: Final = logging.getLogger(__name__)


class ChosenLoops(NamedTuple):
    """Choice of loops to compile as wholes.

    Attributes:
      found: loops to compile, each with its device, outer ones first. Loops inside others are
        compiled if the outer ones turn out not to be, because their shapes change.
      left: reasons why other loops, inside none of these, run by kernels, by name.
    """

    found: list[tuple[WholeLoop, Device]]
    left: dict[str, str]

    @property
    def outermost(self) -> list[WholeLoop]:
        """Loops that are not inside other ones."""
        frames = [whole.loop.frame for whole, _ in self.found]
        return [
            whole
            for whole, _ in self.found
            if not any(
                each is not whole.loop.frame and inside(whole.loop.frame, each) for each in frames
            )
        ]


def choose_loops(offer: Offer, generator: CodeGenerator, asked: Collection[Node]) -> ChosenLoops:
    """Choose the loops that can be compiled as wholes."""
    chosen = ChosenLoops([], {})
    if not has_control_flow(offer.nodes):
        return chosen
    flow = Flow(offer.nodes)
    structurer = Structurer(offer.nodes, flow, updates)  # as kernels run it
    frames: list[Frame] = []
    for frame in flow.frames[1:]:
        within = [each for each in flow.frames if inside(each, frame)]
        is_in_another = any(inside(frame, other) for other in frames)
        problem = next((each.problem for each in within if each.problem), "")
        if problem:
            chosen.left[frame.name] = problem
            continue
        whole = WholeLoop(structurer.loop(frame), flow, offer.step.fetches)
        device = _device_of(offer, whole, asked)
        why = device if isinstance(device, str) else generator.unsupported_reason(whole)
        if not isinstance(device, str) and not why:
            frames.append(frame)
            chosen.found.append((whole, device))
        elif not is_in_another:
            chosen.left[frame.name] = why
    return chosen


def _device_of(offer: Offer, whole: WholeLoop, asked: Collection[Node]) -> Device | str:
    """Return the device of a loop whose nodes are all requested, or why kernels should run it."""
    found: Device | None = None
    for node in whole.nodes:
        if node.traits.routes or node.role in (Role.CONSTANT, Role.LOOP_COND):
            continue
        if node not in asked:
            return f"of {node.name!r}: no scope or option asks for it"
        device, kernel = offer.place(node)
        counts = needs_counters(node) and not node.traits.random
        if device.type != "CPU" or kernel.asynchronous or counts:
            return f"of {node.name!r}: it is on {device.name}, or waits"
        if found is not None and device is not found:
            return f"of {node.name!r}: others are on another device"
        found = device
    return found or "it computes nothing"


_Change = tuple[VariableState, Any, Any]
"""A variable, its value before the loop, and its value after it."""

_Asked = tuple[Sequence[Any], Sequence[Place], Sequence[VariableState]]
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
      checked: whether kernels compute the same, for comparison.
      around: the loops around it that may be compiled.
      given_up: records loops that stay with their kernels, at least for some shapes; a loop runs by
        kernels itself while those around it may still be compiled.
    """

    def __init__(
        self,
        generator: CodeGenerator,
        whole: WholeLoop,
        device: Device,
        mode: Mode,
        checked: bool = False,
        around: Collection[Frame] = (),
        given_up: set[Frame] | None = None,
    ) -> None:
        self._checked = checked
        self._around = around
        self._given_up = set() if given_up is None else given_up
        self._whole = whole
        self._device = device
        self._handles = {
            at
            for at, e in enumerate(whole.enters)
            if (e.outputs[0].dtype is dtypes.resource or e.outputs[0].dtype.is_ref)
            and at not in whole.reads | whole.updates
        }
        self._updates = sorted(whole.updates)
        self._variables = sorted(whole.reads | whole.updates)
        uses = {kept.use for kept in whole.kept}
        self._changing = [_last_to_change(whole, at) for at in self._updates]
        nested = any(each.use is Use.PUSH and len(each.nodes) > 1 for each in whole.kept)
        at_end = Use.WRITE in uses or bool(whole.updates) or nested
        self._goes_on = Use.PUSH in uses and not at_end
        self._wanted = [self._goes_on or wanted for wanted in whole.wanted()]
        self._all_wanted = all(self._wanted)
        self._one_key = self._only_key()
        self._room = 0
        self._rooms: dict[Kept, tuple[int, ...]] = {}
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
        if self._around and not self._given_up.issuperset(self._around):
            return NotImplemented
        if self._one_key is not None:
            return self._made_for(self._one_key, (values, (), ()))
        rooms = self._rooms
        done = self._called(values)
        if done is NotImplemented and self._rooms is not rooms:  # known now
            done = self._called(values)
        return done

    def _called(self, values: Sequence[Any]) -> Any:
        places = self._places(values) if self._whole.kept else []
        if places is None:
            self._unplaced += 1
            if self._unplaced > _REFUSED:
                self._reject()
            return NotImplemented
        states: dict[int, VariableState] = {}
        if self._variables:
            states = {at: state_of(values[at]) for at in self._variables}
            if not all([state.is_initialized for state in states.values()]):
                return NotImplemented
            if self._updates and len(set(map(id, states.values()))) < len(states):
                return NotImplemented
            values = tuple(
                [states[at].read() if at in states else v for at, v in enumerate(values)]
            )
        shapes = tuple([() if at in self._handles else v.shape for at, v in enumerate(values)])
        key = _Key(shapes, tuple([place.extent for place in places]))
        return self._made_for(key, (values, places, [states[at] for at in self._updates]))

    def _made_for(self, key: _Key, asked: _Asked) -> Any:
        """Run the function for a key; return NotImplemented or a record if there is none."""
        function = self._lookup(key, NotImplemented)
        if function is NotImplemented:
            if self.cache.mode is not Mode.ON:
                function = self.cache.compile_now(key, asked)
            elif (function := self.cache.instance(key, asked)) is None:
                return self.cache.profile(key, asked)
        if function is None:
            self._give_up()
            return NotImplemented
        try:
            found = function(asked)
        except errors.CancelledError:
            raise
        except errors.OpError:
            raise_if_ended()
            self._refused += 1
            return NotImplemented
        if found is not NotImplemented:
            self._refused = 0
        return found

    def _give_up(self) -> None:
        """Let loops inside be compiled separately."""
        self._given_up.add(self._whole.loop.frame)

    def _reject(self) -> None:
        """Leave the loop to its kernels from now on, for all shapes."""
        if not self._is_rejected:
            _log.info("%s runs by kernels from now on", self.name)
        self._is_rejected = True
        self._give_up()

    # ---------------------------------------------------------------------- keys

    def _only_key(self) -> _Key | None:
        """Return the only key that a loop can have if shapes are static, else None."""
        if self._whole.kept or self._variables:
            return None
        shapes = [
            () if at in self._handles else known_shape(enter.outputs[0])
            for at, enter in enumerate(self._whole.enters)
        ]
        return None if None in shapes else _Key(tuple([s for s in shapes if s is not None]), ())

    def _places(self, values: Sequence[Any]) -> list[Place] | None:
        """Return the places of the handles; None if only kernels can handle them."""
        kept = self._whole.kept
        found = [None if each.use is Use.PUSH else place_of(each, values, (0,)) for each in kept]
        fixed = [place.extent for place in found if place is not None and not place.extent.grows]
        room = max(max([extent.shape[0] for extent in fixed], default=0) or _ROOM, self._room)
        places: list[Place] = []
        for each, place in zip(kept, found, strict=True):
            if each.use is Use.PUSH or (place is not None and place.extent.grows):
                place = place_of(each, values, self._rooms.get(each, (room,) * len(each.nodes)))
            if place is None:
                return None
            places.append(place)
        return places

    # ---------------------------------------------------------------------- see `Binding`

    @property
    def name(self) -> str:
        """Name of the loop's frame."""
        return self._whole.loop.frame.name

    @property
    def nodes(self) -> Sequence[Node]:
        """Nodes of the loop."""
        return self._whole.nodes

    def choice(self, key: _Key, inputs: Sequence[Any]) -> _Key:
        """Return the key, which has all that a loop is compiled for."""
        return key

    def request(self, choice: _Key) -> LoopRequest:
        """Return the request for the loop and a choice."""
        return LoopRequest(self._whole, *choice, self._goes_on)

    # ---------------------------------------------------------------------- running

    def bind(self, generated: Generated, choice: _Key) -> Function:
        """Return a function that calls that of a loop as often as stacks have to be emptied."""
        run = self.cache.stoppable(generated, tried=True)
        takes = tuple(generated.takes)
        take: Callable[[Any], Sequence[Any]] = gather(takes)
        results = [self._device.maker(shape, d.numpy) for d, shape in generated.results]
        finals = sum(self._wanted)
        streams = [stream_of(node, self._device.resources) for node in generated.draws]
        uses = [kept.use for kept in self._whole.kept]
        pops = uses.count(Use.POP)
        pushed = uses.index(Use.PUSH) if Use.PUSH in uses else -1

        def call_plain(asked: _Asked) -> Any:
            out = [new() for new in results]
            run(*take(asked[0]), *out)
            return self._last_values(out)

        def call(asked: _Asked) -> Any:
            drawn = _Drawn(streams)
            done: Any = NotImplemented
            try:
                done = turn(asked, drawn)
            finally:
                drawn.end(done is not NotImplemented)
            return done

        def turn(asked: _Asked, drawn: _Drawn) -> Any:
            values, places, variables = asked
            inputs = [values[at] for at in takes]
            states = [place.inputs() for place in places]
            parts: list[list[Any]] = []
            while True:
                out = [new() for new in results]
                given = (*inputs, *[array for state in states for array in state])
                run(*given, *drawn.states(), *out)
                changes = [
                    (state, values[at], out.pop(finals))
                    for at, state in zip(self._updates, variables, strict=True)
                ]
                if streams:
                    drawn.after(int(out.pop(finals)), out.pop(finals + pops))
                made = self._apart(places, out[finals:])
                parts.append(made)
                if not self._goes_on and self._is_outgrown(places, made):
                    return NotImplemented
                if not self._goes_on or not out[-1]:
                    if self._checked:
                        last = self._last_values(out)
                        return _Comparison(
                            self._whole.variables, last, places, parts[-1], changes, self._changing
                        )
                    return self._kept(places, parts, out, changes)
                self._room = min(2 * len(made[pushed][0]), _MOST_ROOM)
                inputs[:finals] = out[:finals]
                states = [
                    [state[0], new_state[0]] if state else []
                    for state, new_state in zip(states, made, strict=True)
                ]

        plain = not (self._whole.kept or self._updates or streams or self._checked)
        return call_plain if plain else call

    def _apart(self, places: Sequence[Place], out: Sequence[Any]) -> list[Any]:
        """Split the arrays that a function has filled by place."""
        counts = [place.use for place in places].count(Use.POP)
        left, rest = iter(out[:counts]), iter(out[counts:])
        return [
            list(islice(left if place.use is Use.POP else rest, place.outputs)) for place in places
        ]

    def _is_outgrown(self, places: Sequence[Place], made: Sequence[Sequence[Any]]) -> bool:
        """Return True if the capacity of a loop was too small, and increase it for the next run."""
        rooms: dict[Kept, tuple[int, ...]] = {}
        for kept, place, each in zip(self._whole.kept, places, made, strict=True):
            wanted = place.wanted(each)
            if any(want > room for want, room in zip(wanted, place.room, strict=False)):
                most = map(max, wanted, place.room)
                rooms[kept] = tuple([1 << (size - 1).bit_length() for size in most])
        if any(max(room) > _MOST_AT_ONCE for room in rooms.values()):
            self._refused = _REFUSED + 1
        elif rooms:
            self._rooms = self._rooms | rooms
        return bool(rooms)

    def _kept(
        self,
        places: Sequence[Place],
        parts: Sequence[list[Any]],
        out: Sequence[Any],
        changes: Sequence[_Change],
    ) -> Any:
        """Update TensorArrays, stacks and variables, and return the last values.

        Args:
          parts: for each time that the loop went on, the arrays filled for each place.
          out: the last results of the function.
          changes: changes of variables.
        """
        if not all(place.may_take(made) for place, made in zip(places, parts[-1], strict=True)):
            return NotImplemented
        # Without this, Ctrl-C could leave some variables and arrays changed and others not.
        with uninterrupted() if changes else nullcontext():
            if changes and not VariableState.exchange(changes):
                return NotImplemented
            for at, place in enumerate(places):
                for made in parts if place.use is Use.PUSH else parts[-1:]:
                    place.keep(made[at])
        return self._last_values(out)

    def _last_values(self, out: Sequence[Any]) -> Sequence[Any]:
        """Return the last values of loop variables, None for unused ones."""
        if self._all_wanted:
            return out[: len(self._wanted)]
        found = iter(out)
        return [next(found) if wanted else None for wanted in self._wanted]


def _last_to_change(whole: WholeLoop, at: int) -> Node:
    """Return the last node of an iteration that changes a variable."""
    return [
        node
        for node in whole.nodes
        if at in [whole.variable_at(source) for source in changed_by(node)]
    ][-1]


class _Drawn:
    """Random streams that a run of a loop draws from."""

    def __init__(self, streams: Sequence[RandomStream]) -> None:
        self._executions = Executions(streams)
        self._drew = np.zeros(len(streams), np.bool_)
        self._turns = 0

    def states(self) -> list[Any]:
        """Return the states of the next iteration as a single array, if there are any."""
        states = self._executions.states
        if not states:
            return []
        turned = [(*s[:3], iteration_tag(s[3], self._turns), *s[4:]) for s in states]
        return [np.array(turned, np.uint64)]

    def after(self, turns: int, drew: Any) -> None:
        """Count the iterations of a call, and record the streams that it drew from."""
        self._turns += turns
        self._drew |= drew != 0

    def end(self, done: bool) -> None:
        """Give back executions that were not drawn from; all of them if kernels should draw."""
        self._executions.give_back(self._drew.tolist() if done else ())


class _Comparison(ToCompare):
    """Results of a compiled loop, to be compared with those of its kernels."""

    def __init__(
        self,
        variables: Sequence[Node],
        last: Sequence[Any],
        places: Sequence[Place],
        made: Sequence[Sequence[Any]],
        changes: Sequence[_Change],
        changing: Sequence[Node],
    ) -> None:
        self._changes = list(zip(changing, changes, strict=True))
        self._last = list(zip(variables, last, strict=True))
        self._places = list(zip(places, made, strict=True))

    def compare(self, values: Sequence[Any]) -> None:
        """Raise an error that names the first of the loop's nodes that differs."""
        seen = [
            (node, value, want, 0.0)
            for (node, value), want in zip(self._last, values, strict=True)
            if value is not None
        ]
        for place, made in self._places:
            pairs = [pair for pair in place.beside(made) if pair[1] is not None]
            # All iterations contribute to one value, as elements of an array do.
            scale = max(
                [largest(want) for _, want in pairs if not isinstance(want, tuple)], default=0.0
            )
            seen += [(place.node, *pair, scale) for pair in pairs]
        seen += [(node, new, state.read(), 0.0) for node, (state, _, new) in self._changes]
        for node, value, want, scale in seen:
            if not isinstance(want, tuple) and differs(value, want, scale):
                raise errors.InternalError(
                    f"jit_check: {node.type} returns {describe_difference(value, want)}",
                    op=node.type,
                    node=node.name,
                    line=node.line or None,
                )

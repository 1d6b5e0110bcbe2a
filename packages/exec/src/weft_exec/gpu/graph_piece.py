"""A run of instructions as CUDA graphs, one for each choice of what they are captured for.

A graph works at fixed places.  What comes into it is copied there before each launch, and what
others take of it is copied out; constants are where they were.  It changes variables where they
are, under their locks, and only while they are where they were and nobody holds a snapshot.  Values
of the host, and shapes, are part of what it is captured for.  Where something differs, instructions
run one by one, as they do where a check of the graph has failed.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from weft_exec.executor.kernel_errors import located, raise_located
from weft_exec.executor.linear import Instruction, Segment, Slots
from weft_exec.executor.region import RegionCall
from weft_exec.gpu.capture import Capture, NotCaptured
from weft_exec.gpu.products import prepare
from weft_exec.gpu.residency import is_of_host
from weft_exec.gpu.shadows import Shadow, leading_to
from weft_exec.gpu.step_graphs import Kind, Seen, state_in
from weft_exec.resources.resources import ResourceHandle, VariableState
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.gpu.device import GpuDevice

GRAPHS: Final = 4
"""Graphs that a run keeps."""
TRIES: Final = 64
"""Calls with something that was not met before, until no more graphs are captured."""
_COST: Final = 4
"""Such calls that a capture counts as, where variables keep moving."""

_log: Final = logging.getLogger(__name__)


class GraphPiece:
    """Instructions that the host has no part in, and before them those of the host among them.

    Args:
      inner: what they are of.
      run: what was noted of them.
      refuse: is told the position of an instruction that cannot be in a graph, and why.
    """

    def __init__(
        self,
        device: GpuDevice,
        inner: Segment,
        run: Sequence[Seen],
        refuse: Callable[[int, str], None],
    ) -> None:
        self._device = device
        self._refuse = refuse
        hosts = [each.at for each in run if each.kind is Kind.HOST]
        self._ats = [each.at for each in run if each.kind is Kind.DEVICE]
        lines = list(inner.instructions)
        # What a later one of the GPU's takes, too, is forgotten at the end.
        self._before = _segment(inner, [(*lines[at][:3], ()) for at in hosts], hosts)
        self._line = _segment(inner, [lines[at] for at in self._ats], self._ats)
        self._dead = sorted({slot for each in run for slot in lines[each.at][3]})
        made: set[int] = set()
        taken: dict[int, Any] = {}
        for each in run:
            if each.kind is Kind.DEVICE:
                taken |= {s: v for s, v in each.reads.items() if s not in made and s not in taken}
                made |= each.writes
        self._multiplies = any(each.multiplies for each in run)
        self._taken = sorted(taken)
        self._known = _known_by_value(lines, run)
        self._varying: set[int] = set()
        self._results = sorted(made.difference(self._dead))
        self._graphs: list[_Graph] = []
        self._last: tuple[Any, ...] = ()
        self._arrays: dict[int, weakref.ref[Any]] = {}
        self._host: dict[int, Any] = {}
        self._tries = 0
        self._lock = threading.Lock()

    def cancel(self) -> None:
        """Let it end at the next instruction, and not begin again."""
        self._before.cancel()
        self._line.cancel()

    def run(self, slots: Slots) -> None:
        """Run all.

        Raises: OpError: as of `Segment.run`.
        """
        self._before.run(slots)
        if not self._launched(slots):
            self._line.run(slots)
        for slot in self._dead:
            slots[slot] = None

    def _launched(self, slots: Slots) -> bool:
        """Whether a graph has done it."""
        if not self._line.instructions:
            return False  # closed: who runs them says so
        graph = next((each for each in list(self._graphs) if each.fits(slots)), None)
        if graph is None:
            graph = self._new(slots)
        if graph is None:
            return False
        try:
            done = graph.launch(slots)
            self._tries += 0 if done else 2 * _COST
            return done
        except errors.FailedPreconditionError:
            return False  # a variable lost its value: who runs them says which
        except Exception as error:  # because CUDA may raise anything
            node, device = self._line.nodes[-1], self._line.devices[-1]
            raise_located(located(error, node, device, ()))

    def _new(self, slots: Slots) -> _Graph | None:
        """A graph for what comes a second time."""
        with self._lock:
            if self._tries > TRIES:
                return None
            self._note_varying(slots)
            found = tuple(map(partial(_description, self._device), self._values(slots)))
            fixed = [s for s in self._taken if self._same(s, slots[s])]
            arrays = {s: slots[s] for s in self._taken if self._device.is_own(slots[s])}
            self._arrays = {slot: weakref.ref(array) for slot, array in arrays.items()}
            again = found == self._last
            self._last = found
            self._tries += _COST if again else 1
            if self._tries > TRIES:
                what = f"{len(self._ats)} instructions before {self._line.nodes[-1].name}"
                _log.info("%s run one by one: what they take keeps changing", what)
            if not again or self._tries > TRIES:
                return None
            try:
                comes = _Comes(self._taken, fixed, self._varying, self._dead, self._multiplies)
                graph = _Graph(self._device, self._line, comes, self._results, slots)
            except NotCaptured as why:
                self._last = ()
                at, words = self._ats[why.at or 0], str(why)
            else:
                self._graphs = [*self._graphs[-GRAPHS + 1 :], graph]
                return graph
        self._refuse(at, words)
        return None

    def _values(self, slots: Slots) -> list[Any]:
        bound = [getattr(function, "__self__", None) for function, *_ in self._line.instructions]
        taken = [
            _Shaped(slots[slot].shape, slots[slot].dtype) if slot in self._varying else slots[slot]
            for slot in self._taken
        ]
        return [*taken, *filter(state_in, bound)]

    def _note_varying(self, slots: Slots) -> None:
        """Find the values of the host that differ from call to call, and that regions bring in.

        They are copied in before each launch. Others are part of what a graph is captured for.
        """
        before, self._host = self._host, {s: slots[s] for s in self._taken if is_of_host(slots[s])}
        for slot, value in self._host.items():
            known = before.get(slot)
            if known is None or slot in self._known or not _is_bringable(value):
                continue
            if not _is_equal(value, known):
                self._varying.add(slot)
        self._varying.intersection_update(self._host)

    def _same(self, slot: int, value: Any) -> bool:
        """Whether an array is the one of the call before."""
        before = self._arrays.get(slot)
        return before is not None and before() is value


class _Comes(NamedTuple):
    """What a graph is told of what comes into it: slots, for the most part.

    Attributes:
      taken: all.
      fixed: of arrays that were the same in the call before.
      varying: of values of the host that differ from call to call.
      dead: those that nobody needs afterwards, and others.
      multiplies: whether there are products of matrices.
    """

    taken: Sequence[int]
    fixed: Collection[int]
    varying: Collection[int]
    dead: Collection[int]
    multiplies: bool


class _Shaped(NamedTuple):
    """A value of which only the shape and the type matter."""

    shape: tuple[int, ...]
    dtype: Any


def _is_bringable(value: Any) -> bool:
    return not value.dtype.hasobject


def _known_by_value(lines: Sequence[Instruction], run: Sequence[Seen]) -> set[int]:
    """The slots of which instructions of a GPU look at values that are on the host."""
    found: set[int] = set()
    for each in run:
        if each.kind is Kind.DEVICE:
            function = lines[each.at][0]
            found |= function.deciding if isinstance(function, RegionCall) else each.reads.keys()
    return found


def _segment(inner: Segment, instructions: Iterable[Any], ats: Sequence[int]) -> Segment:
    nodes, devices = inner.nodes, inner.devices
    return Segment(list(instructions), [nodes[at] for at in ats], [devices[at] for at in ats])


def _description(device: GpuDevice, value: Any) -> Any:
    """What of a value a graph is captured for."""
    state = state_in(value)
    if state is not None:
        array: Any = state.read() if state.is_initialized else None
        return id(state), array.shape if device.is_own(array) else None
    if device.is_own(value) or isinstance(value, _Shaped):
        return value.shape, value.dtype
    if is_of_host(value):
        return value.shape, value.dtype, value.tobytes()
    return id(value)


class _Graph:
    """Instructions, captured for what is in the slots now.

    Raises: NotCaptured: they cannot be; it says at which one that was.
    """

    def __init__(
        self,
        device: GpuDevice,
        line: Segment,
        comes: _Comes,
        results: Sequence[int],
        slots: Slots,
    ) -> None:
        self._device = device
        self._lock = threading.Lock()
        self._capture = capture = Capture(device.hardware)
        self._shadows: dict[int, Shadow] = {}
        self._host: dict[int, Any] = {}
        self._objects: dict[int, Any] = {}
        self._fixed: dict[int, Any] = {}
        self._inputs: dict[int, Any] = {}
        self._snapshots: dict[int, Shadow] = {}
        self._dead = set(comes.dead)
        with capture.under_way():
            mine = self._places(line, slots, comes)
            self._results = self._captured(line, mine, results, comes.multiplies)

    # ------------------------------------------------------------------ capturing

    def _places(self, line: Segment, slots: Slots, comes: _Comes) -> Slots:
        """The slots that instructions are captured with."""
        mine = list(slots)
        bound = [getattr(function, "__self__", None) for function, *_ in line.instructions]
        for state in filter(None, map(state_in, [*bound, *(slots[s] for s in comes.taken)])):
            self._shadow(state)
        for slot in comes.taken:
            mine[slot] = self._place(slot, slots[slot], comes)
        return mine

    def _place(self, slot: int, value: Any, comes: _Comes) -> Any:
        """What stands for a value while the graph is captured."""
        device, state = self._device, state_in(value)
        if state is not None:
            self._objects[slot] = value
            shadow = self._shadow(state)
            return shadow if state is value else leading_to(value, shadow)
        if not device.is_own(value) and slot not in comes.varying:
            self._host[slot] = value
            return value
        snapshot_of = self._holding(value) if device.is_own(value) else None
        if snapshot_of is not None:  # read before, and still the value
            self._snapshots[slot] = snapshot_of
            return snapshot_of.read()
        if slot in comes.fixed:
            self._fixed[slot] = value
            return value
        self._inputs[slot] = made = device.xp.empty(value.shape, value.dtype)
        return made

    def _holding(self, array: Any) -> Shadow | None:
        """The variable whose value an array is."""
        found = [s for s in self._shadows.values() if self._has_place(s, array)]
        return found[0] if found and array.size else None

    def _shadow(self, state: VariableState) -> Shadow:
        found = self._shadows.get(id(state))
        if found is None:
            array: Any = state.read() if state.is_initialized else None
            if not self._device.is_own(array) or not array.flags.c_contiguous:
                raise NotCaptured(f"variable {state.name} has no value on the GPU")
            found = self._shadows[id(state)] = Shadow(state, array, self._device.new_array)
        return found

    def _captured(
        self, line: Segment, mine: Slots, wanted: Sequence[int], multiplies: bool
    ) -> Mapping[int, Any]:
        """Capture; returns where the results will be."""
        capture, stream = self._capture, self._capture.stream
        if multiplies:
            with suppress(NotCaptured):  # then the product says so, which is to blame
                prepare(capture, self._device)
        # Other threads go on meanwhile, which a stricter mode than the default would not let them.
        stream.begin_capture()
        results: Mapping[int, Any] = {}
        problem: Exception | None = None
        try:
            with stream:
                self._run(line, mine)
                results = self._given(mine, wanted)
                for shadow in self._shadows.values():
                    shadow.put_back()
        except Exception as error:  # because CUDA and CuPy may raise anything
            problem = error
        try:
            self._graph = stream.end_capture()
        except Exception as error:  # because it is invalid after some failures
            problem = problem or error
        for function in capture.at_end:
            function()
        if problem is not None:
            at = problem.at if isinstance(problem, NotCaptured) else None
            words = str(problem) if isinstance(problem, NotCaptured) else repr(problem)
            raise NotCaptured(words, capture.position if at is None else at) from problem
        return results

    def _run(self, line: Segment, mine: Slots) -> None:
        for at, (function, take, slot, dead) in enumerate(line.instructions):
            self._capture.position = at
            if isinstance(function, RegionCall):
                if not function.by_function(mine):
                    raise NotCaptured("it runs by kernels")
            else:
                state = getattr(function, "__self__", None)
                if isinstance(state, VariableState):
                    function = self._shadow(state).read
                mine[slot] = function(*take(mine))
            for each in dead:
                mine[each] = None

    def _given(self, mine: Slots, wanted: Sequence[int]) -> dict[int, Any]:
        """The results: arrays of the graph, or values that are the same in each launch."""
        device, found = self._device, {}
        changed = [shadow for shadow in self._shadows.values() if shadow.changed]
        for slot in wanted:
            value = mine[slot]
            if device.is_own(value):
                if any(shadow.holds(value) for shadow in changed):
                    value = value.copy()  # before what comes after it gets there
            elif isinstance(value, Shadow):
                value = value.of
            elif isinstance(value, ResourceHandle) and isinstance(value.resource, Shadow):
                value = leading_to(value, value.resource.of)
            elif value is not None:
                raise NotCaptured("it gives a value of the host")
            found[slot] = value
        return found

    # ------------------------------------------------------------------ launching

    def fits(self, slots: Slots) -> bool:
        """Whether what is in the slots is what it was captured for."""
        device = self._device
        for slot, array in self._inputs.items():
            value = slots[slot]
            if (
                not (device.is_own(value) or is_of_host(value))
                or value.shape != array.shape
                or value.dtype != array.dtype
            ):
                return False
        own = device.is_own
        pairs = [(slots[slot], shadow) for slot, shadow in self._snapshots.items()]
        return (
            all([own(value) and self._has_place(shadow, value) for value, shadow in pairs])
            and all([slots[slot] is value for slot, value in self._fixed.items()])
            and all([_is_same(slots[slot], value) for slot, value in self._objects.items()])
            and all([_is_equal(slots[slot], value) for slot, value in self._host.items()])
            and all([self._is_there(shadow) for shadow in self._shadows.values()])
        )

    def _is_there(self, shadow: Shadow) -> bool:
        """Whether a variable is where it was."""
        if not shadow.of.is_initialized:
            return False
        array = shadow.of.read()
        return self._device.is_own(array) and self._has_place(shadow, array)

    def _has_place(self, shadow: Shadow, array: Any) -> bool:
        return bool(array.data.ptr == shadow.place and array.shape == shadow.shape)

    def launch(self, slots: Slots) -> bool:
        """Launch it and put the results into the slots; returns whether that was done.

        Raises: FailedPreconditionError: a variable has no value.
        """
        with self._device.active(), self._lock:
            for slot, array in self._inputs.items():
                self._device.xp.copyto(array, self._device.own(slots[slot]))
            for array, streams in self._capture.draws:
                states = np.array([stream.next_state() for stream in streams], np.uint64)
                self._device.xp.copyto(array, self._device.own(states))
            forgotten = self._forget(slots)
            if not self._enqueued() or self._failed():
                self._remember(slots, forgotten)
                return False
            for slot, value in self._results.items():
                slots[slot] = value.copy() if self._device.is_own(value) else value
        return True

    def _forget(self, slots: Slots) -> dict[int, weakref.ref[Any]]:
        """Forget what nobody needs afterwards: a snapshot would keep a variable from being changed.

        Returns: what it was, if anybody else holds it.
        """
        found = {}
        for slot in self._dead.intersection((*self._inputs, *self._snapshots)):
            if self._device.is_own(slots[slot]):
                found[slot] = weakref.ref(slots[slot])
                slots[slot] = None
        return found

    def _remember(self, slots: Slots, forgotten: Mapping[int, weakref.ref[Any]]) -> None:
        """Undo `_forget`, from copies where nobody has held a value."""
        for slot, held in forgotten.items():
            value = held()
            if value is None and slot in self._inputs:
                value = self._inputs[slot].copy()
            slots[slot] = self._snapshots[slot].of.read() if value is None else value

    def _enqueued(self) -> bool:
        """Launch, if all variables are where they were."""
        shadows = list(self._shadows.values())
        changed = [shadow for shadow in shadows if shadow.changed]
        others = [shadow for shadow in shadows if not shadow.changed]
        done = False

        def launch(*arrays: Any) -> None:
            nonlocal done
            # Who has not changed when it is held cannot change before it was enqueued.
            held = [*arrays, *(shadow.of.read() for shadow in others)]
            pairs = zip([*changed, *others], held, strict=True)
            if all([self._has_place(shadow, array) for shadow, array in pairs]):
                self._graph.launch(stream=self._device.hardware.compute)
                done = True

        VariableState.update_all(tuple([shadow.of for shadow in changed]), launch)
        return done

    def _failed(self) -> bool:
        """Wait for what is checked, if something is; returns whether a check failed."""
        return any([int(self._device.to_host(flag)[0]) for flag in self._capture.checks])


def _is_same(value: Any, known: Any) -> bool:
    return state_in(value) is state_in(known)


def _is_equal(value: Any, known: Any) -> bool:
    """Whether a value of the host has the type, shape and bits of another."""
    if not is_of_host(value) or not is_of_host(known):
        return value is known
    same = value.dtype == known.dtype and value.shape == known.shape
    return bool(same and value.tobytes() == known.tobytes())

"""Function of a region: it has compiled code for each choice of shapes that it meets.

If members change variables, the code gets their arrays from `VariableState.update_all`, under their
locks, and changes them in place unless a snapshot is held. Other reads of variables are done when
the region begins.
"""

from __future__ import annotations

import enum
import logging
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple

import numpy as np

from weft_exec.devices.device import Device
from weft_exec.executor.linear import gather
from weft_exec.executor.native import interrupts
from weft_exec.executor.native.check import Checked, results_of
from weft_exec.executor.native.choice import deciding_inputs
from weft_exec.executor.native.streams import Executions
from weft_exec.executor.native.tiering import Function, RegionProfile, compilation
from weft_exec.executor.region import Region
from weft_exec.kernels.random import stream_of
from weft_exec.resources.resources import ResourceHandle, VariableState, state_of
from weft_graph.ir.code_generators import (
    CodeGenerator,
    Generated,
    NotGenerated,
    ProfileStore,
    Shape,
    Specialisation,
)
from weft_graph.ir.node import Node, Output
from weft_graph.ir.traits import Role
from weft_tensor import dtypes, errors

MOST: Final = 16
"""Maximum number of choices of shapes and values with compiled code at a time."""

MOST_COUNTED: Final = 256
"""Maximum number of choices whose runs by kernels are counted at a time."""

_SHARED: Final = 0.1
"""Approximate fraction of the compile time that is left if code of another size is shared."""

_log: Final = logging.getLogger(__name__)


class Mode(enum.Enum):
    """Time at which regions are compiled.

    ON: in the background, for shapes whose kernels have taken as long as compiling will; they run
      until it is done.
    FIRST: when shapes are first met, so that results do not depend on timing.
    NOW: as FIRST, and errors of the compiler are raised.
    """

    ON = "on"
    FIRST = "first"
    NOW = "now"


Key = tuple[tuple[Shape, ...], tuple[bytes, ...]]
"""Shapes of the inputs whose shapes are not static, and values of those that decide what is
compiled."""

Generate = Callable[[Specialisation], Generated | None]
"""`generate` or `find` of a `CodeGenerator`."""

_ONE_KEY: Final[Key] = ((), ())


class Choice(NamedTuple):
    """Choice of shapes and values that a function is compiled for.

    Attributes:
      shapes: the shapes of all inputs.
      values: the values of inputs that decide what is compiled.
    """

    shapes: tuple[Shape, ...]
    values: Mapping[int, Any]


class Specialised:
    """Function that computes the members of a region, or lets their kernels do so.

    Args:
      generator: compiles functions of the members.
      device: allocates the memory of results.
      mode: when functions are compiled.
      checked: whether kernels compute the same, for comparison.
    """

    def __init__(
        self,
        generator: CodeGenerator,
        region: Region,
        device: Device,
        mode: Mode,
        checked: bool = False,
    ) -> None:
        self._generator = generator
        self._region = region
        self._device = device
        self._host = device.to_host
        self._mode = mode
        self._deciding = deciding(generator, region)
        self._varying = tuple([at for at, source in enumerate(region.inputs) if _varies(source)])
        kinds = [region.inputs[at].dtype for at in self._varying]
        variables = any(kind.is_ref or kind is dtypes.resource for kind in kinds)
        self._shape: Callable[[Any], Shape] = _shape_of if variables else attrgetter("shape")
        self._take_varying: Callable[[Any], Sequence[Any]] = gather(self._varying)
        self._updates: Sequence[int] = region.node.attrs["updates"]
        self._reads = [
            at
            for at, source in enumerate(region.inputs)
            if source.dtype is dtypes.resource and at not in self._updates
        ]
        self._checked = Checked(region, device) if checked else None
        self._made: dict[Key, Function | None] = {}
        self._records: dict[Key, RegionProfile] = {}
        self._choices: dict[Key, Choice] = {}
        self._live: weakref.WeakValueDictionary[int, Generated] = weakref.WeakValueDictionary()
        self._stoppable: weakref.WeakSet[interrupts.Stoppable] = weakref.WeakSet()
        self._closed = self._failed = False
        self._lock = threading.Lock()
        self._compilation = compilation()
        if mode is Mode.ON:
            self._compilation.add(self)

    def __call__(self, *inputs: Any) -> Any:
        """Return the results; NotImplemented or a record if the members' kernels should run."""
        varying, deciding = self._varying, self._deciding
        key = _ONE_KEY
        if self._reads:
            states = {at: state_of(inputs[at]) for at in self._reads}
            if not all([state.is_initialized for state in states.values()]):
                return NotImplemented  # a branch that does not run may read it
            inputs = tuple(
                [states[at].read() if at in states else v for at, v in enumerate(inputs)]
            )
        if varying or deciding:
            if self._updates and not self._can_update(inputs):
                return NotImplemented
            shapes = tuple(map(self._shape, self._take_varying(inputs)))
            key = shapes, tuple([self._host(inputs[at]).tobytes() for at in deciding])
        made = self._made.get(key, NotImplemented)
        if made is NotImplemented:
            if self._updates and not self._can_update(inputs):
                return NotImplemented
            if self._mode is Mode.ON:
                record = self._records.get(key) or self._record(key, inputs)
                return record if record.begins(not self._made) else NotImplemented
            made = self._made_now(key, inputs)
        if made is None:
            return NotImplemented
        try:
            return made(inputs)
        except errors.OpError:
            if self._fits(inputs):
                raise
            return NotImplemented

    @property
    def deciding(self) -> Sequence[int]:
        """Positions of the inputs whose values decide what is compiled."""
        return self._deciding

    def stop(self) -> None:
        """Make running calls end, because their session is closed."""
        with self._lock:
            self._closed = True
            stoppable = list(self._stoppable)
        for function in stoppable:
            function.close()

    def _can_update(self, inputs: Sequence[Any]) -> bool:
        """Return True if all variables to change are initialized and distinct."""
        states = [state_of(inputs[at]) for at in self._updates]
        distinct = len(set(map(id, states))) == len(states)
        return distinct and all([state.is_initialized for state in states])

    def _fits(self, inputs: Sequence[Any]) -> bool:
        """Return True if inputs have their static shapes; variables may have got others."""
        sources = self._region.inputs
        return self._can_update(inputs) and all(
            [
                at in self._varying or _shape_of(value) == known_shape(source)
                for at, (source, value) in enumerate(zip(sources, inputs, strict=True))
            ]
        )

    def _choice(self, inputs: Sequence[Any]) -> Choice:
        values = {at: np.array(self._host(inputs[at])) for at in self._deciding}
        return Choice(tuple(map(_shape_of, inputs)), values)

    def _record(self, key: Key, inputs: Sequence[Any]) -> RegionProfile:
        """Return a new profile for shapes that are not compiled for."""
        choice = self._choice(inputs)
        with self._lock:
            if len(self._records) >= MOST_COUNTED:  # drop shapes that may never come again
                self._records.clear()
                self._choices.clear()
            record = RegionProfile(self._compilation, self._region.members)
            if any([each.shares for each in self._live.values()]):
                record.discount(_SHARED)
            self._records[key], self._choices[key] = record, choice
        return record

    @property
    def device(self) -> Device:
        """The device that it runs on; see `Candidate`."""
        return self._device

    @property
    def nodes(self) -> Sequence[Node]:
        """The members of the region; see `Candidate`."""
        return self._region.members

    def num_compiled(self) -> tuple[int, int]:
        """Return the numbers of compiled and of refused choices of shapes; see `Candidate`."""
        with self._lock:
            functions = list(self._made.values())
        return len(functions) - functions.count(None), functions.count(None)

    @property
    def store(self) -> ProfileStore:
        """Store of measurements; see `Candidate`."""
        return self._generator.profiles

    def fingerprint(self, profile: RegionProfile) -> str | None:
        """Return a name for the shapes of a profile; see `Candidate`."""
        _, choice = self._choice_of(profile)
        if choice is None or self._checked:
            return None
        return self._generator.fingerprint(self._specialisation(self._region.outputs, choice))

    def waiting(self) -> list[RegionProfile]:
        """Return the profiles of shapes that it is not compiled for; see `Candidate`."""
        with self._lock:
            return list(self._records.values())

    def find(self, record: RegionProfile) -> bool:
        """Use the code on the disk for the shapes of a profile; see `Candidate`."""
        key, choice = self._choice_of(record)
        if choice is None or self._checked:
            return False
        found = self._compiled(choice, self._generator.find)
        if found is not None:
            self._put(key, record, found)
        return found is not None

    def compile(self, record: RegionProfile) -> None:
        """Compile for the shapes of a profile; see `Candidate`."""
        key, choice = self._choice_of(record)
        if choice is not None:
            self._put(key, record, self._compiled(choice))

    def _choice_of(self, record: RegionProfile) -> tuple[Key, Choice | None]:
        """Return the key and the choice of a record that is still counted."""
        with self._lock:
            for key, each in self._records.items():
                if each is record:
                    return key, self._choices[key]
        return _ONE_KEY, None

    def _put(self, key: Key, record: RegionProfile, made: Function | None) -> None:
        """Replace the function of a choice; None stands for kernels."""

        def replace(function: Function | None) -> None:
            with self._lock:
                if key in self._made:
                    self._made[key] = function
            if function is None:
                _log.info("%s is faster by kernels", self._region.node.name)

        if made is not None and self._checked is None:
            made = record.watch(made, replace)
        with self._lock:
            self._keep(key, made)
            self._records.pop(key, None)
            self._choices.pop(key, None)

    def _keep(self, key: Key, function: Function | None) -> None:
        """Store the function of a choice of shapes, and drop another if there are too many.

        When all room is taken, the others are marked as unused by wrappers that remove themselves
        at the next call. So a function is dropped only if it was not used since the last one was
        added.
        """
        made = self._made
        if len(made) >= MOST:
            unused = [other for other, each in made.items() if isinstance(each, _Unused | None)]
            del made[next(iter(unused or made))]
        made[key] = function
        if len(made) >= MOST:
            for other, each in made.items():
                if other != key and each is not None and not isinstance(each, _Unused):
                    made[other] = _Unused(made, other, each)

    def _made_now(self, key: Key, inputs: Sequence[Any]) -> Function | None:
        """Return the function for new shapes; None if there are too many."""
        with self._lock:
            if key in self._made:
                return self._made[key]
            if len(self._made) >= MOST:
                return None
        made = self._compiled(self._choice(inputs))
        with self._lock:
            return self._made.setdefault(key, made)

    def _compiled(self, choice: Choice, generate: Generate | None = None) -> Function | None:
        """Compile a choice; return None if it cannot be compiled, or `generate` returns None."""
        region = self._region
        try:
            generated = self._generated(region.outputs, choice, generate)
            if generated is None:
                return None
            if self._checked is not None:
                return self._checking(self._checked, generated, choice)
            return self._calling(generated, choice.shapes)
        except NotGenerated as why:
            _log.info("%s runs by kernels: %s", region.node.name, why)
        except Exception:  # because it may run in the background, where nobody would see it
            if self._mode is Mode.NOW:
                raise
            self._say_that_it_failed()
        return None

    def _say_that_it_failed(self) -> None:
        """Log, only for the first choice of shapes, why a region cannot be compiled."""
        if not self._failed:
            _log.exception("%s cannot be compiled, and runs by kernels", self._region.node.name)
        self._failed = True

    def _generated(
        self, outputs: Sequence[Output], choice: Choice, generate: Generate | None = None
    ) -> Generated | None:
        made = (generate or self._generate)(self._specialisation(outputs, choice))
        if made is not None:
            made.threads = self._device.config.compiled_threads
            with self._lock:
                self._live[id(made)] = made
        return made

    def _specialisation(self, outputs: Sequence[Output], choice: Choice) -> Specialisation:
        region = self._region
        return Specialisation(region.members, region.inputs, outputs, *choice, region.branches)

    def _generate(self, wanted: Specialisation) -> Generated:
        """Generate code, which may share that of another choice of shapes."""
        with self._lock:
            like = list(self._live.values())
        return self._generator.generate(wanted, like)

    def _checking(self, checked: Checked, generated: Generated, choice: Choice) -> Function:
        """Return a function that runs on copies of variables and compares its results."""
        run = self._filling(generated)

        def every() -> Function:
            outputs = results_of(self._region.members)
            every = self._generated(outputs, choice)
            assert every is not None
            return self._filling(every)

        def call(inputs: Sequence[Any]) -> Any:
            before = [_copied(state_of(inputs[at]).read()) for at in generated.updates]
            arrays = [array.copy() for array in before]
            results = run(inputs, *arrays)
            return checked(inputs, results, generated.updates, before, arrays, every)

        return call

    def _calling(self, generated: Generated, shapes: Sequence[Shape]) -> Function:
        """Return a function that allocates results and calls compiled code."""
        run, updates = self._filling(generated), tuple(generated.updates)
        if not updates:
            return run
        wanted = [shapes[at] for at in updates]

        def call(inputs: Sequence[Any]) -> Any:
            results: Any = NotImplemented

            def change(*arrays: Any) -> None:
                nonlocal results
                if [array.shape for array in arrays] == wanted:  # else assigned since
                    results = run(inputs, *arrays)

            VariableState.update_all(tuple([state_of(inputs[at]) for at in updates]), change)
            return results

        return call

    def _until_closed(self, generated: Generated) -> interrupts.Stoppable:
        function = interrupts.Stoppable(generated, bounded=generated.bounded)
        with self._lock:
            self._stoppable.add(function)
            if self._closed:  # closed meanwhile
                function.close()
        return function

    def _filling(self, generated: Generated) -> Function:
        """Return a function that calls code with inputs, new result arrays and variables."""
        take = gather(generated.takes)
        run: Callable[..., None] = self._until_closed(generated) if generated.long else generated
        enter = run if generated.long else generated.enter
        streams = [stream_of(node, self._device.resources) for node in generated.draws]
        results = [self._device.maker(shape, d.numpy) for d, shape in generated.results]

        def call(inputs: Any, *arrays: Any) -> Any:
            out = [new() for new in results]
            if enter(*take(inputs), *out, *arrays) is not None:
                run(*take(inputs), *out, *arrays)
            return out[0] if len(out) == 1 else tuple(out)

        def call_drawing(inputs: Any, *arrays: Any) -> Any:
            executions = Executions(streams)
            out = [new() for new in results]
            try:
                run(*take(inputs), np.array(executions.states, np.uint64), *out, *arrays)
            except BaseException:  # because nobody has drawn, whatever ended it
                executions.give_back()
                raise
            if generated.tells:
                executions.give_back(out.pop().tolist())
            return out[0] if len(out) == 1 else tuple(out)

        if streams:
            return call_drawing
        if len(results) != 1:
            return call
        (new,) = results

        def call_for_one(inputs: Any, *arrays: Any) -> Any:
            out = new()
            if enter(*take(inputs), out, *arrays) is not None:
                run(*take(inputs), out, *arrays)
            return out

        return call_for_one


def deciding(generator: CodeGenerator, region: Region) -> tuple[int, ...]:
    """Return the positions of a region's inputs whose values decide what is compiled."""
    position = {source: at for at, source in enumerate(region.inputs)}
    found = {
        position[member.inputs[at]]
        for member in region.members
        for at in deciding_inputs(generator, member)
        if member.inputs[at] in position and member.inputs[at].node.role is not Role.CONSTANT
    }
    return tuple(sorted(found))


def known_shape(output: Output) -> Shape | None:
    """Return the static shape of an input, or of the variable that is changed; else None."""
    node = output.node
    dims = node.attrs["shape"] if node.role is Role.VARIABLE else output.dims
    if dims is None or None in dims:
        return None
    return tuple([size for size in dims if size is not None])


def _varies(output: Output) -> bool:
    return known_shape(output) is None


def _shape_of(value: Any) -> Shape:
    """Return the shape of an input, or of the variable that it refers to."""
    array = state_of(value).read() if isinstance(value, VariableState | ResourceHandle) else value
    shape: Shape = array.shape
    return shape


def _copied(value: Any) -> Any:
    """Return a copy of a variable's value, on its device."""
    return np.array(value) if isinstance(value, np.ndarray | np.generic) else value.copy()


class _Unused:
    """Wrapper of a function that marks it as unused until it is called."""

    __slots__ = ("_function", "_key", "_made")

    def __init__(self, made: dict[Key, Any], key: Key, function: Function) -> None:
        self._made = made
        self._key = key
        self._function = function

    def __call__(self, inputs: Sequence[Any]) -> Any:
        if self._made.get(self._key) is self:
            self._made[self._key] = self._function
        return self._function(inputs)

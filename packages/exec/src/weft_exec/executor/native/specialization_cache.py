"""Cache of the compiled functions of a region or of a loop, by the shapes they are compiled for."""

from __future__ import annotations

import enum
import logging
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from weft_exec.devices.device import Device
from weft_exec.executor.native import interrupts
from weft_exec.executor.native.background_compilation import compilation
from weft_exec.executor.native.region_profile import Function, Measurements, RegionProfile
from weft_exec.tracing.consumers import PHASE, record_block
from weft_graph.ir.code_generators import (
    CodeGenerator,
    Generated,
    MonomorphicCode,
    NotGenerated,
    ProfileStore,
    Request,
    SettingError,
)
from weft_graph.ir.node import Node
from weft_tensor import errors

MAX_SPECIALIZATIONS: Final = 16
"""Maximum number of choices of shapes and values with separate code at a time."""

MAX_SHARING: Final = 256
"""Maximum number of choices with code at a time, including shared code."""

MAX_PROFILES: Final = 256
"""Maximum number of choices whose runs with kernels are counted at a time."""

_SHARED: Final = 0.1
"""Approximate fraction of the compile time that is left if code of another size is shared."""

_DOMINANT: Final = 0.5
"""Minimum share of the time of all choices for which a choice gets separate code first.

It does not apply if the size of the choice varied in earlier processes.
"""

_log: Final = logging.getLogger(__name__)

K = TypeVar("K")
K_contra = TypeVar("K_contra", contravariant=True)
C = TypeVar("C")


class Mode(enum.Enum):
    """Time at which regions and loops are compiled.

    ON: in the background, for shapes whose kernels have taken as long as compiling will; they run
      until it is done.
    FIRST: when shapes are first met, so that results do not depend on timing.
    NOW: as FIRST, and errors of the compiler are raised.
    """

    ON = "on"
    FIRST = "first"
    NOW = "now"


class Binding(Protocol[K_contra, C]):
    """Interface of a region or a loop to its cache: all differences between regions and loops.

    A key identifies a call, by shapes and values. A choice has all that its code is compiled for.
    """

    @property
    def name(self) -> str:
        """Name of the region or loop in log messages."""
        ...

    @property
    def nodes(self) -> Sequence[Node]:
        """Nodes that are computed together."""
        ...

    def choice(self, key: K_contra, inputs: Sequence[Any]) -> C:
        """Return the choice of a call."""
        ...

    def request(self, choice: C) -> Request:
        """Return the request for the code of a choice."""
        ...

    def bind(self, generated: Generated, choice: C) -> Function:
        """Return a function of the inputs of a call that runs code."""
        ...


class _PendingChoice(NamedTuple, Generic[C]):
    """Choice that runs with kernels and may be compiled later."""

    profile: RegionProfile
    choice: C


class SpecializationCache(Generic[K, C]):
    """Compiled functions of a region or a loop, by key; the `Candidate` of `Compilation`.

    A key is unknown, waits for its code while kernels run, has a function, or stays with kernels;
    then its function is None. In the background, the least recently used function is dropped when
    there are too many. Otherwise, further keys stay with kernels, because a compile for each run
    would cost more than they do.

    Args:
      binding: the region or loop.
      generator: compiles it.
      device: has the settings of threads.
      mode: when functions are compiled.
      checked: True if kernels compute the same, for comparison.

    Attributes:
      lookup: returns the function of a key, None if it stays with kernels, and its second argument
        if the key is unknown. It is a dictionary's `get`, because every call uses it.
    """

    def __init__(
        self,
        binding: Binding[K, C],
        generator: CodeGenerator,
        device: Device,
        mode: Mode,
        checked: bool = False,
    ) -> None:
        self._binding = binding
        self._generator = generator
        self._device = device
        self._checked = checked
        self.mode: Final = mode
        self._functions: dict[K, Function | None] = {}
        self._sharing: set[K] = set()
        self.lookup: Final[Callable[[K, Any], Any]] = self._functions.get
        self._waiting: dict[K, _PendingChoice[C]] = {}
        self._measurements = Measurements()
        self._live: weakref.WeakValueDictionary[int, Generated] = weakref.WeakValueDictionary()
        self._stoppable: weakref.WeakSet[interrupts.StoppableFunction] = weakref.WeakSet()
        self._is_closed = self._has_failed = self._is_full = False
        self._lock = threading.Lock()
        self._compilation = compilation()
        if mode is Mode.ON:
            self._compilation.add(self)

    # ---------------------------------------------------------------------- calls of unknown keys

    def profile(self, key: K, inputs: Sequence[Any]) -> Any:
        """Return the profile of a key if its kernels should be timed now, else NotImplemented."""
        waiting = self._waiting.get(key) or self._wait(key, inputs)
        begins = waiting.profile.should_time(not self._functions)
        return waiting.profile if begins else NotImplemented

    def _wait(self, key: K, inputs: Sequence[Any]) -> _PendingChoice[C]:
        """Return a new profile of a key without code."""
        choice = self._binding.choice(key, inputs)
        with self._lock:
            if len(self._waiting) >= MAX_PROFILES:  # drop shapes that may never come again
                self._waiting.clear()
            profile = self._new_profile()
            if any([entry.is_shape_polymorphic for entry in self._live.values()]):
                profile.discount(_SHARED)
            waiting = self._waiting[key] = _PendingChoice(profile, choice)
        return waiting

    def _new_profile(self) -> RegionProfile:
        binding, total = self._binding, self._measurements
        return RegionProfile(self._compilation, binding.nodes, binding.name, total)

    def instance(self, key: K, inputs: Sequence[Any]) -> Function | None:
        """Return a function for a new key if existing code supports it, else None."""
        if key in self._waiting or not self._sharing:
            return None
        choice = self._binding.choice(key, inputs)
        function = self._instance(choice)
        if function is not None:
            self._put(key, self._new_profile(), function, True)
        return function

    def _instance(self, choice: C) -> Function | None:
        """Return a function of a choice by code for other sizes, without compiling, or None."""
        with self._lock:
            live_functions = list(self._live.values())
        return self._compile_choice(
            choice, lambda request: self._generator.instance(request, live_functions)
        )[0]

    def compile_now(self, key: K, inputs: Sequence[Any]) -> Function | None:
        """Return the function of a new key; None if it stays with kernels.

        Raises:
          OpError: the compiler raised it, in the mode NOW.
          InternalError: the compiler raised another error, in the mode NOW.
        """
        with self._lock:
            if key in self._functions:
                return self._functions[key]
            num_separate = len(self._functions) - len(self._sharing)
            is_full = num_separate >= MAX_SPECIALIZATIONS or len(self._functions) >= MAX_SHARING
            is_news = is_full and not self._is_full
            self._is_full |= is_full
        if is_news:
            _log.info(
                "%s is compiled for %d combinations of shapes, which is the maximum; other shapes "
                "run with kernels",
                self._binding.name,
                len(self._functions),
            )
        if is_full:
            return None
        function, shares = self._compile_choice(self._binding.choice(key, inputs))
        with self._lock:
            if shares:
                self._sharing.add(key)
            return self._functions.setdefault(key, function)

    # ---------------------------------------------------------------------- tier-up

    @property
    def device(self) -> Device:
        """The device that it runs on; see `Candidate`."""
        return self._device

    @property
    def nodes(self) -> Sequence[Node]:
        """The nodes that are computed together; see `Candidate`."""
        return self._binding.nodes

    @property
    def store(self) -> ProfileStore:
        """Store of measurements; see `Candidate`."""
        return self._generator.profiles

    def num_compiled(self) -> tuple[int, int]:
        """Return the numbers of keys with code and of those left to kernels; see `Candidate`."""
        with self._lock:
            functions = list(self._functions.values())
        return len(functions) - functions.count(None), functions.count(None)

    def waiting(self) -> list[RegionProfile]:
        """Return the profiles of keys without code; see `Candidate`."""
        with self._lock:
            if self._is_closed:
                return []
            profiles = [waiting.profile for waiting in self._waiting.values()]
            self._pool_measurements(profiles)
        return profiles

    def _pool_measurements(self, profiles: Sequence[RegionProfile]) -> None:
        """Count the kernels of all waiting choices for one of them, if its code may support all.

        A region with varying sizes is therefore compiled even if no single size takes long: first
        for a dominating size if there is one, else for all sizes. If choices did not share code,
        here or in an earlier process, each pays for its own.
        """
        num_separate = len(self._functions) - len(self._sharing)
        is_monomorphic = num_separate > 1 or self._measurements.history.is_monomorphic
        is_pooled = not is_monomorphic and not self._sharing
        leader = max(profiles, key=lambda profile: profile.seconds, default=None)
        for profile in profiles:
            profile.is_leader = is_pooled and profile is leader

    def fingerprint(self, profile: RegionProfile) -> str | None:
        """Return a name for the choice of a profile; see `Candidate`."""
        known_choice = self._choice_of_profile(profile)
        if known_choice is None or self._checked:
            return None
        request = self._binding.request(known_choice[1])
        return self._generator.polymorphic_fingerprint(request) or self._generator.fingerprint(
            request
        )

    def find(self, profile: RegionProfile) -> bool:
        """Use the code on the disk for the choice of a profile; see `Candidate`."""
        known_choice = self._choice_of_profile(profile)
        if known_choice is None or self._checked:
            return False
        key, choice = known_choice
        function, shares = self._compile_choice(choice, self._generator.find)
        if function is not None:
            self._put(key, profile, function, shares)
            self._count_compiled(profile, shares)
        return function is not None

    def compile(self, profile: RegionProfile) -> bool:
        """Compile for the choice of a profile; see `Candidate`."""
        known_choice = self._choice_of_profile(profile)
        if known_choice is None:
            return False
        key, choice = known_choice
        other_choices: list[C] = []
        total = self._measurements
        varies = total.history.varies or profile.seconds < _DOMINANT * total.seconds
        if profile.is_leader and varies:
            with self._lock:
                waiting = [
                    entry for entry in self._waiting.values() if entry.profile is not profile
                ]
            waiting.sort(key=lambda entry: entry.profile.seconds, reverse=True)
            other_choices = [entry.choice for entry in waiting]
        try:
            function, shares = self._compile_choice(choice, None, other_choices)
        except MonomorphicCode as why:
            _log.info("%s needs code for each choice of shapes: %s", self._binding.name, why)
            total.history = total.history._replace(is_monomorphic=True)
            return False
        self._put(key, profile, function, shares)
        self._count_compiled(profile, shares)
        return True

    def _count_compiled(self, profile: RegionProfile, shares: bool) -> None:
        """Use new code for the waiting choices that it supports, or count it for its own choice."""
        if not shares:
            self._measurements.remove(profile)
            return
        with self._lock:
            waiting = list(self._waiting.items())
        for key, entry in waiting:
            function = self._instance(entry.choice)
            if function is not None:
                self._put(key, entry.profile, function, True)

    def _choice_of_profile(self, profile: RegionProfile) -> tuple[K, C] | None:
        """Return the key and the choice of a profile; None if it was dropped."""
        with self._lock:
            for key, waiting in self._waiting.items():
                if waiting.profile is profile:
                    return key, waiting.choice
        return None

    def _put(self, key: K, profile: RegionProfile, function: Function | None, shares: bool) -> None:
        """Use a function for a key, and watch whether it saves time; None means kernels."""

        def replace(function: Function | None) -> None:
            with self._lock:
                if key in self._functions:
                    self._functions[key] = function
            if function is None:
                _log.info("%s is faster with kernels", self._binding.name)

        if function is not None and not self._checked:
            function = profile.watch(function, replace)
        with self._lock:
            self._keep(key, function, shares)
            self._waiting.pop(key, None)

    def _keep(self, key: K, function: Function | None, shares: bool) -> None:
        """Store the function of a key, and drop another if there are too many.

        When the table is full, the other functions get wrappers that mark them as unused and remove
        themselves at the next call. So a function is dropped only if it was not used since the last
        one was added.

        Args:
          shares: True if its code is shared with another choice and takes little memory.
        """
        functions = self._functions
        limit = MAX_SHARING if shares else MAX_SPECIALIZATIONS
        other_functions = [
            key_of_function
            for key_of_function in functions
            if shares or key_of_function not in self._sharing
        ]
        if len(other_functions) >= limit:
            unused = [
                key_of_function
                for key_of_function in other_functions
                if isinstance(functions[key_of_function], _Unused | None)
            ]
            dropped = (unused or other_functions)[0]
            other_functions.remove(dropped)
            del functions[dropped]
            self._sharing.discard(dropped)
        functions[key] = function
        if shares:
            self._sharing.add(key)
        if len(other_functions) + 1 >= limit:
            for key_of_function in other_functions:
                f = functions[key_of_function]
                if f is not None and not isinstance(f, _Unused):
                    functions[key_of_function] = _Unused(functions, key_of_function, f)

    # ---------------------------------------------------------------------- compiling

    def _compile_choice(
        self,
        choice: C,
        find: Callable[[Request], Generated | None] | None = None,
        other_choices: Iterable[C] = (),
    ) -> tuple[Function | None, bool]:
        """Compile a choice.

        Args:
          find: looks for code instead.
          other_choices: choices that the code must also support.
        Returns: the function, or None if it cannot be compiled or `find` returns None; and True if
          it shares the code of another choice.
        Raises: MonomorphicCode: the code cannot support other choices.
        """
        name = self._binding.name
        try:
            request = self._binding.request(choice)
            generated = self._generate(request, other_choices) if find is None else find(request)
            if generated is None:
                return None, False
            generated.threads = self._device.config.compiled_threads
            with self._lock:
                self._live[id(generated)] = generated
            return self._binding.bind(generated, choice), generated.is_shape_polymorphic
        except MonomorphicCode:
            raise
        except NotGenerated as why:
            _log.info("%s runs with kernels: %s", name, why)
        except SettingError as error:
            if self.mode is Mode.NOW:
                raise
            if not self._has_failed:
                _log.warning("%s runs with kernels: %s", name, error)
            self._has_failed = True
        except Exception as error:  # because errors in the background are lost
            if self.mode is Mode.NOW:
                if isinstance(error, errors.OpError):
                    raise
                message = f"{name} could not be compiled: {error!r}"
                raise errors.InternalError(message) from error
            if not self._has_failed:
                _log.exception("%s cannot be compiled, and runs with kernels", name)
            self._has_failed = True
        return None, False

    def _generate(self, request: Request, other_choices: Iterable[C]) -> Generated:
        """Generate code, or share the code of another choice."""
        with self._lock:
            live_functions = list(self._live.values())
        with record_block(PHASE, "compile", "_Phase"):
            return self._generator.generate(
                request, live_functions, map(self._binding.request, other_choices)
            )

    # ---------------------------------------------------------------------- closing

    def make_stoppable(
        self, generated: Generated, tried: bool = False, bounded: bool = False
    ) -> interrupts.StoppableFunction:
        """Return a function whose calls end when their step or session does."""
        function = interrupts.StoppableFunction(generated, tried, bounded)
        with self._lock:
            self._stoppable.add(function)
            if self._is_closed:  # closed meanwhile
                function.close()
        return function

    def stop(self) -> None:
        """Make running calls end, because their session is closed."""
        with self._lock:
            self._is_closed = True
            stoppable = list(self._stoppable)
        for function in stoppable:
            function.close()


class _Unused:
    """Wrapper of a function that marks it as unused until it is called."""

    __slots__ = ("_function", "_functions", "_key")

    def __init__(self, functions: dict[Any, Any], key: Any, function: Function) -> None:
        self._functions = functions
        self._key = key
        self._function = function

    def __call__(self, inputs: Sequence[Any]) -> Any:
        if self._functions.get(self._key) is self:
            self._functions[self._key] = self._function
        return self._function(inputs)

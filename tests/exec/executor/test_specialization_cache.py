"""Regions and loops keep compiled code in the same way: limits, log lines, deoptimization."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

import weft as wf
from weft_compiler.generator import LlvmGenerator, LoopCompiler, RegionCompiler
from weft_compiler.native import cache as disk, code_index
from weft_exec.executor.native import specialization_cache
from weft_exec.executor.native.background_compilation import Compilation
from weft_exec.executor.native.region_measurements import History
from weft_exec.executor.native.specialization_cache import (
    MAX_PROFILES,
    MAX_SPECIALIZATIONS,
    Mode,
    SpecializationCache,
)
from weft_graph.ir.code_generators import NotGenerated
from weft_tensor import errors

LOGGER = "weft_exec.executor.native"


def region(x: Any) -> Any:
    """Return a region of one input."""
    return wf.exp(x) + 1.0


def loop(x: Any) -> Any:
    """Return a loop that brings in one input."""
    return wf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * 1.5), [0, x])[1]


EXPECTED: dict[Callable[[Any], Any], Callable[[Any], Any]] = {
    region: lambda x: np.exp(x) + 1.0,
    loop: lambda x: x * 1.5**3,
}
UNITS = pytest.mark.parametrize("unit", EXPECTED)


class Eager(Compilation):
    """Compilation of everything that kernels have run twice, in the step's own thread."""

    def record_kernel_run(self, seconds: float) -> None:
        """Compile all that waits."""
        for candidate, profile in self._waiting():
            candidate.compile(profile)


@pytest.fixture
def caches(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Caches of the regions and loops of a test; those in the background compile at once."""
    found: list[Any] = []
    compilation = Eager()
    begin = SpecializationCache.__init__

    def note(self: Any, *args: Any) -> None:
        begin(self, *args)
        found.append(self)

    monkeypatch.setattr(SpecializationCache, "__init__", note)
    monkeypatch.setattr(specialization_cache, "compilation", lambda: compilation)
    monkeypatch.setattr(disk, "directory", lambda: None)
    monkeypatch.setattr(code_index, "_here", {})
    return found


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    """Return the log lines of compiled regions and loops, after the name of each."""
    with caplog.at_level(logging.INFO, LOGGER):
        yield lambda: [
            record.getMessage().partition(" ")[2]
            for record in caplog.records
            if record.name.startswith(LOGGER)
        ]


@pytest.fixture
def separate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile all choices of shapes separately."""
    generate = LlvmGenerator.generate
    monkeypatch.setattr(LlvmGenerator, "generate", lambda *args: generate(*args[:2]))


def runner(session: Any, unit: Callable[[Any], Any]) -> Callable[[int], None]:
    """Return a function that runs a unit for vectors of a size, and checks the values."""
    x = wf.placeholder(wf.float32, [None])
    y = unit(x)

    def run(size: int) -> None:
        value = np.linspace(-1, 1, size, dtype=np.float32)
        result = session.run(y, {x: value})
        np.testing.assert_allclose(result, EXPECTED[unit](value), 1e-5)

    return run


@UNITS
def test_first_shapes_have_code_and_others_run_by_kernels(
    unit: Callable[[Any], Any],
    caches: list[Any],
    lines: Callable[[], list[str]],
    separate: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WEFT_JIT", "now")
    with wf.Session() as session:
        run = runner(session, unit)
        for size in [*range(2, 22), *range(2, 22)]:
            run(size)
        (cache,) = caches
        assert cache.num_compiled() == (16, 0)
    assert lines() == [
        "is compiled for 16 combinations of shapes, which is the maximum; "
        "other shapes run with kernels"
    ]


@UNITS
def test_the_least_recently_used_code_is_dropped(
    unit: Callable[[Any], Any],
    caches: list[Any],
    lines: Callable[[], list[str]],
    separate: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WEFT_JIT", "on")
    with wf.Session() as session:
        run = runner(session, unit)
        for size in range(2, 22):
            # The first run of the region by kernels is not timed. The second one is compiled.
            for _ in range(3):
                run(size)
            if size >= 17:  # all room is taken
                run(2)
        (cache,) = caches
        assert cache.num_compiled() == (16, 0) and not cache.waiting()
        for size in [2, *range(7, 22)]:
            run(size)
        assert not cache.waiting()
        monkeypatch.setattr(Eager, "record_kernel_run", lambda *_: None)
        for size in range(3, 7):
            run(size)
        assert len(cache.waiting()) == 4
    assert not lines()


@UNITS
def test_many_sizes_share_code(
    unit: Callable[[Any], Any],
    caches: list[Any],
    lines: Callable[[], list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WEFT_JIT", "now")
    with wf.Session() as session:
        run = runner(session, unit)
        for size in range(30, 2, -1):
            run(size)
        (cache,) = caches
        assert cache.num_compiled() == (28, 0)
    assert not lines()


def test_one_compile_serves_sizes_that_are_rare(
    caches: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernels of all sizes pay for it, and further sizes do not wait."""
    monkeypatch.setenv("WEFT_JIT", "on")
    monkeypatch.setattr(Eager, "record_kernel_run", lambda *_: None)
    lowered: list[Any] = []
    for compiler in (RegionCompiler, LoopCompiler):
        lower = compiler.lower
        monkeypatch.setattr(
            compiler, "lower", lambda *args, lower=lower: lowered.append(args) or lower(*args)
        )
    with wf.Session() as session:
        run = runner(session, region)
        for size in (5, 6, 7):
            run(size)
        (cache,) = caches
        for profile, seconds in zip(cache.waiting(), (1.0, 3.0, 2.0), strict=True):
            profile.seconds = seconds
            profile.measurements.seconds += seconds
        profiles = cache.waiting()
        total = sum(profile.seconds for profile in profiles)
        assert total >= 6.0
        rents = [profile.accrued_seconds for profile in profiles]
        assert rents == [1.0, pytest.approx(total, abs=0.1), 2.0]
        cache.compile(profiles[1])
        assert cache.num_compiled() == (3, 0) and not cache.waiting()
        count = len(lowered)
        for size in range(3, 20):
            run(size)
        assert cache.num_compiled() == (17, 0) and not cache.waiting()
        assert len(lowered) == count


@UNITS
def test_a_size_that_dominates_has_code_of_its_own(
    unit: Callable[[Any], Any], caches: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_JIT", "on")
    monkeypatch.setattr(Eager, "record_kernel_run", lambda *_: None)
    with wf.Session() as session:
        run = runner(session, unit)
        for size in (5, 6):
            run(size)
        (cache,) = caches
        often, seldom = cache.waiting()
        often.seconds, often.measurements.seconds = 9.0, 10.0
        often.measurements.history = History(1, 100, 30.0)
        assert cache.waiting()[0].accrued_seconds == 40.0
        cache.compile(often)
        assert cache.num_compiled() == (1, 0)
        assert cache.waiting() == [seldom]
        # Its code has used up what earlier processes paid.
        assert seldom.accrued_seconds == pytest.approx(1.0)


def test_a_size_that_varied_in_earlier_processes_shares_code_at_once(
    caches: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One size may dominate the first steps of a process by chance."""
    monkeypatch.setenv("WEFT_JIT", "on")
    monkeypatch.setattr(Eager, "record_kernel_run", lambda *_: None)
    with wf.Session() as session:
        run = runner(session, region)
        for size in (5, 6):
            run(size)
        (cache,) = caches
        often, _ = cache.waiting()
        often.seconds, often.measurements.seconds = 9.0, 10.0
        often.measurements.history = History(1, 100, 30.0, varies=True)
        assert cache.waiting()[0].is_leader
        cache.compile(often)
        assert cache.num_compiled() == (2, 0) and not cache.waiting()


def test_sizes_that_cannot_share_code_pay_one_by_one(
    caches: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_JIT", "on")
    monkeypatch.setattr(Eager, "record_kernel_run", lambda *_: None)
    monkeypatch.setattr("weft_compiler.sharing._generalize", lambda *_: None)
    with wf.Session() as session:
        run = runner(session, region)
        for size in (5, 6, 7):
            run(size)
        (cache,) = caches
        profiles = cache.waiting()
        for profile in profiles:
            profile.seconds, profile.measurements.seconds = 1.0, 3.0
        assert sorted(p.accrued_seconds for p in cache.waiting()) == [1.0, 1.0, 3.0]
        leader = next(p for p in cache.waiting() if p.is_leader)
        assert not cache.compile(leader)
        assert cache.num_compiled() == (0, 0) and len(cache.waiting()) == 3
        assert [p.accrued_seconds for p in cache.waiting()] == [1.0] * 3
        assert leader.measurements.measured().is_monomorphic
        assert cache.compile(leader)
        assert cache.num_compiled() == (1, 0) and len(cache.waiting()) == 2


@UNITS
def test_without_code_most_runs_by_kernels_do_not_ask_for_it(
    unit: Callable[[Any], Any], caches: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_JIT", "on")
    monkeypatch.setattr(Eager, "record_kernel_run", lambda *_: None)
    asked: list[Any] = []
    profile = SpecializationCache.profile

    def note(self: Any, key: Any, inputs: Any) -> Any:
        asked.append(key)
        return profile(self, key, inputs)

    monkeypatch.setattr(SpecializationCache, "profile", note)
    with wf.Session() as session:
        run = runner(session, unit)
        for _ in range(77):
            run(3)
        (cache,) = caches
        (waiting,) = cache.waiting()
        # The first seven runs ask, and then one in seven.
        assert len(asked) == 17 and waiting.runs == 77


@UNITS
def test_errors_of_the_compiler_are_raised_if_asked(
    unit: Callable[[Any], Any], caches: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise ValueError("no registers are left")

    monkeypatch.setenv("WEFT_JIT", "now")
    with wf.Session() as session:
        run = runner(session, unit)
        monkeypatch.setattr(LlvmGenerator, "generate", fail)
        with pytest.raises(errors.InternalError, match=r"could not be compiled.*no registers"):
            run(3)


class Code:
    """Code of a choice.

    Attributes:
      is_shape_polymorphic, threads: as of `Generated`.
    """

    is_shape_polymorphic = False
    threads = 1


class Request(NamedTuple):
    """Request for the code of a number."""

    number: int


class Numbers:
    """Binding whose choices are numbers, and whose functions return them; also its generator.

    Attributes:
      error: raised for negative numbers, if there is one.
    """

    name = "numbers"

    def __init__(self) -> None:
        self.nodes = [wf.exp(wf.placeholder(wf.float32, [4])).op]
        self.error: Exception | None = None

    def choice(self, key: int, inputs: Sequence[Any]) -> int:
        """Return the key."""
        return key

    def request(self, choice: int) -> Any:
        """Return the request for a number."""
        return Request(choice)

    def instance(self, request: Any, like: Iterable[Any]) -> Any:
        """Return None: no code is shared."""

    def generate(self, request: Any, like: Iterable[Any] = (), others: Iterable[Any] = ()) -> Any:
        """Return code, or raise the error."""
        if request.number < 0 and self.error is not None:
            raise self.error
        return Code()

    def bind(self, generated: Any, choice: int) -> Callable[..., Any]:
        """Return a function that returns the choice."""
        return lambda inputs: choice


def cache_of(binding: Numbers, mode: Mode) -> SpecializationCache[int, int]:
    """Return an empty cache."""
    device: Any = SimpleNamespace(config=SimpleNamespace(compiled_threads=1))
    generator: Any = binding
    return SpecializationCache(binding, generator, device, mode)


def test_slower_code_is_dropped_for_its_kernels(
    caches: list[Any], lines: Callable[[], list[str]]
) -> None:
    cache = cache_of(Numbers(), Mode.ON)
    profile = cache.profile(3, [])
    profile.least = 0.0  # no code is faster
    cache.compile(profile)
    function = cache.lookup(3, NotImplemented)
    for _ in range(20):
        assert function([]) == 3
    assert cache.lookup(3, NotImplemented) is None
    assert cache.num_compiled() == (0, 1)
    assert lines() == ["is faster with kernels"]


@pytest.mark.parametrize("mode", [Mode.ON, Mode.FIRST])
def test_a_refused_choice_stays_with_kernels_alone(
    mode: Mode, caches: list[Any], lines: Callable[[], list[str]]
) -> None:
    binding = Numbers()
    binding.error = NotGenerated("it is negative")
    cache = cache_of(binding, mode)
    for key in (-1, 1):
        if mode is Mode.ON:
            cache.compile(cache.profile(key, []))
        else:
            cache.compile_now(key, [])
    assert cache.lookup(-1, NotImplemented) is None
    assert cache.lookup(1, NotImplemented)([]) == 1
    assert lines() == ["runs with kernels: it is negative"]


def test_failures_of_the_compiler_are_logged_once(
    caches: list[Any], lines: Callable[[], list[str]]
) -> None:
    binding = Numbers()
    binding.error = ValueError("no registers are left")
    cache = cache_of(binding, Mode.FIRST)
    assert cache.compile_now(-1, []) is cache.compile_now(-2, []) is None
    assert lines() == ["cannot be compiled, and runs with kernels"]


def test_refused_choices_are_dropped_before_code_in_use(caches: list[Any]) -> None:
    binding = Numbers()
    binding.error = NotGenerated("it is negative")
    cache = cache_of(binding, Mode.ON)
    keys = [0, -1, *range(1, MAX_SPECIALIZATIONS)]
    for key in keys:
        if key == keys[-1]:
            for used in range(key):
                assert cache.lookup(used, NotImplemented)([]) == used
        cache.compile(cache.profile(key, []))
    assert cache.num_compiled() == (MAX_SPECIALIZATIONS, 0)
    assert cache.lookup(-1, NotImplemented) is NotImplemented


def test_profiles_of_shapes_that_never_come_again_are_dropped(caches: list[Any]) -> None:
    cache = cache_of(Numbers(), Mode.ON)
    first = cache.profile(0, [])
    for key in range(1, MAX_PROFILES + 1):
        cache.profile(key, [])
    assert len(cache.waiting()) == 1
    cache.compile(first)  # was dropped
    assert cache.num_compiled() == (0, 0)


def test_a_closed_cache_has_nothing_to_compile(caches: list[Any]) -> None:
    cache = cache_of(Numbers(), Mode.ON)
    cache.profile(0, [])
    cache.stop()
    assert not cache.waiting()

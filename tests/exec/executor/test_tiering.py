"""Tier-up: simulated programs, and measurements that outlive a process."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from weft_testing.waiting import wait_until

import weft as wf
from weft_exec.executor.native.background_compilation import Compilation
from weft_exec.executor.native.idle_cores import IdleCores
from weft_exec.executor.native.region_measurements import History, read_history, write_history
from weft_exec.executor.native.region_profile import RegionProfile
from weft_exec.executor.native.tiering import TierUpPolicy
from weft_graph.ir.compile_pauses import may_pause

STARTUP = 0.5
"""Processor seconds of a process before its first step."""


@dataclass
class Region:
    """A region of a simulated program: seconds of a run with kernels and compiled, and its price.

    Attributes:
      kept: seconds of compiling whose objects are on the disk.
      num_nodes: nodes that a run executes.
    """

    kernels: float
    compiled: float
    compile_cost: float
    history: History = field(default_factory=History)
    kept: float = 0.0
    num_nodes: int = 1


LOWERING, OBJECTS = 0.2, 16
"""Fraction of the price before the first object, and the number of objects."""


def simulate(regions: list[Region], steps: int, has_idle_core: bool = False) -> list[float]:
    """Return the time at the end of each step; the regions keep their histories."""
    x = wf.placeholder(wf.float32, [4])
    node = wf.exp(x).op
    policy, now = TierUpPolicy(), STARTUP
    profiles = {}
    for number, region in enumerate(regions):
        profile = RegionProfile(Compilation(policy), [node])
        profile.measurements.history = region.history
        profile.discount(region.compile_cost / profile.estimate)
        profiles[number] = profile
    waiting, ends = dict(profiles), []
    chosen: list[RegionProfile] = []
    spent = 0.0
    for _ in range(steps):
        for number, region in enumerate(regions):
            if number in waiting:
                waiting[number].record_time(region.kernels, region.num_nodes)
                now += region.kernels
            elif region.history.compile_seconds is None:
                policy.saved_seconds += region.kernels - region.compiled
                now += region.compiled
            else:  # from the disk
                now += region.compiled
        chosen = chosen or policy.choose(list(waiting.values()), now, has_idle_core)
        while chosen:
            profile = chosen[0]
            (number,) = [n for n, each in profiles.items() if each is profile]
            region = regions[number]
            if not (
                has_idle_core
                or policy.pays_off_locally(profile)
                or policy.is_affordable(0.0, now, profile, spent)
            ):
                break
            objects = (1.0 - LOWERING) * region.compile_cost
            part = objects / OBJECTS if spent else LOWERING * region.compile_cost
            region.kept += part if spent else 0.0
            spent += part
            now += 0.0 if has_idle_core else part
            if region.kept >= objects - 1e-9:
                policy.compiled(profile, spent, is_first=True)
                total = profile.measurements
                total.history = total.history._replace(compile_seconds=region.compile_cost)
                del waiting[number]
                chosen, spent = chosen[1:], 0.0
        ends.append(now)
    for profile in chosen[:1]:
        total = profile.measurements
        total.history = total.history._replace(abandoned=total.history.abandoned + 1)
    for number, region in enumerate(regions):
        still = number in waiting
        total = profiles[number].measurements
        region.history = total.measured() if still else total.history
    return ends


SECONDS = st.floats(1e-4, 0.1)
REGIONS = st.builds(
    lambda kernels, gain, price: Region(kernels, kernels * gain, price),
    SECONDS,
    st.floats(0.1, 1.0),
    st.floats(0.02, 5.0),
)


@given(st.lists(REGIONS, min_size=1, max_size=4), st.integers(1, 3000))
def test_one_core_is_never_behind_by_more_than_a_tenth(regions: list[Region], steps: int) -> None:
    by_kernels = STARTUP + steps * sum(region.kernels for region in regions)
    assert simulate(regions, steps)[-1] <= 1.1001 * by_kernels


@given(st.lists(REGIONS, min_size=1, max_size=4), st.integers(1, 3000))
@settings(max_examples=40)
def test_no_later_run_on_one_core_is_behind_by_more_than_its_share(
    regions: list[Region], steps: int
) -> None:
    """Compilation that earlier runs have paid for may add up to three tenths to a run."""
    by_kernels = STARTUP + steps * sum(region.kernels for region in regions)
    largest_part = LOWERING * max(region.compile_cost for region in regions)
    for _ in range(6):
        assert simulate(regions, steps)[-1] <= 1.3001 * by_kernels + largest_part


@given(st.lists(SECONDS, min_size=1, max_size=4), st.floats(0.02, 5.0), st.integers(1, 1000))
@settings(max_examples=30)
def test_regions_of_small_nodes_may_add_twice_as_much(
    seconds: list[float], price: float, steps: int
) -> None:
    regions = [Region(s, 0.3 * s, price, num_nodes=round(s / 4e-6)) for s in seconds]
    ends = simulate(regions, steps)
    by_kernels = [STARTUP + (step + 1) * sum(seconds) for step in range(steps)]
    assert all(end <= 1.1601 * kernels for end, kernels in zip(ends, by_kernels, strict=True))


def test_a_region_of_small_nodes_is_compiled_earlier() -> None:
    """The loops of an LSTM: half of the steps run by compiled code."""
    small, large = ([Region(0.010, 0.002, 0.3, num_nodes=n) for _ in range(3)] for n in (2640, 1))
    assert simulate(small, 300)[-1] < 0.8 * simulate(large, 300)[-1]


def test_the_budget_is_saved_for_the_largest_gain() -> None:
    """A cheap region of little gain does not delay the compile of a better one."""
    best, cheap = Region(0.030, 0.005, 0.6), Region(0.0030, 0.0028, 0.3)
    simulate([best, cheap], 300)
    assert best.history.compile_seconds is not None


def test_an_equal_region_is_cheap_once_one_is_compiled() -> None:
    x = wf.placeholder(wf.float32, [4])
    account = Compilation(TierUpPolicy())
    first, second = (RegionProfile(account, [wf.exp(x).op]) for _ in range(2))
    other = RegionProfile(account, [wf.tanh(x).op])
    price = second.estimate
    for waiting in (second, second, other):
        waiting.discount_equal(first)
    assert second.estimate == pytest.approx(0.1 * price)
    assert other.estimate == pytest.approx(price)


def test_a_long_program_on_one_core_is_compiled() -> None:
    regions = [Region(0.020, 0.005, 1.0), Region(0.010, 0.005, 0.3)]
    ends = simulate(regions, 2000)
    assert ends[-1] - ends[-2] == pytest.approx(0.010)
    assert ends[-1] < 0.45 * 2000 * 0.030


def test_an_idle_core_compiles_within_the_price() -> None:
    ends = simulate([Region(0.020, 0.005, 1.0)], 100, has_idle_core=True)
    slow = [after - before for before, after in pairwise(ends)]
    assert sum(step for step in slow if step > 0.006) < 1.0


@pytest.mark.parametrize(("price", "runs"), [(0.4, 2), (0.9, 5)])
def test_a_short_script_is_compiled_in_parts(price: float, runs: int) -> None:
    """No run takes three tenths longer, and after some runs everything is compiled."""
    region = Region(0.020, 0.005, price)
    last_steps = []
    for _ in range(runs + 1):
        ends = simulate([region], 75)  # 1.5 seconds by kernels, 2 in all
        last_steps.append(ends[-1] - ends[-2])
        assert ends[-1] <= 1.36 * 2.0
    assert last_steps[0] == pytest.approx(0.020)
    assert last_steps[-1] == pytest.approx(0.005)


def test_a_price_too_high_for_parts_is_not_paid() -> None:
    region = Region(0.020, 0.005, 2.0)
    for _ in range(6):
        assert simulate([region], 75)[-1] == pytest.approx(2.0)


def test_parts_that_lead_nowhere_end() -> None:
    region = Region(0.020, 0.005, 1.0, History(9, 675, 13.5, abandoned=8))
    assert simulate([region], 75)[-1] == pytest.approx(2.0)


def test_a_long_script_is_compiled_at_once_in_its_second_run() -> None:
    region = Region(0.020, 0.005, 3.0)
    simulate([region], 300)  # 6 seconds by kernels, of which a tenth does not pay for 3
    assert region.history.compile_seconds is None
    region.history = region.history._replace(kernel_seconds=12.0)
    ends = simulate([region], 600)
    assert ends[0] == pytest.approx(STARTUP + 0.020 + 3.0)


def test_code_that_was_slower_is_not_compiled_again() -> None:
    region = Region(0.02, 0.03, 0.1, History(1, 100, 10.0, 0.1, is_slower=True))
    ends = simulate([region], 200, has_idle_core=True)
    assert ends[-1] - ends[-2] == pytest.approx(0.02)


def test_a_region_whose_sizes_vary_waits_for_a_second_one() -> None:
    """The first compilation serves all sizes, unlike those of earlier processes."""
    account = Compilation(TierUpPolicy())
    node = wf.exp(wf.placeholder(wf.float32, [None])).op
    first = RegionProfile(account, [node])
    first.measurements.history = History(1, 100, 10.0, varies=True)
    assert account.policy.choose([first], 100.0, has_idle_core=True) == []
    RegionProfile(account, [node], measurements=first.measurements)
    assert account.policy.choose([first], 100.0, has_idle_core=True) == [first]
    assert first.measurements.measured().varies


def test_a_step_does_not_wait_for_a_paused_compilation() -> None:
    """Compiling continues when the program has run; if both waited, neither would end."""
    now = [0.0]
    account = Compilation(TierUpPolicy(), lambda: False, lambda: now[0])
    profile = RegionProfile(account, [wf.exp(wf.placeholder(wf.float32, [4])).op])
    profile.looked = True

    class Candidate:
        def waiting(self) -> list[RegionProfile]:
            return [] if profile.is_compiled else [profile]

        def compile(self, profile: RegionProfile) -> bool:
            profile.measurements.history = History()  # it does not pay any more
            may_pause()
            return True

    candidate: Any = Candidate()
    account.add(candidate)
    profile.measurements.history = History(1, 100, 1000.0)
    account.record_kernel_run(1.0)
    assert not profile.is_compiled
    now[0] = 1000.0
    wait_until(lambda: profile.is_compiled)


def test_repeated_nodes_cost_less_to_compile_than_different_ones() -> None:
    x = wf.placeholder(wf.float32, [4])
    y, repeated = x, []
    for _ in range(1000):
        y = wf.tanh(y)
        repeated.append(y.op)
    different = [(wf.placeholder(wf.float32, [size]) + 1.0).op for size in range(1000)]
    few, many = [
        RegionProfile(Compilation(TierUpPolicy()), nodes).estimate
        for nodes in (repeated, different)
    ]
    assert few < many / 5


def test_a_history_is_read_as_it_was_written() -> None:
    history = History(3, 120, 2.5, 0.75, is_slower=True, abandoned=2, varies=True)
    content = write_history(history, "step", 40)
    assert read_history(content) == history
    assert json.loads(content)["name"] == "step"


@pytest.mark.parametrize("content", [None, b"", b"[]", b'"x"', b"\xff", b'{"runs": []}', b"{"])
def test_a_damaged_history_is_empty(content: bytes | None) -> None:
    assert read_history(content) == History()


@given(st.binary(max_size=60))
def test_no_content_is_an_error(content: bytes) -> None:
    assert isinstance(read_history(content), History)


@pytest.mark.parametrize(
    ("idle", "used", "answer"), [(1.0, 1.0, True), (0.5, 1.0, False), (None, 0.0, False)]
)
def test_idle_cores_are_measured(idle: float | None, used: float, answer: bool) -> None:
    now = 0.0

    def idle_seconds() -> float | None:
        return None if idle is None else idle * now

    cores = IdleCores(lambda: now, lambda: used * now, idle_seconds)
    assert not cores()  # nothing was measured yet
    now = 1.0
    assert cores() == answer


PROGRAM = """
import logging, sys
import numpy as np
import weft as wf
from weft_exec.executor.native import background_compilation, region_profile

logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
account = background_compilation.compilation()
account._has_idle_core = lambda: False
region_profile._REGION_SECONDS = 1.5
x = wf.placeholder(wf.float32, [200_000])
y = wf.reduce_sum(wf.exp(-x) * 2.0 + 1.0)
feeds = {x: np.zeros(200_000, np.float32)}
with wf.Session() as session:
    while account.seen < float(sys.argv[1]) and not account._is_complete:
        session.run(y, feeds)
"""


def run_program(cache: Path, seconds: float) -> str:
    """Run a program until its kernels have taken so long or all is compiled; return its log."""
    own = {name: value for name, value in os.environ.items() if name != "WEFT_JIT"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(seconds)],
        env=own | {"WEFT_CACHE": str(cache)},
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    return done.stdout


def test_what_short_scripts_spend_in_kernels_adds_up(tmp_path: Path) -> None:
    """Code that costs 1.5 s is compiled when runs of 0.6 s add up to that."""
    logs = [run_program(tmp_path, 0.6) for _ in range(3)]
    assert [log for log in logs if "compiling" in log] == []
    (profile,) = tmp_path.glob("*.profile")
    written = profile.read_bytes()
    history = read_history(written[written.index(b'{"name"') :])
    assert history.processes == 3 and history.kernel_seconds >= 1.8
    log = run_program(tmp_path, 20.0)
    assert "compiling 1 region (Sum)" in log and "full speed after" in log
    assert "about 1.5 s" in log
    written = profile.read_bytes()
    assert 0.01 < (read_history(written[written.index(b'{"name"') :]).compile_seconds or 0.0) < 1.5


def test_the_user_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    account = Compilation(idle_cores=lambda: True)
    chosen: Any = [(None, RegionProfile(account, [wf.exp(wf.placeholder(wf.float32, [4])).op]))]
    with caplog.at_level(logging.INFO):
        account._announce(chosen, waits=False)
        account._announce(chosen, waits=False)
        account._log_completion()  # nothing was compiled
        account._num_compiled = 1
        account._log_completion()
        account._log_completion()
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    assert lines[0].startswith("compiling 1 region (Exp")


ENDING = """
import atexit, threading
import weft as wf
from weft_exec.executor.native.background_compilation import Compilation, _start_thread
from weft_exec.executor.native.region_profile import RegionProfile
from weft_graph.ir.compile_pauses import may_pause

class Candidate:
    def compile(self, profile):
        threading.main_thread().join()  # the program ends meanwhile
        may_pause()
        print("compiled")

account = Compilation(idle_cores=lambda: True)
profile = RegionProfile(account, [wf.exp(wf.placeholder(wf.float32, [4])).op])
atexit.register(lambda: print("abandoned", profile.history.abandoned))
_start_thread(account._compile, [(Candidate(), profile)])
"""


def test_a_compilation_ends_with_its_program() -> None:
    command = [sys.executable, "-c", ENDING]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    assert done.stdout.split() == ["abandoned", "1"]


def test_a_program_without_logging_shows_both_lines(tmp_path: Path) -> None:
    silent = PROGRAM.replace("logging.basicConfig(", "dict(")
    own = {name: value for name, value in os.environ.items() if name != "WEFT_JIT"}
    command = [sys.executable, "-c", silent.replace("= 1.5", "= 0.1"), "20"]
    done = subprocess.run(
        command,
        env=own | {"WEFT_CACHE": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    assert [line.partition(" ")[0] for line in done.stderr.splitlines()] == ["compiling", "full"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes are forked")
def test_a_forked_process_compiles_what_its_parent_was_compiling() -> None:
    account = Compilation(idle_cores=lambda: True)
    account._busy = True
    account._lock.acquire()  # by a thread that the child does not have
    account.after_fork()
    assert not account._busy
    account.record_savings(0.0)

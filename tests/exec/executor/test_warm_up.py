"""First runs of a step without compiled regions, and the plan that replaces them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_compiler import generator
from weft_exec.executor.native import warm_up
from weft_exec.executor.native.warm_up import WarmUp
from weft_graph.ir.script_record import ScriptRecord

SECONDS = 0.04
"""What each run takes by the clock of these tests; plans take nothing by it."""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The default mode, with a clock that each run advances."""
    now = [0.0]

    def tick() -> float:
        now[0] += SECONDS
        return now[0]

    monkeypatch.setenv("WEFT_JIT", "")
    monkeypatch.setattr(warm_up, "_clock", tick)
    monkeypatch.setattr(warm_up, "_SOURCE_SECONDS", warm_up._IMPORT_SECONDS)
    monkeypatch.setattr("weft_exec.executor.derive.process_time", lambda: 0.0)
    monkeypatch.setattr(WarmUp, "total_seconds", 0.0)
    monkeypatch.setattr(WarmUp, "chosen_seconds", 0.0)
    monkeypatch.setattr(WarmUp, "_num_over", 0)
    return now


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of nodes of each plan for which regions were chosen."""
    from weft_exec.executor import derive

    counts: list[int] = []
    compile_regions = derive.compile_regions

    def note(step: Any, nodes: Any, *rest: Any) -> Any:
        counts.append(len(nodes))
        return compile_regions(step, nodes, *rest)

    monkeypatch.setattr(derive, "compile_regions", note)
    return counts


def _stepping() -> tuple[wf.Session, Callable[[], Any]]:
    x = wf.placeholder(wf.float32, [8])
    y = wf.tanh(x) * 2.0
    session = wf.Session()
    return session, lambda: session.run(y, {x: np.ones(8)})


def test_regions_are_chosen_once_they_delay_the_process_little(
    clock: list[float], chosen: list[int]
) -> None:
    _, step = _stepping()
    enough = warm_up._IMPORT_SECONDS / warm_up.OVERHEAD
    while clock[0] < enough - 2 * SECONDS:
        step()
    assert not chosen
    for _ in range(3):
        step()
    assert len(chosen) == 1
    assert clock[0] == pytest.approx(enough, abs=4 * SECONDS)


def test_a_run_has_to_cost_as_much_as_its_plan(
    clock: list[float], chosen: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter([0.0, 10 * SECONDS])
    monkeypatch.setattr("weft_exec.executor.derive.process_time", lambda: next(times))
    clock[0] = 100.0
    _, step = _stepping()
    for _ in range(11):
        step()
    assert not chosen
    step()
    assert len(chosen) == 1


def test_a_script_that_had_code_chooses_regions_after_one_run(
    clock: list[float], chosen: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm_up, "script_record", lambda: ScriptRecord(2.0, has_code=True))
    _, step = _stepping()
    step()
    assert not chosen
    step()
    assert len(chosen) == 1


@pytest.mark.parametrize(("has_bytecode", "seconds"), [(True, 0.1), (False, 0.3)])
def test_importing_without_bytecode_costs_more(
    has_bytecode: bool, seconds: float, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
    module = Path(cache_from_source(generator.__file__))
    if has_bytecode:
        module.parent.mkdir(parents=True)
        module.touch()
    warm_up._import_seconds.cache_clear()
    assert warm_up._import_seconds() == seconds
    warm_up._import_seconds.cache_clear()


@pytest.mark.parametrize("said", ["on", "now"])
def test_who_asks_for_compiled_steps_has_them_at_once(
    said: str, chosen: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_JIT", said)
    _, step = _stepping()
    step()
    assert len(chosen) == 1


def test_a_callable_and_a_function_of_a_dataset_are_replaced(
    clock: list[float], chosen: list[int]
) -> None:
    numbers = wf.data.Dataset.range(100).map(lambda i: wf.tanh(wf.cast(i, wf.float32)))
    following = wf.data.make_one_shot_iterator(numbers).get_next()
    with wf.Session() as session:
        call = session.make_callable(following)
        values = [call() for _ in range(100)]
    np.testing.assert_allclose(values, np.tanh(np.arange(100)), rtol=1e-6)
    assert len(chosen) >= 2


def test_random_numbers_go_on_in_the_new_plan(
    clock: list[float], chosen: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def draws() -> list[Any]:
        with wf.Graph().as_default(), wf.Session() as session:
            numbers = wf.random_uniform([3], seed=7)
            return [session.run(numbers) for _ in range(40)]

    found = draws()
    assert len(chosen) == 1
    monkeypatch.setenv("WEFT_JIT", "off")
    np.testing.assert_array_equal(found, draws())


def test_explaining_a_step_chooses_regions(clock: list[float]) -> None:
    x = wf.placeholder(wf.float32, [8])
    y = wf.tanh(x) * 2.0
    with wf.Session() as session:
        session.run(y, {x: np.ones(8)})
        assert session.explain(y, feed_dict={x: np.ones(8)}).functions


SHORT = """
import sys
import numpy as np
import weft as wf

x = wf.placeholder(wf.float32, [None, 4])
loss = wf.reduce_sum(wf.layers.dense(x, 3) ** 2)
train = wf.train.AdamOptimizer().minimize(loss)
with wf.Session() as session:
    session.run(wf.global_variables_initializer())
    for _ in range(10):
        session.run(train, {x: np.ones((2, 4))})
print([name for name in sys.modules if name.startswith(("weft_compiler", "llvmlite"))])
"""


def test_a_short_script_does_not_import_the_compiler() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SHORT], capture_output=True, text=True, check=True, timeout=120,
        env={**os.environ, "WEFT_JIT": ""},
    )  # fmt: skip
    assert done.stdout.strip() == "[]"

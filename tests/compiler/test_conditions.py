"""Checks of indices: once for the same tensor, and in blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_compiler.ir.program import Assign, Check, Program, walk
from weft_compiler.lower.region import lower
from weft_graph.ir.code_generators import RegionRequest
from weft_tensor import errors

ROWS, COUNT = 50, 3000


@pytest.fixture(autouse=True)
def _compiled_graph(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("WEFT_JIT", "now")
    with wf.Graph().as_default():
        yield


def program_of(outputs: list[Any], inputs: list[Any]) -> Program:
    """Return the program of everything between inputs and outputs."""
    nodes = wf.get_default_graph().get_operations()
    members = [node for node in nodes if node.inputs]
    constants = [node.outputs[0] for node in nodes if node.type == "Const"]
    given = [*inputs, *constants]
    shapes = [tuple(size or 0 for size in source.dims or ()) for source in given]
    return lower(RegionRequest(members, given, outputs, shapes))


def test_equal_and_implied_conditions_are_checked_once() -> None:
    x, source, target = (
        wf.placeholder(wf.float32, [ROWS, 4]),
        wf.placeholder(wf.int32, [COUNT]),
        wf.placeholder(wf.int32, [COUNT]),
    )
    first = wf.math.unsorted_segment_sum(wf.gather(x, source), target, ROWS)
    second = wf.math.unsorted_segment_sum(wf.gather(first, source), target, ROWS)
    back = wf.math.unsorted_segment_sum(wf.gather(second, wf.maximum(target, 0)), source, ROWS)
    program = program_of([back], [x, source, target])
    checks = [each for each in walk(program.body) if isinstance(each, Check)]
    assert [check.message for check in checks] == [
        f"an index in [0, {ROWS}) was required",
        f"segments below {ROWS} were required",
    ]


def test_a_stronger_condition_adds_what_is_missing() -> None:
    x, ids = wf.placeholder(wf.float32, [COUNT, 4]), wf.placeholder(wf.int32, [COUNT])
    sums = wf.math.unsorted_segment_sum(x, ids, ROWS)
    program = program_of([wf.gather(sums, ids)], [x, ids])
    combined = [each for each in walk(program.body) if isinstance(each, Assign)]
    assert len(combined) == 2  # below the number of rows, then from 0 on
    assert len([each for each in walk(program.body) if isinstance(each, Check)]) == 2


@pytest.mark.parametrize("shape", [(7,), (COUNT,), (1, COUNT), (3, 500, 2), (1025,), (0,)])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_each_wrong_index_is_found(shape: tuple[int, ...], dtype: Any) -> None:
    x = wf.placeholder(wf.float32, [ROWS, 2])
    ids = wf.placeholder(wf.as_dtype(dtype), shape)
    y = wf.gather(x, ids) * 2.0 + 1.0
    rows = np.random.RandomState(0).rand(ROWS, 2).astype(np.float32)
    places = np.random.RandomState(1).randint(0, ROWS, shape).astype(dtype)
    with wf.Session() as session:
        np.testing.assert_allclose(session.run(y, {x: rows, ids: places}), rows[places] * 2 + 1)
        for position in {0, places.size // 2, places.size - 1} if places.size else ():
            for wrong in (-1, ROWS):
                changed = places.copy()
                changed.reshape(-1)[position] = wrong
                with pytest.raises(errors.InvalidArgumentError, match=str(wrong)):
                    session.run(y, {x: rows, ids: changed})


def test_a_branch_that_does_not_run_checks_nothing_for_others() -> None:
    x, ids = wf.placeholder(wf.float32, [ROWS]), wf.placeholder(wf.int32, [COUNT])
    runs = wf.placeholder(wf.bool, [])
    inside = wf.cond(runs, lambda: wf.reduce_sum(wf.gather(x, ids)), lambda: wf.constant(0.0))
    y = inside + wf.reduce_sum(wf.gather(x * 2.0, ids))
    rows, places = np.ones(ROWS, np.float32), np.zeros(COUNT, np.int32)
    with wf.Session() as session:
        for value in (False, True):
            assert session.run(y, {x: rows, ids: places, runs: value}) == (2 + value) * COUNT
            with pytest.raises(errors.InvalidArgumentError, match="-1"):
                session.run(y, {x: rows, ids: places - 1, runs: value})

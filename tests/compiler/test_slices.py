"""Slices that begin where a step computes: one program serves all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft as wf
from weft import errors
from weft_compiler.generator import LlvmGenerator, RegionCompiler

X = np.arange(60, dtype=np.float32).reshape(5, 4, 3)
SIZE = [2, 3, 3]


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Compile at once, and note the name of each program."""
    names: list[str] = []
    generate = RegionCompiler.generate

    def noting(self: LlvmGenerator, wanted: Any, *rest: Any) -> Any:
        names.append(wanted.outputs[0].name)
        return generate(self, wanted, *rest)

    monkeypatch.setenv("WEFT_JIT", "now")
    monkeypatch.setattr(RegionCompiler, "generate", noting)
    return names


def _program(size: Any, begin_dtype: Any = wf.int32) -> tuple[Any, Any, Any]:
    x, begin = wf.placeholder(wf.float32, [5, 4, 3]), wf.placeholder(begin_dtype, [3])
    return x, begin, wf.reverse(wf.slice(x, begin, size), [1]) * 2.0 + 1.0


@pytest.mark.parametrize("dtype", [wf.int32, wf.int64])
def test_one_program_serves_all_begins(compiled: list[str], dtype: Any) -> None:
    size = wf.constant(SIZE, dtype)
    x, begin, y = _program(size, dtype)
    with wf.Session() as session:
        for row in range(4):
            for column in range(2):
                found = session.run(y, {x: X, begin: [row, column, 0]})
                box = X[row : row + 2, column : column + 3]
                np.testing.assert_array_equal(found, box[:, ::-1] * 2 + 1)
    assert len(compiled) == 1


@pytest.mark.parametrize("begin", [[4, 0, 0], [0, 2, 0], [0, 0, 1], [-1, 0, 0]])
def test_a_box_outside_is_refused(compiled: list[str], begin: list[int]) -> None:
    x, place, y = _program(SIZE)
    with wf.Session() as session:
        session.run(y, {x: X, place: [0, 0, 0]})
        with pytest.raises(errors.InvalidArgumentError):
            session.run(y, {x: X, place: begin})
        found = session.run(y, {x: X, place: [3, 1, 0]})
    np.testing.assert_array_equal(found, X[3:, 1:][:, ::-1] * 2 + 1)
    assert len(compiled) == 1


def test_a_box_to_the_end_is_compiled_for_each_begin(compiled: list[str]) -> None:
    x, begin, y = _program([-1, 3, 3])
    with wf.Session() as session:
        for row in (1, 3):
            found = session.run(y, {x: X, begin: [row, 0, 0]})
            np.testing.assert_array_equal(found, X[row:, :3, :][:, ::-1] * 2 + 1)
    assert len(compiled) == 2

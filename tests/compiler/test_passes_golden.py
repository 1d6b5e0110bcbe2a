"""Passes produce the golden files; `hatch run golden:passes` updates them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from weft_testing.passes_golden import (
    FOLDER,
    PASSES,
    VECTOR_BYTES,
    cases,
    golden_file,
    golden_text,
)

from weft_compiler.interpreter import interpret
from weft_compiler.ir.parser import parse
from weft_compiler.ir.program import Program
from weft_tensor import errors

CASES = list(cases())
MAX_INTERPRETED = 100_000
"""Elements of buffers up to which a program is interpreted too."""


def name_of(case: Path) -> str:
    return str(case.relative_to(FOLDER)).removesuffix(".before.txt")


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_a_pass_rewrites_as_its_golden_file_says(case: Path) -> None:
    assert golden_text(case) == golden_file(case).read_text(encoding="utf-8")


def test_every_pass_has_cases_and_no_file_is_left_over() -> None:
    assert {case.parent.name for case in CASES} == PASSES.keys()
    files = {path for case in CASES for path in (case, golden_file(case))}
    assert {path for path in FOLDER.rglob("*") if path.is_file()} == files


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_a_pass_says_whether_it_changed_something(case: Path) -> None:
    program = parse(case.read_text(encoding="utf-8"))
    result = PASSES[case.parent.name](program, VECTOR_BYTES)
    assert result.modified == (result.program is not program)
    assert result.modified == (str(result.program) != str(program))
    again = PASSES[case.parent.name](program, VECTOR_BYTES)
    assert str(again.program) == str(result.program), "it depends on something else"


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_a_pass_keeps_the_meaning_of_a_program(case: Path) -> None:
    before, after = (parse(path.read_text(encoding="utf-8")) for path in (case, golden_file(case)))
    if sum(buffer.size for buffer in before.buffers.values()) > MAX_INTERPRETED:
        pytest.skip("it takes too long to interpret")
    expected, actual = results(before), results(after)
    assert isinstance(actual, str) == isinstance(expected, str)
    if isinstance(expected, str):
        assert actual == expected
    else:
        for first, second in zip(expected, actual, strict=True):
            np.testing.assert_allclose(second, first, rtol=1e-5)


def results(program: Program) -> Sequence[np.ndarray] | str:
    """Return the outputs of a program for some inputs, or the message of the check that fails."""
    random = np.random.default_rng(1)
    updated = [each for each in program.outputs if each.name in program.updated]
    arrays = [
        (random.random(each.shape) + 0.5).astype(each.dtype.numpy)
        for each in (*program.inputs, *updated)
    ]
    try:
        return interpret(program, *arrays)
    except errors.InvalidArgumentError as error:
        return str(error)

"""ONNX's own tests of backends: a seeded tenth here, all of them in the long run."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from weft_testing.loading import load
from weft_testing.onnx_not_passed import NOT_PASSED
from weft_testing.parts import Parts
from weft_testing.workspace import ROOT

onnx = pytest.importorskip("onnx")

from onnx import numpy_helper  # noqa: E402
from onnx.backend.test.loader import load_model_tests  # noqa: E402
from onnx.backend.test.runner import Runner  # noqa: E402

import weft as wf  # noqa: E402

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")
PIECES = 8
page = load(ROOT / "docs" / "onnx_backend_page.py")


@cache
def cases() -> list[Any]:
    """All tests of the installed version."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of NumPy, where ONNX makes the expected values
        return [case for kind in KINDS for case in load_model_tests(kind=kind)]


def _value(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def _read(path: Path, kind: Any) -> Any:
    data = path.read_bytes()
    if kind.HasField("sequence_type"):
        return numpy_helper.to_list(onnx.SequenceProto.FromString(data))
    if kind.HasField("optional_type"):
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
    return numpy_helper.to_array(onnx.TensorProto.FromString(data))


def _data(case: Any) -> Iterator[tuple[list[Any], list[Any]]]:
    """Inputs and expected outputs."""
    if case.data_sets is not None:
        for inputs, outputs in case.data_sets:
            yield [_value(each) for each in inputs], [_value(each) for each in outputs]
        return
    graph = onnx.load(Path(case.model_dir) / "model.onnx").graph
    for folder in sorted(Path(case.model_dir).glob("test_data_set_*")):
        count = len(list(folder.glob("input_*.pb")))
        yield (
            [_read(folder / f"input_{i}.pb", graph.input[i].type) for i in range(count)],
            [_read(folder / f"output_{i}.pb", o.type) for i, o in enumerate(graph.output)],
        )


def failure(case: Any) -> Exception | None:
    """What is wrong with a test, None where it passes."""
    try:
        _run(case)
    except Exception as error:  # because which ones fail is what is asked
        return error
    return None


def _run(case: Any) -> None:
    model = case.model if case.model is not None else Path(case.model_dir) / "model.onnx"
    prepared = wf.onnx.Backend.prepare(model)
    with prepared.session:
        for inputs, outputs in _data(case):
            found = prepared.run(inputs)
            Runner.assert_similar_outputs(outputs, found, case.rtol, case.atol)


@pytest.mark.parametrize("piece", range(PIECES))
def test_a_tenth_of_onnx_tests(piece: int) -> None:
    chosen = [case for case in cases() if case.name not in NOT_PASSED]
    chosen = random.Random(28).sample(chosen, len(chosen) // 10)
    with Parts() as parts:
        for case in chosen[piece::PIECES]:
            with parts.part(case.name):
                _run(case)


@pytest.mark.long
def test_all_of_onnx_tests() -> None:
    failed = {case.name for case in cases() if failure(case) is not None}
    assert sorted(failed) == sorted(NOT_PASSED)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_all_of_onnx_tests_compiled() -> None:
    pytest.importorskip("weft_compiler")
    assert sorted(page.compiled_failures()) == sorted(NOT_PASSED)


def test_the_page_says_which_do_not_pass() -> None:
    made = page.not_passed(NOT_PASSED)
    assert made in page.PAGE.read_text("utf-8"), "run python docs/onnx_backend_page.py"

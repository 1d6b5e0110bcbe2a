"""ONNX's own tests of backends: a seeded tenth here, all of them in the long run."""

from __future__ import annotations

import random
import re
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
    """Return the failure of a test, or None if it passes."""
    try:
        _run(case)
    except Exception as error:  # because which ones fail is what is asked
        return error
    return None


def _run(case: Any, model: Any = None) -> None:
    """Run a test, or its data with another model."""
    prepared = wf.onnx.Backend.prepare(_model(case) if model is None else model)
    with prepared.session:
        for inputs, outputs in _data(case):
            found = prepared.run(inputs)
            Runner.assert_similar_outputs(outputs, found, case.rtol, case.atol)


def _model(case: Any) -> Any:
    return case.model if case.model is not None else Path(case.model_dir) / "model.onnx"


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


REFUSALS = {
    "ranked": """AffineGrid CausalConvWithState Col2Im Conv ConvInteger ConvTranspose DeformConv
        QLinearConv Scan Split Unique""".split(),  # noqa: SIM905  # a table to be read
    "unranked": """Add AffineGrid ArgMax ArgMin ArrayFeatureExtractor BatchNormalization
        CausalConvWithState Col2Im Compress Conv ConvInteger ConvTranspose DFT DeformConv
        DequantizeLinear Einsum Flatten GatherElements GlobalAveragePool GlobalMaxPool GridSample
        Hardmax InstanceNormalization LRN LayerNormalization LogSoftmax LpNormalization
        MatMulInteger PRelu Pad QLinearConv QLinearMatMul QuantizeLinear Resize RotaryEmbedding Scan
        Scatter ScatterElements Slice Softmax Split StringNormalizer TensorScatter TfIdfVectorizer
        TopK Trilu Unique Upsample""".split(),  # noqa: SIM905
}
"""Ops that may refuse inputs of unknown sizes, and of unknown ranks."""
REFUSAL = re.compile(r"ONNX node '[^']+' \((\w+)\): .*known (rank|shape|size)", re.DOTALL)


def _open(kind: Any, level: str) -> None:
    """Remove the sizes of a type, and its rank where the level is "unranked"."""
    if kind.HasField("sequence_type"):
        _open(kind.sequence_type.elem_type, level)
    elif kind.HasField("optional_type"):
        _open(kind.optional_type.elem_type, level)
    elif level == "unranked":
        kind.tensor_type.ClearField("shape")
    else:
        for size in kind.tensor_type.shape.dim:
            size.Clear()


def _open_model(case: Any, level: str, chosen: int | None) -> Any:
    """The model of a test with one of its inputs open, or all of them."""
    source = _model(case)
    model = onnx.ModelProto()
    model.CopyFrom(onnx.load(source) if isinstance(source, Path) else source)
    weights = {each.name for each in model.graph.initializer}
    for index, each in enumerate(model.graph.input):
        if each.name not in weights and chosen in (None, index):
            _open(each.type, level)
    del model.graph.value_info[:]
    for each in model.graph.output:
        _open(each.type, "unranked")
    return model


def _run_open(case: Any, level: str, chosen: int | None = None) -> None:
    """Run a test with open inputs: the result is that of known shapes, or a named refusal."""
    try:
        _run(case, _open_model(case, level, chosen))
    except wf.errors.UnimplementedError as error:
        refused = REFUSAL.search(str(error))
        assert refused, f"it does not name the node, the op and what is unknown: {error}"
        assert refused[1] in REFUSALS[level], f"{refused[1]} is not one that may be refused"


def _one_of_each_form() -> list[Any]:
    """A test for each op, with each set of inputs and attributes that it is called with."""
    chosen = {}
    for case in cases():
        if case.name not in NOT_PASSED and case.kind == "node" and len(case.model.graph.node) == 1:
            node = case.model.graph.node[0]
            named = tuple(sorted(each.name for each in node.attribute))
            chosen[node.op_type, tuple(map(bool, node.input)), named] = case
    return list(chosen.values())


@pytest.mark.parametrize("level", REFUSALS)
@pytest.mark.parametrize("piece", range(2))
def test_each_op_with_open_inputs(level: str, piece: int) -> None:
    with Parts() as parts:
        for case in _one_of_each_form()[piece::2]:
            with parts.part(case.name):
                _run_open(case, level)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("level", REFUSALS)
def test_all_of_onnx_tests_with_open_inputs(level: str) -> None:
    with Parts() as parts:
        for case in cases():
            if case.name in NOT_PASSED:
                continue
            count = len(case.model.graph.input) if case.kind == "node" else 0
            for chosen in (None, *range(count if count > 1 else 0)):
                with parts.part(f"{case.name} {chosen}"):
                    _run_open(case, level, chosen)


def test_the_page_says_which_do_not_pass() -> None:
    made = page.not_passed(NOT_PASSED)
    assert made in page.PAGE.read_text("utf-8"), "run python docs/onnx_backend_page.py"

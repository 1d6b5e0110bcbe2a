"""Rows of the conformance table go to ONNX and back: three answers agree.

The answers are those of weft on the graph, of ONNX's reference evaluator on the exported model, and
of weft on that model imported again; where it is installed, ONNX Runtime gives a fourth one.
"""

from __future__ import annotations

from typing import Any
from zlib import crc32

import numpy as np
import pytest
from weft_testing.case_graph import CaseGraph
from weft_testing.cases import TOLERANCE, Case, load_cases

pytest.importorskip("onnx")

from weft_testing.onnx_evaluators import REFERENCE, RUNTIME, answers
from weft_testing.parts import Parts

import weft as wf
from weft_io.onnx.registry import export_rule
from weft_tensor import errors

TYPES = ("float32", "int32", "int64", "bool", "", "float64")
"""The element types to go by, the first that a case has."""

ONE_RESULT = ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
"""Ops whose other results are for training."""

REFUSED = {
    "AvgPool-depth": "cannot pool over the batch",
    "Cast-complex64": "gives no complex64",
    "Cast-complex128": "gives no complex128",
    "Cast-qint16": "no element type qint16",
    "Cast-quint16": "no element type quint16",
    "FakeQuantWithMinMaxArgs-few": "only num_bits=8",
    "FakeQuantWithMinMaxArgs-narrow": "only num_bits=8",
    "FakeQuantWithMinMaxVars": "must be a constant",
    "FakeQuantWithMinMaxVars-narrow": "must be a constant",
    "FakeQuantWithMinMaxVars-nothing": "must be a constant",
    "FusedBatchNorm-first-training": "only inference can be exported",
    "FusedBatchNorm-last-training": "only inference can be exported",
    "FusedBatchNormV2-first-training": "only inference can be exported",
    "FusedBatchNormV2-last-training": "only inference can be exported",
    "FusedBatchNormV3-first-training": "only inference can be exported",
    "FusedBatchNormV3-last-training": "only inference can be exported",
    "GatherNd-[[], []]": "at least one element",
    "GatherV2-batch1at-1": "after the batch axes",
    "GatherV2-batch1at1": "after the batch axes",
    "GatherV2-batch1at2": "after the batch axes",
    "Inv-int": "takes no int32",
    "LeftShift": "takes no int32",
    "LeftShift-scalars": "takes no int32",
    "MaxPool-depth": "cannot pool over the batch",
    "MaxPool-integers": "takes no int32",
    "MirrorPad-SYMMETRIC[[0, 0], [4, 4], [0, 2]]": "REFLECT",
    "MirrorPad-SYMMETRIC[[3, 1], [0, 4], [2, 2]]": "REFLECT",
    "Reciprocal-int": "takes no int32",
    "ReverseSequence-1by2": "only axes 0 and 1",
    "ReverseSequence-2by0": "only axes 0 and 1",
    "RightShift": "takes no int32",
    "RightShift-negative": "takes no int32",
    "Where-()": "ONNX cannot return the positions",
}

DIFFERS = {
    REFERENCE: {
        "LRN-1-0.75": "it counts as many channels as there are examples",
        "LRN-2-0.5": "it counts as many channels as there are examples",
        "LRN-9-0.6": "it counts as many channels as there are examples",
        "MaxPool-large": "it makes another shape where the window exceeds the image",
    },
    RUNTIME: {
        "Cast-bfloat16": "its arrays have no such type",
        "Max-nan": "it leaves out what is no number",
        "Mean-empty": "it takes 0 for the mean of nothing",
    },
}
"""Cases of which an evaluator makes something else than weft and the other one."""

LOOSE = {
    "FusedBatchNormV2-first-inference": 1e-8,
    "FusedBatchNormV2-last-inference": 1e-8,
    "FusedBatchNormV3-first-inference": 1e-8,
    "FusedBatchNormV3-last-inference": 1e-8,
    "ResizeBilinear-(70, 9)(3, 50) half": 1e-4,
}
"""Epsilon is of float32 in ONNX; the reference has positions of float64."""

SPECIAL = {*REFUSED, *DIFFERS[REFERENCE], *DIFFERS[RUNTIME], *LOOSE}


def cases() -> list[Any]:
    found = []
    for family in load_cases().values():
        for case in family:
            if export_rule(case.op) is not None and _is_numeric(case):
                rare = crc32(case.name.encode()) % 3 and case.name not in SPECIAL
                marks = [pytest.mark.long] if rare else []
                found.append(pytest.param(case, id=case.name, marks=marks))
    return found


def narrowed(case: Case) -> Case:
    """The case with one element type."""
    dtype = next(each for each in TYPES if each in case.dtypes)
    one = object.__new__(Case)
    one.__dict__.update(case.__dict__, dtypes=(dtype,))
    return one


def _is_numeric(case: Case) -> bool:
    """Return True without strings, which are bytes in weft and text in ONNX."""
    return case.op != "IdentityN" and bool(set(TYPES) & set(case.dtypes))


@pytest.mark.parametrize("case", cases())
def test_three_answers_agree(case: Case) -> None:
    made = CaseGraph(narrowed(case))
    fetches = made.nodes[0].outputs[: 1 if case.op in ONE_RESULT else None]
    with wf.Session(graph=made.graph) as session:
        feeds = {f"x{i}": x for i, x in enumerate(made.feeds)}
        results = {f"y{i}": y for i, y in enumerate(fetches)}
        if case.name in REFUSED:
            with pytest.raises(errors.UnimplementedError, match=REFUSED[case.name]):
                wf.onnx.export(results, feeds, session)
            return
        model = wf.onnx.export(results, feeds, session)
        expected = session.run(fetches, made.feeds)
    arrays = {f"x{i}": a for i, a in enumerate(made.feeds.values())}
    with wf.Graph().as_default(), wf.Session() as session:
        back = wf.onnx.import_model(model)
        again = session.run(
            list(back.outputs.values()), {back.inputs[name]: a for name, a in arrays.items()}
        )
    agree(case, expected, again)
    without = [who for who, cases in DIFFERS.items() if case.name in cases]
    for answer in answers(model, arrays, without):
        agree(case, expected, answer)


@pytest.mark.parametrize("opset", [7, 9, 10, 11, 12, 13, 16, 26])
@pytest.mark.parametrize("all_cases", [False, pytest.param(True, marks=pytest.mark.long)])
def test_other_opsets_say_the_same_or_refuse(opset: int, all_cases: bool) -> None:
    written = 0
    with Parts() as parts:
        for case in [each.values[0] for each in cases()]:
            if case.name in SPECIAL or not (
                all_cases or crc32(case.name.encode()) % 20 == opset % 5
            ):
                continue
            with parts.part(case.name):
                written += _agrees_at(opset, case)
    assert written


def _agrees_at(opset: int, case: Case) -> bool:
    """Return True if a case can be exported at an opset; then also run it."""
    made = CaseGraph(narrowed(case))
    feeds = {f"x{i}": x for i, x in enumerate(made.feeds)}
    arrays = {f"x{i}": a for i, a in enumerate(made.feeds.values())}
    fetches = list(made.nodes[0].outputs[: 1 if case.op in ONE_RESULT else None])
    with wf.Session(graph=made.graph) as session:
        try:
            results = {f"y{i}": y for i, y in enumerate(fetches)}
            model = wf.onnx.export(results, feeds, session, opset=opset)
        except errors.UnimplementedError:
            return False
        expected = session.run(fetches, made.feeds)
    agree(case, expected, wf.onnx.Backend.run_model(model, arrays))
    # In versions of training, which are those before 14, the evaluator does not see its absence.
    without = [REFERENCE] if opset < 14 and case.op in ONE_RESULT else []
    for answer in answers(model, arrays, without):
        agree(case, expected, answer)
    return True


def agree(case: Case, expected: Any, found: Any) -> None:
    for y, other in zip(expected, found, strict=True):
        rtol, atol = TOLERANCE.get(str(y.dtype), (0, 0))
        loose = LOOSE.get(case.name, 0)
        assert np.asarray(other).dtype == y.dtype
        np.testing.assert_allclose(other, y, max(2 * rtol, loose), max(2 * atol, loose))

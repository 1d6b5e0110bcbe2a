"""The conformance table through the stand-in: every kernel of GPUs has the values of the CPU's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from cupy_standin import Machine, installed
from cupy_standin.rawkernel import compiler
from weft_testing.cases import Case, load_cases
from weft_testing.devices import build, compare, pin, unfolded

import weft as wf
from weft_exec.gpu import residency
from weft_exec.kernels.registry import registered_kernels

TOLERANCE = {
    "float16": (4e-3, 4e-3),
    "float32": (2e-5, 2e-5),
    "float64": (1e-9, 1e-9),
    "complex64": (2e-5, 2e-5),
    "complex128": (1e-9, 1e-9),
}


@pytest.fixture(scope="module", autouse=True)
def standin() -> Iterator[Machine]:
    if compiler() is None:
        pytest.skip("no C compiler for the stand-in's kernels")
    with installed() as found:
        with wf.Session():
            pass  # the first session registers the kernels
        yield found


def _rows() -> list[Any]:
    return [
        pytest.param(case, id=f"{family}-{case.name}")
        for family, cases in load_cases().items()
        for case in cases
    ]


@pytest.mark.parametrize("staying", [residency.STAYING_BYTES, -1], ids=["", "all-there"])
@pytest.mark.parametrize("case", _rows())
def test_an_op_has_the_values_of_the_cpu(
    case: Case, staying: int, standin: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, made = build(case)
    with wf.Session(graph=graph, config=wf.ConfigProto(device_count={"GPU": 0})) as session:
        wanted = session.run(made.fetches, made.feeds)
    if staying < 0 and len(case.op_def.inputs) < 2 and "int32" not in case.dtypes:
        return  # nothing of the case would be elsewhere than in the other run
    monkeypatch.setattr(residency, "STAYING_BYTES", staying)
    graph, made = build(case)
    pinned = pin(graph, "GPU")
    if not any(node in made.nodes for node in pinned):
        return  # of the host alone: strings, functions, and what CuPy has nothing for
    with wf.Session(graph=graph, config=unfolded()) as session:
        results = session.run(made.fetches, made.feeds)
    for output, got, want in zip(made.fetches, results, wanted, strict=True):
        compare(case, output, got, want, TOLERANCE)


def test_the_families_that_gpus_are_for_run_there() -> None:
    own = {op for op, device in registered_kernels() if device == "GPU"}
    assert len(own) > 300
    assert {"MatMul", "Conv2D", "FusedBatchNormGradV3", "MaxPoolGrad", "ApplyAdam", "GatherV2",
            "RandomStandardNormal", "ResourceScatterAdd", "Cholesky"} <= own  # fmt: skip
    assert not {"StringJoin", "PyFunc", "If", "SaveV2", "MutexV2"} & own

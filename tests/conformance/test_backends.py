"""Every case on every backend: the values of the CPU's kernels, run node by node."""

from __future__ import annotations

from typing import Any

import pytest
from weft_testing.backends import BACKENDS, Backend, Devices, reference
from weft_testing.case_graph import CaseGraph
from weft_testing.cases import Case, load_cases

import weft as wf
from weft_exec.kernels.registry import find_kernel, registered_kernels


def _rows() -> list[Any]:
    """The backends that compute something of a case, for each case."""
    rows = [
        pytest.param(
            case,
            backend,
            id=f"{family}-{case.name}-{backend.name}",
            marks=backend.marks_of(case),
        )
        for family, cases in load_cases().items()
        for case in cases
        for backend in _taking(case)
    ]
    absent = [(backend, why) for backend in BACKENDS if (why := backend.missing()) is not None]
    return rows + [
        pytest.param(None, backend, id=backend.name, marks=[*backend.marks, pytest.mark.skip(why)])
        for backend, why in absent
    ]


def _taking(case: Case) -> list[Backend]:
    ready = [backend for backend in BACKENDS if backend.missing() is None]
    try:
        made = CaseGraph(case)
    except Exception:  # because the items of the case then fail by themselves
        return ready
    return [backend for backend in ready if backend.takes(made)]


ROWS = _rows()


@pytest.mark.parametrize(("case", "backend"), ROWS)
def test_case(case: Case, backend: Backend) -> None:
    made, wanted = reference(case)
    with backend.opened():
        results = backend.run(made)
    compared = 0
    for output, got, want in zip(made.fetches, results, wanted, strict=True):
        if got is not None:
            backend.compare(case, output, got, want)
            compared += 1
    assert compared or not made.fetches


def test_the_families_that_gpus_are_for_run_there() -> None:
    own = _ops_of("standin")
    assert len(own) > 300
    assert {"MatMul", "Conv2D", "FusedBatchNormGradV3", "MaxPoolGrad", "ApplyAdam", "GatherV2",
            "RandomStandardNormal", "ResourceScatterAdd", "Cholesky"} <= own  # fmt: skip
    assert not {"StringJoin", "PyFunc", "If", "SaveV2", "MutexV2"} & own


def test_most_ops_run_on_the_accelerator() -> None:
    own = _ops_of("accelerator")
    assert len(own) > 350
    assert {"StrangerHypot", "MatMul", "Conv2D", "ApplyAdam", "VarHandleOp"} <= own
    stays = {"StringJoin", "QueueDequeueV2", "SaveV2", "PyFunc", "If", "MutexV2"}
    assert not stays & own


def _ops_of(name: str) -> set[str]:
    """Return the ops for which a device has its own kernels."""
    (backend,) = [b for b in BACKENDS if isinstance(b, Devices) and b.name == name]
    return {op for op, device in registered_kernels() if device == backend.device_type}


def test_the_accelerator_has_no_kernel_for_strings() -> None:
    text, number = wf.constant(["a"]), wf.constant([1.0])
    assert find_kernel(wf.equal(text, text).op, "ACCEL") is None
    assert find_kernel(wf.equal(number, number).op, "ACCEL") is not None


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_a_backend_takes_much_of_the_table(backend: Backend) -> None:
    if backend.missing() is not None:
        pytest.skip(backend.missing())
    taken = sum(1 for row in ROWS if row.values[1] is backend)
    assert taken >= backend.fewest

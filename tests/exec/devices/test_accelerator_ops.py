"""The conformance table on a simulated accelerator: all ops with the values of the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import weft_accelerator
from weft_testing.cases import Case, load_cases
from weft_testing.devices import build, pin, unfolded

import weft as wf
from weft_exec.kernels.registry import find_kernel, registered_kernels

CONFIG = unfolded(device_count={"ACCEL": 1})


@pytest.fixture(scope="module", autouse=True)
def _hardware() -> None:
    weft_accelerator.plug_in(1)
    with wf.Session(config=CONFIG):
        pass  # the first session registers the kernels


def _rows() -> list[Any]:
    return [
        pytest.param(case, id=f"{family}-{case.name}")
        for family, cases in load_cases().items()
        for case in cases
    ]


@pytest.mark.parametrize("case", _rows())
def test_an_op_has_the_values_of_the_cpu(case: Case) -> None:
    graph, made = build(case)
    with wf.Session(graph=graph) as session:
        wanted = session.run(made.fetches, made.feeds)
    graph, made = build(case)
    pinned = pin(graph, "ACCEL")
    if not any(node in made.nodes for node in pinned):
        return  # of the host alone: strings, functions, and what has no kernel by itself
    hardware = weft_accelerator.accelerator()
    before = hardware.kernels
    with wf.Session(graph=graph, config=CONFIG) as session:
        results = session.run(made.fetches, made.feeds)
    assert hardware.kernels - before >= len([node for node in made.nodes if node in pinned])
    for output, got, want in zip(made.fetches, results, wanted, strict=True):
        assert got.dtype == want.dtype and got.shape == want.shape, output
        if case.expected is not None and got.tobytes() != want.tobytes():
            np.testing.assert_array_equal(got, want, err_msg=repr(output))


def test_most_ops_run_on_the_accelerator() -> None:
    have = registered_kernels()
    own = {op for op, device in have if device == "ACCEL"}
    assert len(own) > 350
    assert {"StrangerHypot", "MatMul", "Conv2D", "ApplyAdam", "VarHandleOp"} <= own
    stays = {"StringJoin", "QueueDequeueV2", "SaveV2", "PyFunc", "StackPushV2", "If", "MutexV2"}
    assert not stays & own


def test_strings_have_no_kernel_there() -> None:
    text, number = wf.constant(["a"]), wf.constant([1.0])
    assert find_kernel(wf.equal(text, text).op, "ACCEL") is None
    assert find_kernel(wf.equal(number, number).op, "ACCEL") is not None

"""The switches between the behaviors of TensorFlow 1 and 2."""

from __future__ import annotations

import pytest

import weft as wf


@pytest.mark.parametrize(
    "name",
    ["eager_execution", "tensor_equality", "v2_behavior", "v2_tensorshape"],
)
def test_the_behavior_is_that_of_1(name: str) -> None:
    getattr(wf, f"disable_{name}")()
    with pytest.raises(wf.errors.UnimplementedError):
        getattr(wf, f"enable_{name}")()


def test_switches_that_change_no_result_are_accepted() -> None:
    for name in ("control_flow_v2", "resource_variables"):
        getattr(wf, f"enable_{name}")()
        getattr(wf, f"disable_{name}")()
    with wf.Graph().as_default(), wf.Session() as session:
        wf.enable_control_flow_v2()
        chosen = wf.cond(wf.constant(True), lambda: wf.constant(1), lambda: wf.constant(2))
        assert session.run(chosen) == 1


def test_what_is_switched_on() -> None:
    assert not wf.executing_eagerly()
    assert not wf.control_flow_v2_enabled()

"""Checks of values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft as wf
from weft import errors


@pytest.fixture(autouse=True)
def _graph() -> Any:
    with wf.Graph().as_default():
        yield


def test_finite_tensors_pass() -> None:
    x = wf.placeholder(wf.float32, [2])
    for checked in (
        wf.verify_tensor_all_finite(x, "old names"),
        wf.verify_tensor_all_finite(x=x, message="new names"),
    ):
        with wf.Session() as session:
            np.testing.assert_array_equal(session.run(checked, {x: [1, 2]}), [1, 2])
            with pytest.raises(errors.InvalidArgumentError, match="names"):
                session.run(checked, {x: [1, np.nan]})


def test_all_tensors_of_a_graph_are_checked() -> None:
    x = wf.placeholder(wf.float32, [], name="x")
    wf.cast(wf.log(x, name="logarithm"), wf.int32)
    wf.Variable(1.0)
    check = wf.add_check_numerics_ops()
    with wf.Session() as session:
        session.run(wf.global_variables_initializer())
        session.run(check, {x: 1.0})
        with pytest.raises(errors.InvalidArgumentError, match="logarithm:0"):
            session.run(check, {x: 0.0})


def test_checks_of_all_numbers_see_what_comes_out_of_branches_and_loops() -> None:
    import weft as wf

    choice, x = wf.placeholder(wf.bool), wf.placeholder(wf.float32, [])
    wf.cond(choice, lambda: wf.log(x), lambda: x * 2)
    wf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a / x), [0, 1.0])
    check, session = wf.add_check_numerics_ops(), wf.Session()
    session.run(check, {choice: True, x: 1.0})
    session.run(check, {choice: False, x: -1.0})
    for feeds, place in (({choice: True, x: -1.0}, "cond"), ({choice: False, x: 0.0}, "while")):
        with pytest.raises(wf.errors.InvalidArgumentError, match=place):
            session.run(check, feeds)

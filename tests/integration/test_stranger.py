"""A package outside weft adds ops, gradients, kernels and resources through entry points."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import weft_stranger

import weft as wf
from weft import errors


@pytest.fixture(autouse=True)
def graph() -> wf.Graph:
    with wf.Graph().as_default() as made:
        yield made


def test_the_op_has_shapes_types_values_and_a_gradient() -> None:
    x = wf.constant([[3.0], [5.0]])
    y = wf.constant([4.0, 12.0])
    z = weft_stranger.hypot(x, y)
    assert z.shape.as_list() == [2, 2]
    with pytest.raises(TypeError, match="float32"):
        weft_stranger.hypot(wf.constant(1), wf.constant(2))
    with pytest.raises(ValueError, match=r"api\.py"):
        weft_stranger.hypot(wf.zeros([2]), wf.zeros([3]))
    a = wf.constant([3.0, 5.0])
    (da,) = wf.gradients(weft_stranger.hypot(a, wf.constant([4.0, 12.0])), [a])
    with wf.Session() as session:
        np.testing.assert_allclose(session.run(z), np.hypot([[3], [5]], [4, 12]), rtol=1e-6)
        np.testing.assert_allclose(session.run(da), [3 / 5, 5 / 13], rtol=1e-6)


def test_an_asynchronous_kernel_waits_for_another_step() -> None:
    target = wf.placeholder(wf.int64, [])
    reached = weft_stranger.tally_await("steps", target) * 10
    add = weft_stranger.tally_add("steps", np.int64(1))
    results: list[int] = []
    with wf.Session() as session:
        threads = [
            threading.Thread(target=lambda: results.append(session.run(reached, {target: 3})))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        assert not results
        for _ in range(3):
            session.run(add)
        for thread in threads:
            thread.join(30)
    assert results == [30] * 4


def test_one_step_both_waits_and_adds() -> None:
    reached = weft_stranger.tally_await("both", np.int64(2))
    with wf.control_dependencies([weft_stranger.tally_add("both", np.int64(1))]):
        again = weft_stranger.tally_add("both", np.int64(1))
    with wf.Session() as session:
        assert session.run([reached, again]) == [2, 2]


def test_a_waiting_step_ends_at_its_timeout_and_leaves_nobody_in_line() -> None:
    reached = weft_stranger.tally_await("never", np.int64(5), name="waits")
    add = weft_stranger.tally_add("never", np.int64(1))
    with wf.Session() as session:
        with pytest.raises(errors.DeadlineExceededError, match="waits"):
            session.run(reached, options=wf.RunOptions(timeout_in_ms=50))
        for _ in range(5):
            session.run(add)
        assert session.run(reached) == 5


def test_a_failure_elsewhere_cancels_what_waits() -> None:
    reached = weft_stranger.tally_await("unreached", np.int64(5))
    zero = wf.placeholder(wf.int32, [])
    broken = wf.floordiv(1, zero, name="broken")
    with wf.Session() as session, pytest.raises(errors.InvalidArgumentError, match="broken"):
        session.run([reached, broken], {zero: 0})

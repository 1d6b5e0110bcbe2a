"""Late Receives into an accelerator's memory, and loops that take the same values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from weft_accelerator import plug_in

import weft as wf

SIZE = 128  # large enough for a Receive to be late


@pytest.fixture(autouse=True)
def graph() -> Iterator[None]:
    plug_in(2)
    with wf.Graph().as_default():
        yield


def run(fetch: Any, x: Any) -> Any:
    config = wf.ConfigProto(device_count={"ACCEL": 2}, operation_timeout_in_ms=60_000)
    with wf.Session(config=config) as session:
        session.run(wf.global_variables_initializer())
        return session.run(fetch, {x: np.ones([SIZE, SIZE], np.float32)})


def through(y: Any, count: int) -> Any:
    for _ in range(count):
        y = wf.matmul(y, y) * 0.01
    return y


def thrice(v: Any, device: str = "") -> Any:
    def body(i: Any, a: Any) -> Any:
        with wf.device(device):
            return i + 1, wf.sin(a)

    return wf.while_loop(lambda i, a: i < 3, body, [0, v])[1]


@pytest.mark.parametrize("count", [0, 2, 6])
@pytest.mark.parametrize("there", ["/device:ACCEL:0", "/device:ACCEL:1"])
def test_a_loop_takes_what_is_used_again_after_it(count: int, there: str) -> None:
    """Send a value there and back; a late Receive would wait for nodes after the loop."""
    x = wf.placeholder(wf.float32, [SIZE, SIZE])
    with wf.device("/cpu:0"):
        v = wf.sin(x)
    with wf.device("/device:ACCEL:0"):
        y = thrice(v)
    with wf.device(there):
        y = through(y, count)
    with wf.device("/device:ACCEL:0"):
        z = through(y, count) + v
    wanted = np.full([SIZE, SIZE], np.sin(1.0), np.float32)
    after = wanted
    for _ in range(3):
        after = np.sin(after)
    for _ in range(2 * count):
        after = after @ after * np.float32(0.01)
    np.testing.assert_allclose(run(z, x), after + wanted, rtol=1e-4)


def test_the_end_of_a_loop_elsewhere_is_nothing_to_wait_for() -> None:
    x = wf.placeholder(wf.float32, [SIZE, SIZE])
    with wf.device("/cpu:0"):
        v = wf.sin(x)
    with wf.device("/device:ACCEL:0"):
        y = thrice(x, "/device:ACCEL:1")
    with wf.device("/device:ACCEL:1"):
        y = through(y, 2)
    with wf.device("/device:ACCEL:0"):
        z = y + v
    assert np.isfinite(run(z, x)).all()


def test_training_with_a_way_around_a_loop() -> None:
    x = wf.placeholder(wf.float32, [SIZE, SIZE])
    with wf.device("/cpu:0"):
        w = wf.get_variable("w", [SIZE, SIZE], initializer=wf.ones_initializer())
        v = wf.sin(x * w)
    with wf.device("/device:ACCEL:0"):
        loss = wf.reduce_mean(wf.square(through(thrice(v), 4) + v))
    train = wf.train.GradientDescentOptimizer(0.1).minimize(loss)
    found, _ = run([loss, train], x)
    assert np.isfinite(found)


def test_a_fetched_reference_is_read_when_all_else_is_over() -> None:
    with wf.device("/device:ACCEL:0"):
        v = wf.Variable([1.0, 2.0])
        update = v.assign_add([1.0, 1.0]).op
        branch = wf.cond(wf.constant(False), lambda: v.assign([0.0, 0.0]).op, wf.no_op)
    config = wf.ConfigProto(device_count={"ACCEL": 1})
    with wf.Session(config=config) as session:
        session.run(v.initializer)
        found = session.run([v, update, branch, v.value()])
        assert found[0].tolist() == [2.0, 3.0] and found[3].tolist() == [1.0, 2.0]
        assert session.run(v).tolist() == [2.0, 3.0]

"""A session says so when it trains a graph and never runs the graph's update operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft as wf

STEPS = 1100
X = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)


def normalized(x: Any) -> Any:
    return wf.layers.batch_normalization(wf.layers.dense(x, 2), training=True)


def minimize(loss: Any) -> Any:
    return wf.train.GradientDescentOptimizer(0.01).minimize(loss)


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    messages = [record.getMessage() for record in caplog.records]
    return [message for message in messages if "update operations are never run" in message]


def run_steps(step: Callable[[], object]) -> None:
    for _ in range(STEPS):
        step()


def started() -> wf.Session:
    session = wf.Session()
    session.run(wf.global_variables_initializer())
    return session


@pytest.mark.parametrize("callable_", [False, True])
def test_forgotten_updates_are_reported_once_with_the_lines(
    caplog: pytest.LogCaptureFixture, callable_: bool
) -> None:
    with wf.Graph().as_default():
        x = wf.placeholder(wf.float32, [None, 3])
        loss = wf.reduce_mean(normalized(x) ** 2)
        train = minimize(loss)
        session = started()
        step = session.make_callable(train, [x]) if callable_ else None
        run_steps(lambda: step(X) if step else session.run(train, {x: X}))
        run_steps(lambda: session.run([train, loss], {x: X}))
    (message,) = warnings_of(caplog)
    assert "1000 training steps" in message and "none of the 2 operations" in message
    assert message.count("test_update_ops.py:") == 2
    assert "control_dependencies(get_collection(GraphKeys.UPDATE_OPS))" in message


def test_updates_within_the_step_are_no_reason_to_warn(caplog: pytest.LogCaptureFixture) -> None:
    with wf.Graph().as_default():
        loss = wf.reduce_mean(normalized(X) ** 2)
        with wf.control_dependencies(wf.get_collection(wf.GraphKeys.UPDATE_OPS)):
            train = minimize(loss)
        session = started()
        run_steps(lambda: session.run(train))
    assert not warnings_of(caplog)


def test_updates_in_runs_of_their_own_are_no_reason_to_warn(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with wf.Graph().as_default():
        train = minimize(wf.reduce_mean(normalized(X) ** 2))
        updates = wf.get_collection(wf.GraphKeys.UPDATE_OPS)
        session = started()
        for _ in range(90):
            session.run(train)
        session.run(updates)
        run_steps(lambda: session.run(train))
    assert not warnings_of(caplog)


def test_updates_of_a_model_that_is_not_trained_are_no_reason_to_warn(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with wf.Graph().as_default():
        x = wf.constant(X) / 2.0
        normalized(x)
        train = minimize(wf.reduce_mean(wf.layers.dense(x, 2) ** 2))
        session = started()
        run_steps(lambda: session.run(train))
    assert not warnings_of(caplog)


def test_steps_that_do_not_train_are_no_reason_to_warn(caplog: pytest.LogCaptureFixture) -> None:
    with wf.Graph().as_default():
        loss = wf.reduce_mean(normalized(X) ** 2)
        minimize(loss)
        session = started()
        run_steps(lambda: session.run(loss))
    assert not warnings_of(caplog)


def test_a_step_switched_by_a_placeholder_trains(caplog: pytest.LogCaptureFixture) -> None:
    with wf.Graph().as_default():
        training = wf.placeholder_with_default(False, [])
        y = wf.layers.batch_normalization(wf.layers.dense(X, 2), training=training)
        train = minimize(wf.reduce_mean(y**2))
        session = started()
        run_steps(lambda: session.run(train, {training: True}))
    assert len(warnings_of(caplog)) == 1

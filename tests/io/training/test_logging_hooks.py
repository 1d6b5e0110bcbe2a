"""Tensors that are logged, and losses that are no numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from weft_graph.ops.identity import identity
from weft_graph.variables.reference import Variable
from weft_io.training import (
    LoggingTensorHook,
    MonitoredSession,
    NanLossDuringTrainingError,
    NanTensorHook,
)
from weft_tensor import errors


def lines(logged: Callable[[], list[str]]) -> list[str]:
    return [line for line in logged() if " = " in line]


def test_every_so_many_steps_and_at_the_end(
    model: Any, logged: Callable[[], list[str]], clock: Any
) -> None:
    hook = LoggingTensorHook({"b": model.w, "a": model.step}, every_n_iter=3, at_end=True)
    with MonitoredSession(hooks=[hook]) as session:
        for _ in range(5):
            session.run(model.train)
            clock.now += 0.25
    assert lines(logged) == [
        "a = 1, b = 1.0",
        "a = 4, b = 4.0 (0.750 sec)",
        "a = 5, b = 5.0 (0.500 sec)",
    ]


def test_every_so_many_seconds(model: Any, logged: Callable[[], list[str]], clock: Any) -> None:
    with MonitoredSession(hooks=[LoggingTensorHook(["w:0", model.x], every_n_secs=1)]) as session:
        for _ in range(6):
            session.run(model.train)
            clock.now += 0.4
    assert lines(logged) == [
        "w:0 = 1.0, x:0 = 1.0",
        "w:0 = 4.0, x:0 = 1.0 (1.200 sec)",
    ]


def test_nothing_is_computed_between(model: Any) -> None:
    counted = Variable(0.0, name="counted")
    with model.w.graph.control_dependencies([counted.assign_add(1.0)]):
        looked_at = identity(model.w)
    with MonitoredSession(hooks=[LoggingTensorHook([looked_at], every_n_iter=4)]) as session:
        for _ in range(9):
            session.run(model.train)
        assert session._tf_sess().run(counted) == 3.0


def test_only_at_the_end(model: Any, logged: Callable[[], list[str]]) -> None:
    with MonitoredSession(hooks=[LoggingTensorHook([model.w], at_end=True)]) as session:
        for _ in range(3):
            session.run(model.train)
        assert lines(logged) == []
    assert lines(logged) == ["w:0 = 3.0"]


def test_a_formatter(model: Any, logged: Callable[[], list[str]]) -> None:
    hook = LoggingTensorHook(
        {"w": model.w}, every_n_iter=2, formatter=lambda values: f"100% of {values['w']:.2f}"
    )
    with MonitoredSession(hooks=[hook]) as session:
        for _ in range(3):
            session.run(model.train)
    assert [line for line in logged() if "%" in line] == ["100% of 1.00", "100% of 3.00"]


def test_how_numpy_prints_stays_as_it_is(model: Any) -> None:
    before = np.get_printoptions()
    with MonitoredSession(hooks=[LoggingTensorHook([model.w], every_n_iter=1)]) as session:
        session.run(model.train)
    assert np.get_printoptions() == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "exactly one of every_n_iter and every_n_secs"),
        ({"every_n_iter": 1, "every_n_secs": 1}, "exactly one of every_n_iter and every_n_secs"),
        ({"every_n_iter": 0}, "every_n_iter must be at least 1, got 0"),
        ({"every_n_secs": -1}, "every_n_secs must be a number >= 0"),
        ({"every_n_iter": 1, "formatter": 3}, "formatter"),
        ({"every_n_iter": 1, "tensors": "w"}, "tensors must be a list"),
    ],
)
def test_arguments_of_logging(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=message):
        LoggingTensorHook(**{"tensors": [], **arguments})


def test_a_tensor_that_is_not_there(model: Any) -> None:
    with pytest.raises(errors.NotFoundError, match="missing"):
        MonitoredSession(hooks=[LoggingTensorHook(["missing:0"], every_n_iter=1)])


def test_nan_is_an_error(
    model: Any, logged: Callable[[], list[str]], told: Callable[..., Any], story: list[str]
) -> None:
    with (
        pytest.raises(NanLossDuringTrainingError, match=r"^NaN loss during training\.$") as raised,
        MonitoredSession(hooks=[told("a"), NanTensorHook(model.x)]) as session,
    ):
        session.run(model.train, feed_dict={model.x: float("inf")})
        session.run(model.train, feed_dict={model.x: float("nan")})
    assert isinstance(raised.value, RuntimeError) and "a.end" not in story
    assert story.count("a.after") == 2  # infinity is a number here
    assert "Model diverged with loss = NaN." in logged()


def test_nan_is_the_end(model: Any, told: Callable[..., Any], story: list[str]) -> None:
    with MonitoredSession(hooks=[told("a"), NanTensorHook("x:0", False)]) as session:
        session.run(model.train)
        assert not session.should_stop()
        session.run(model.train, feed_dict={model.x: float("nan")})
        assert session.should_stop()
    assert story[-1] == "a.end"
    with pytest.raises(TypeError, match="loss_tensor"):
        NanTensorHook(None)

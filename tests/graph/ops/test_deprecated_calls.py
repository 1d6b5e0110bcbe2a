"""Calls as before TensorFlow 1.0, and arguments of the wrong kind: one table of calls and words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import weft as wf
from weft_tensor import errors

TYPE = errors.InvalidTypeError


@pytest.fixture(autouse=True)
def _graph() -> Iterator[None]:
    with wf.Graph().as_default():
        yield


def _adam() -> Any:
    return wf.train.AdamOptimizer(0.1)


def _loss() -> Any:
    return wf.Variable(1.0) * 2.0


REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: wf.concat(1, [wf.ones([2, 3])] * 2), "concat(values, axis) has the axis"),
    (lambda: wf.concat(0, wf.ones([3])), "concat(values, axis) has the axis"),
    (lambda: wf.split(0, 3, wf.ones([3])), "split(value, num_or_size_splits, axis) takes the axis"),
    (lambda: wf.unstack(wf.ones([2, 3]), axis=0.5), "axis must be an integer, got 0.5"),
    (lambda: wf.nn.softmax(wf.ones([2, 3]), axis=0.5), "axis must be an integer, got 0.5"),
    (lambda: wf.initializers.variance_scaling("a"), "scale must be a number, got 'a'"),
    (
        lambda: wf.losses.softmax_cross_entropy([[1.0]], [[1.0]], label_smoothing="a"),
        "label_smoothing must be a number, got 'a'",
    ),
    (lambda: _adam().minimize(_loss(), global_step=3), "global_step must be a variable, got 3"),
    (lambda: _adam().minimize(_loss(), var_list=3), "var_list must be variables, got 3"),
    (
        lambda: _adam().apply_gradients([3]),
        "apply_gradients requires pairs (gradient, variable), got 3",
    ),
]


def test_refused() -> None:
    for call, words in REFUSED:
        with pytest.raises(TYPE, match=re.escape(words)):
            call()

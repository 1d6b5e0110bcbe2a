"""Sizes that no machine has: named errors, where the graph is built if the size is known there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_tensor import errors, memory

_HUGE = [2**40, 2**62]


def _known(value: Any) -> Any:
    return np.array(value, np.int64)


def _unknown(value: Any) -> Any:
    return wf.placeholder_with_default(np.array(value, np.int64), None)


def _one(size: int) -> np.ndarray[Any, Any]:
    return np.broadcast_to(np.float32(1), [size])


BUILDERS: dict[str, Callable[[Callable[[Any], Any], int], Any]] = {
    "fill": lambda v, n: wf.fill(v([n, n]), 1.0),
    "fill of strings": lambda v, n: wf.fill(v([n]), "a"),
    "zeros": lambda v, n: wf.zeros(v([n, n])),
    "zeros of nothing": lambda v, n: wf.zeros(v([n, n, n, 0])),
    "ones": lambda v, n: wf.ones(v([n, n])),
    "tile": lambda v, n: wf.tile(wf.constant([1.0, 2.0]), v([n])),
    "broadcast_to": lambda v, n: wf.broadcast_to(wf.constant(1.0), v([n, n])),
    "broadcast_to of strings": lambda v, n: wf.broadcast_to(wf.constant("a"), v([n])),
    "range": lambda v, n: wf.range(v(n)),
    "range to infinity": lambda v, n: wf.range(0.0, float("inf"), 1.0),
    "linspace": lambda v, n: wf.linspace(0.0, 1.0, v(n)),
    "one_hot": lambda v, n: wf.one_hot([0, 1], v(n)),
    "pad": lambda v, n: wf.pad(wf.constant([1.0]), v([[n, n]])),
    "eye": lambda v, n: wf.eye(n),
    "random_normal": lambda v, n: wf.random_normal(v([n, n])),
    "random_uniform": lambda v, n: wf.random_uniform(v([n])),
    "truncated_normal": lambda v, n: wf.truncated_normal(v([n])),
    "scatter_nd": lambda v, n: wf.scatter_nd([[0]], [1.0], v([n])),
    "sparse_to_dense": lambda v, n: wf.sparse_to_dense([[0, 0]], v([n, n]), [1.0]),
    "unsorted_segment_sum": lambda v, n: wf.unsorted_segment_sum([1.0], [0], v(n)),
    "constant": lambda v, n: wf.constant(1.0, shape=[n, n]),
    "constant of strings": lambda v, n: wf.constant("a", shape=[n]),
    "constant of a view": lambda v, n: wf.constant(_one(2**40)),
    "constant_initializer": lambda v, n: wf.constant_initializer([1.0])([n, n]),
    "get_variable": lambda v, n: wf.get_variable(f"v{n}", [n, n]).initializer,
    "difference of outer shapes": lambda v, n: (
        wf.reshape(wf.range(10**6), [-1, 1]) - wf.range(10**7)
    ),
    "TensorArray": lambda v, n: wf.TensorArray(wf.float32, 2, element_shape=[n, n]).gather([0]),
}


@pytest.mark.parametrize("how", [_known, _unknown], ids=["known", "unknown"])
def test_huge_sizes_are_named_errors(how: Callable[[Any], Any]) -> None:
    wrong = []
    with wf.Graph().as_default(), wf.Session() as session:
        for name, build in BUILDERS.items():
            for size in _HUGE:
                try:
                    session.run(build(how, size))
                except errors.InternalError as error:
                    wrong.append((name, size, error.message))
                except errors.OpError:
                    continue
                except Exception as error:  # because this is what must not be
                    wrong.append((name, size, repr(error)))
                else:
                    wrong.append((name, size, "no error"))
    assert not wrong


def test_shape_and_bytes_are_told() -> None:
    with pytest.raises(errors.ResourceExhaustedError, match=r"\[1048576, 1048576\].*4398046511104"):
        wf.constant(1.0, shape=[2**20, 2**20])
    with pytest.raises(errors.ResourceExhaustedError, match="overflows 64 bits"):
        memory.new_array([2**40, 2**40], np.dtype(np.float32))
    with pytest.raises(errors.InvalidArgumentError, match="no array has the shape"):
        memory.new_array([2**40, 2**40, 0], np.dtype(np.float32))
    with pytest.raises(errors.ResourceExhaustedError, match=r"\[1099511627776\]"):
        memory.copy_array(_one(2**40))

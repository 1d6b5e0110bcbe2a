from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from weft_exec.session.session import Session
from weft_graph.ir.graph import Graph
from weft_graph.variables import initializers
from weft_graph.variables.partitioned import PartitionInfo
from weft_tensor import dtypes, errors


def value(initializer: Any, shape: Any, dtype: Any = None, **options: Any) -> Any:
    with Graph().as_default() as graph:
        graph.seed = 1
        output = initializer(shape, dtype=dtype, **options)
    return Session(graph=graph).run(output)


@pytest.mark.parametrize("size", (3, 5000))
def test_constants(size: int) -> None:
    np.testing.assert_array_equal(value(initializers.zeros_initializer(), [size]), np.zeros(size))
    ones = value(initializers.ones_initializer(dtypes.int32), [size])
    assert ones.dtype == np.int32 and ones.tolist() == [1] * size
    filled = value(initializers.constant_initializer(2.5), [size, 1], dtypes.float64)
    assert filled.dtype == np.float64 and (filled == 2.5).all()
    assert value(initializers.zeros_initializer(), [2], dtypes.string).tolist() == [b"", b""]
    assert value(initializers.ones_initializer(), [1], dtypes.bool_).tolist() == [True]


def test_large_constants_are_not_in_the_graph() -> None:
    with Graph().as_default() as graph:
        initializers.zeros_initializer()([1000, 1000])
    assert all(node.attrs["value"].size < 1000 for node in graph.nodes if node.type == "Const")


def test_constant_lists() -> None:
    made = initializers.constant_initializer([1, 2, 3])
    assert value(made, [2, 2]).tolist() == [[1, 2], [3, 3]]
    strict = initializers.constant_initializer([1, 2, 3], verify_shape=True)
    with pytest.raises(errors.InvalidArgumentError, match="shape"):
        value(strict, [2, 2])
    with pytest.raises(errors.InvalidTypeError):
        initializers.constant_initializer(object())


RANDOM: dict[str, tuple[Any, float]] = {
    "uniform": (initializers.random_uniform_initializer(-1.0, 1.0), math.sqrt(1 / 3)),
    "normal": (initializers.random_normal_initializer(0.0, 2.0), 2.0),
    "truncated": (initializers.truncated_normal_initializer(0.0, 2.0), 2 * 0.8796),
    "unit": (initializers.uniform_unit_scaling_initializer(2.0), 2 * math.sqrt(1 / 300)),
    "glorot_uniform": (initializers.glorot_uniform_initializer(), math.sqrt(2 / 500)),
    "glorot_normal": (initializers.glorot_normal_initializer(), math.sqrt(2 / 500)),
    "he_uniform": (initializers.he_uniform(), math.sqrt(2 / 300)),
    "he_normal": (initializers.he_normal(), math.sqrt(2 / 300)),
    "lecun_uniform": (initializers.lecun_uniform(), math.sqrt(1 / 300)),
    "lecun_normal": (initializers.lecun_normal(), math.sqrt(1 / 300)),
    "fan_out": (initializers.variance_scaling_initializer(1.0, "fan_out"), math.sqrt(1 / 200)),
    "untruncated": (
        initializers.variance_scaling_initializer(1.0, "fan_in", "untruncated_normal"),
        math.sqrt(1 / 300),
    ),
}


@pytest.mark.parametrize("name", RANDOM)
def test_standard_deviations(name: str) -> None:
    initializer, deviation = RANDOM[name]
    x = value(initializer, [300, 200])
    assert x.shape == (300, 200) and x.dtype == np.float32
    assert abs(x.std() / deviation - 1) < 0.02
    assert abs(x.mean()) < 4 * deviation / math.sqrt(x.size)
    again = type(initializer).from_config(initializer.get_config())
    np.testing.assert_array_equal(value(again, [300, 200]), x)


def test_fans() -> None:
    assert initializers.compute_fans([]) == (1, 1)
    assert initializers.compute_fans([7]) == (7, 7)
    assert initializers.compute_fans([3, 5]) == (3, 5)
    assert initializers.compute_fans([3, 3, 4, 8]) == (36, 72)


@pytest.mark.parametrize("shape", ([6, 4], [4, 6], [2, 3, 4]))
def test_orthogonal(shape: list[int]) -> None:
    x = value(initializers.orthogonal_initializer(2.0), shape, dtypes.float64)
    matrix = x.reshape(-1, shape[-1])
    product = matrix.T @ matrix if matrix.shape[0] >= matrix.shape[1] else matrix @ matrix.T
    np.testing.assert_allclose(product, 4 * np.eye(len(product)), atol=1e-12)
    with pytest.raises(errors.InvalidArgumentError, match="two axes"):
        value(initializers.orthogonal_initializer(), [3])


def test_identity() -> None:
    made = initializers.identity_initializer(2.0)
    np.testing.assert_array_equal(value(made, [2, 3]), 2 * np.eye(2, 3))
    part = value(made, [1, 3], partition_info=PartitionInfo([2, 3], [1, 0]))
    np.testing.assert_array_equal(part, [[0, 2, 0]])
    with pytest.raises(errors.InvalidArgumentError):
        value(made, [3])


def test_bad_arguments() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="scale"):
        initializers.variance_scaling_initializer(0.0)
    with pytest.raises(errors.InvalidArgumentError, match="mode"):
        initializers.variance_scaling_initializer(mode="fan")
    with pytest.raises(errors.InvalidArgumentError, match="distribution"):
        initializers.variance_scaling_initializer(distribution="cauchy")
    with pytest.raises(errors.InvalidTypeError, match="floating"):
        initializers.random_normal_initializer(dtype=dtypes.int32)
    with pytest.raises(errors.InvalidArgumentError, match="got 'cauchy'"):
        initializers.get("cauchy")
    assert isinstance(initializers.get("he_normal"), initializers.HeNormal)

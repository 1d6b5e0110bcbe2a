"""Inference of the element type from values if the type attribute has a default."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft import raw_ops


@pytest.fixture(autouse=True)
def graph() -> Iterator[wf.Graph]:
    with wf.Graph().as_default() as made:
        yield made


class _Holder:
    """An object that describes its contents only by `__array__`."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.ones(3)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "int64", "uint8"])
def test_an_array_keeps_its_type(dtype: str) -> None:
    image = np.ones([1, 2, 2, 1], dtype)
    window = [1, 1, 1, 1]
    made = raw_ops.MaxPool(input=image, ksize=window, strides=window, padding="VALID")
    assert made.dtype.name == dtype
    assert wf.Session().run(made).dtype == dtype


@pytest.mark.parametrize(
    "value, expected",
    [
        (np.float64(1), "float64"),
        (_Holder(), "float64"),
        (np.ones(2, np.int32), "float32"),
        ([1], "float32"),
        (1, "float32"),
        ([1.0, 2.0], "float32"),
        ([], "float32"),
        (np.zeros([0, 2]), "float64"),
    ],
)
def test_the_default_is_for_what_the_op_does_not_take(value: Any, expected: str) -> None:
    assert raw_ops.LeakyRelu(features=value).dtype.name == expected


def test_later_inputs_follow_the_first() -> None:
    made = raw_ops.LeakyReluGrad(gradients=np.ones(2), features=[1.0, 2.0])
    assert made.dtype is wf.float64
    assert raw_ops.LeakyReluGrad(gradients=[1.0], features=np.ones(1)).dtype is wf.float32
    assert raw_ops.LeakyReluGrad(gradients=[1.0], features=wf.ones([1], "float64")).dtype.size == 8


def test_complex_numbers_keep_their_digits() -> None:
    assert raw_ops.FFT(input=np.ones(2, np.complex128)).dtype is wf.complex128
    assert raw_ops.FFT(input=[1.0, 2.0]).dtype is wf.complex64


def test_a_list_with_tensors_has_their_type() -> None:
    made = raw_ops.LeakyRelu(features=[wf.constant(1.0, wf.float64), 2.0])
    assert made.dtype is wf.float64

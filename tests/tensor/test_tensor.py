"""Tensors: zero-copy borders, views, strings, conversions."""

from __future__ import annotations

import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from weft_tensor import dtypes
from weft_tensor.allocator import CpuAllocator
from weft_tensor.buffer import Buffer
from weft_tensor.errors import InvalidArgumentError, InvalidTypeError, ResourceExhaustedError
from weft_tensor.shape import TensorShape
from weft_tensor.tensor import Tensor


def test_over_a_buffer() -> None:
    pool = CpuAllocator()
    buffer = pool.allocate(64)
    tensor = Tensor(buffer, [2, 3], "int32", offset=16)
    assert (tensor.dtype, tensor.dims, tensor.nbytes) == (dtypes.int32, (2, 3), 24)
    assert (tensor.shape, tensor.get_shape()) == (TensorShape([2, 3]),) * 2
    assert (tensor.ndim, tensor.size, len(tensor)) == (2, 6, 2)
    tensor.numpy()[...] = 5
    assert buffer.array[16] == 5
    del buffer
    part = tensor[1]
    del tensor
    assert pool.statistics().bytes_in_use == 64
    assert part.tolist() == [5, 5, 5]
    del part
    assert pool.statistics().bytes_in_use == 0


def test_refused_layouts() -> None:
    buffer = Buffer(np.zeros(8, np.uint8))
    with pytest.raises(InvalidArgumentError, match=r"int32\[3\].*8"):
        Tensor(buffer, [3], "int32")
    with pytest.raises(InvalidArgumentError, match=r"\[\?\]"):
        Tensor(buffer, [None], "int32")
    for dtype in ("string", "resource"):
        with pytest.raises(InvalidTypeError, match=dtype):
            Tensor(buffer, [1], dtype)
    with pytest.raises(InvalidTypeError, match="handle"):
        Tensor.empty([1], "variant")


def test_empty_comes_from_an_allocator() -> None:
    pool = CpuAllocator(1 << 12)
    tensor = Tensor.empty([8, 8], "qint8", pool)
    assert (tensor.dtype, tensor.numpy().dtype) == (dtypes.qint8, np.int8)
    assert pool.statistics().bytes_in_use == 64
    with pytest.raises(ResourceExhaustedError):
        Tensor.empty([1 << 12, 2], "int8", pool)
    assert Tensor.empty([2], "string").tolist() == [b"", b""]
    assert Tensor.empty([2], "float32").dtype is dtypes.float32


@pytest.mark.parametrize("dtype", [d for d in dtypes.ALL_DTYPES if d.numpy.kind != "O"], ids=str)
def test_numpy_without_a_copy(dtype: dtypes.DType) -> None:
    array = np.ones((2, 3), dtype.numpy)
    tensor = Tensor.from_numpy(array)
    assert tensor.numpy() is array
    assert tensor.dtype is dtype.base_dtype or dtype.is_quantized
    assert np.shares_memory(np.asarray(tensor), array)
    copied = Tensor.from_numpy(array, copy=True)
    assert not np.shares_memory(copied.numpy(), array)


def test_strided_arrays_are_borrowed_too() -> None:
    array = np.arange(12).reshape(3, 4)[:, ::2]
    tensor = Tensor.from_numpy(array)
    assert np.shares_memory(tensor.numpy(), array)
    with pytest.raises(InvalidArgumentError, match="contiguous"):
        _ = tensor.buffer
    assert tensor.copy().buffer.nbytes == array.nbytes


def test_buffer_is_shared() -> None:
    array = np.zeros(4, np.float32)
    Tensor.from_numpy(array).buffer.array[...] = 255
    assert np.isnan(array).all()


def test_foreign_byte_order_is_converted() -> None:
    tensor = Tensor.from_numpy(np.array([1, 2], ">f4"))
    assert tensor.numpy().dtype == np.float32
    assert tensor.tolist() == [1, 2]


def test_strings() -> None:
    assert Tensor.from_numpy(np.array(["é", "ab"])).tolist() == ["é".encode(), b"ab"]
    assert Tensor.from_numpy(np.array([b"a", b"bc"])).tolist() == [b"a", b"bc"]
    objects = np.array([b"a\0", b""], object)
    tensor = Tensor.from_numpy(objects)
    assert tensor.numpy() is objects
    assert (tensor.dtype, tensor.nbytes) == (dtypes.string, 2)
    assert Tensor.from_numpy(np.array([["x"], [b"y"]], object)).tolist() == [[b"x"], [b"y"]]
    with pytest.raises(InvalidTypeError, match="got 1 of type 'int'"):
        Tensor.from_numpy(np.array([b"a", 1], object))
    with pytest.raises(InvalidArgumentError, match="objects"):
        _ = tensor.buffer


def test_from_value() -> None:
    tensor = Tensor.from_value([[1, 2]], "int64")
    assert (tensor.dtype, tensor.tolist()) == (dtypes.int64, [[1, 2]])
    assert Tensor.from_value(tensor) is tensor
    assert Tensor.from_value(tensor, "float32").tolist() == [[1.0, 2.0]]
    assert Tensor.from_value(3, "qint8").dtype is dtypes.qint8
    assert Tensor.from_value("a").numpy().shape == ()


def test_views_share() -> None:
    tensor = Tensor.from_numpy(np.arange(6, dtype=np.float32).reshape(2, 3))
    for view in (tensor[0, 1], tensor[..., 0, 1], tensor[1:], tensor.reshape(3, 2), tensor[0]):
        assert isinstance(view, Tensor)
        assert view.dtype is dtypes.float32
        if view.ndim or view.item() == 1:
            assert view.size
    assert np.shares_memory(tensor[0, 1].numpy(), tensor.numpy())
    assert tensor.reshape([3, -1]).dims == (3, 2)
    assert [row.tolist() for row in tensor] == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(InvalidArgumentError, match="6 elements"):
        tensor.reshape(4)
    with pytest.raises(IndexError):
        tensor[5]


def test_single_elements() -> None:
    tensor = Tensor.from_value(2.5)
    assert (tensor.item(), float(tensor), int(tensor), bool(tensor)) == (2.5, 2.5, 2, True)
    with pytest.raises(TypeError, match="rank 0"):
        len(tensor)
    with pytest.raises(InvalidArgumentError, match="one element"):
        Tensor.from_value([1, 2]).item()


def test_array_protocol_of_numpy_2() -> None:
    tensor = Tensor.from_numpy(np.arange(3, dtype=np.int32))
    assert np.shares_memory(np.asarray(tensor), tensor.numpy())
    assert not np.shares_memory(np.array(tensor, copy=True), tensor.numpy())
    assert np.asarray(tensor, dtype=np.float64).dtype == np.float64
    assert np.shares_memory(np.asarray(tensor, copy=False), tensor.numpy())
    with pytest.raises(ValueError, match=r"without copying|avoid copy"):
        np.asarray(tensor, dtype=np.float64, copy=False)
    assert (np.add(tensor, 1) == [1, 2, 3]).all()


def test_memoryview() -> None:
    tensor = Tensor.from_numpy(np.arange(3, dtype=np.int32))
    view = memoryview(tensor.numpy())
    assert (view.format, view.shape) == ("i", (3,))


@pytest.mark.skipif(sys.version_info < (3, 12), reason="PEP 688 came with Python 3.12")
def test_buffer_protocol() -> None:
    tensor: Any = Tensor.from_numpy(np.arange(3, dtype=np.int32))
    assert memoryview(tensor).tolist() == [0, 1, 2]
    for refused in ("bfloat16", "string"):
        with pytest.raises(BufferError, match=refused):
            memoryview(Tensor.empty([1], refused))  # type: ignore[arg-type]


def test_repr() -> None:
    text = repr(Tensor.from_numpy(np.ones((1, 2), ml_dtypes.bfloat16)))
    assert text.startswith("<weft.Tensor shape=(1, 2) dtype=bfloat16 numpy=array([[1, 1]]")

"""DLPack with NumPy, and with PyTorch, JAX and CuPy where they are installed."""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from weft_tensor import dtypes
from weft_tensor.allocator import CpuAllocator
from weft_tensor.errors import InvalidArgumentError, InvalidTypeError
from weft_tensor.tensor import Tensor

EXCHANGED = [
    d
    for d in dtypes.ALL_DTYPES
    if d.is_numpy_compatible and not d.is_quantized and not (d.is_small or d is dtypes.string)
]
FOR_ALL = [
    d for d in EXCHANGED if not d.is_complex and d.name not in ("uint16", "uint32", "uint64")
]


def _sample(dtype: dtypes.DType) -> Tensor:
    pool = CpuAllocator()
    tensor = Tensor.empty([2, 3], dtype, pool)
    tensor.numpy()[...] = np.array([[0, 1, 1], [1, 0, 1]]).astype(dtype.numpy)
    return tensor


@pytest.mark.parametrize("dtype", EXCHANGED, ids=str)
def test_round_trip(dtype: dtypes.DType) -> None:
    tensor = _sample(dtype)
    back = Tensor.from_dlpack(tensor)
    assert back.dtype is dtype
    assert back.tolist() == tensor.tolist()
    assert np.shares_memory(back.numpy(), tensor.numpy())


@pytest.mark.parametrize("dtype", [d for d in EXCHANGED if d is not dtypes.bfloat16], ids=str)
def test_numpy_takes_it(dtype: dtypes.DType) -> None:
    tensor = _sample(dtype)
    assert np.shares_memory(np.from_dlpack(tensor), tensor.numpy())
    assert tensor.__dlpack_device__() == (1, 0)


def test_the_consumer_keeps_the_memory() -> None:
    pool = CpuAllocator()
    tensor = Tensor.empty([16], "bfloat16", pool)
    taken = Tensor.from_dlpack(tensor)
    del tensor
    assert pool.statistics().bytes_in_use == 64
    del taken
    assert pool.statistics().bytes_in_use == 0
    capsule = Tensor.empty([16], "bfloat16", pool).__dlpack__()
    assert pool.statistics().bytes_in_use == 64
    del capsule
    assert pool.statistics().bytes_in_use == 0, "a capsule nobody took gives its memory back"


def test_strides_travel() -> None:
    tensor = Tensor.from_numpy(np.arange(12, dtype=ml_dtypes.bfloat16).reshape(3, 4)[:, ::2])
    assert Tensor.from_dlpack(tensor).tolist() == tensor.tolist()


def test_a_capsule_says_its_type_as_the_standard_does() -> None:
    """Its code, bits and lanes, 20 bytes into the DLTensor of dlpack.h."""
    expected = {"uint8": (1, 8), "float32": (2, 32), "bfloat16": (4, 16), "complex64": (5, 64)}
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    for name, (code, bits) in expected.items():
        capsule = Tensor.from_value(np.ones(3, dtypes.as_dtype(name).numpy)).__dlpack__()
        written = (ctypes.c_uint8 * 3).from_address(get(capsule, b"dltensor") + 20)
        assert [*written] == [code, bits, 1], name


def test_strings_do_not() -> None:
    with pytest.raises(BufferError, match="strings"):
        Tensor.from_value(["a"]).__dlpack__()


def test_what_can_not_be_taken() -> None:
    with pytest.raises(InvalidTypeError, match="__dlpack__"):
        Tensor.from_dlpack([1, 2])
    with pytest.raises(InvalidArgumentError, match="device type 2, number 3"):
        Tensor.from_dlpack(_Elsewhere())
    with pytest.raises(InvalidTypeError, match="imported"):
        Tensor.from_dlpack(_Broken())


class _Elsewhere:
    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 3

    def __dlpack__(self, **options: Any) -> Any:
        raise AssertionError("nobody should ask")


class _Broken:
    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("no")


class _Old:
    """A producer from before the protocol had options."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()

    def __dlpack__(self, stream: Any = None) -> Any:
        return self.array.__dlpack__()


def test_old_producers() -> None:
    array = np.arange(3)
    assert np.shares_memory(Tensor.from_dlpack(_Old(array)).numpy(), array)


@pytest.mark.parametrize("dtype", FOR_ALL, ids=str)
def test_pytorch(dtype: dtypes.DType) -> None:
    torch = pytest.importorskip("torch")
    tensor = _sample(dtype)
    theirs = torch.from_dlpack(tensor)
    assert str(theirs.dtype) == f"torch.{dtype.name}"
    back = Tensor.from_dlpack(theirs)
    assert back.dtype is dtype
    assert np.shares_memory(back.numpy(), tensor.numpy())
    assert Tensor.from_dlpack(theirs + theirs).dtype is dtype


@pytest.mark.parametrize("dtype", [d for d in FOR_ALL if d.size < 8], ids=str)
def test_jax(dtype: dtypes.DType) -> None:
    jnp = pytest.importorskip("jax.numpy")
    tensor = _sample(dtype)
    theirs = jnp.from_dlpack(tensor)
    assert theirs.dtype == dtype.numpy
    back = Tensor.from_dlpack(theirs)
    assert back.dtype is dtype
    assert back.tolist() == tensor.tolist()


def test_cupy_is_in_another_memory() -> None:
    cupy = pytest.importorskip("cupy")
    try:
        array = cupy.zeros(3)
    except cupy.cuda.runtime.CUDARuntimeError:
        pytest.skip("no GPU")
    with pytest.raises(InvalidArgumentError, match="CPU memory"):
        Tensor.from_dlpack(array)

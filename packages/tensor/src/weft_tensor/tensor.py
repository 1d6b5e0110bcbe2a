"""Tensor: an element type and a shape over memory, for the API and for transfers between devices.

The executor uses plain arrays; a `Tensor` wraps one without copying it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from weft_tensor import dlpack, dtypes
from weft_tensor.allocator import Allocator, cpu_allocator
from weft_tensor.buffer import Buffer
from weft_tensor.dtypes import DType
from weft_tensor.errors import InvalidArgumentError, InvalidTypeError
from weft_tensor.shape import TensorShape, as_dims, format_dims, num_elements
from weft_tensor.values import to_array, to_bytes


class Tensor:
    """A value of known element type and shape, over a `Buffer` or a borrowed array.

    Views (`t[1:]`, `t.reshape(...)`, `t.numpy()`) share the memory and keep it alive. Strings are
    object arrays of bytes.
    """

    __slots__ = ("__weakref__", "_array", "_dtype")

    _array: np.ndarray[Any, Any]
    _dtype: DType

    def __init__(self, buffer: Buffer, shape: Any, dtype: Any, offset: int = 0) -> None:
        """Create a tensor over a part of a buffer.

        Args:
          buffer: the memory.
          shape: known sizes.
          dtype: element type with a NumPy counterpart, except string.
          offset: offset of the first element in bytes.
        Raises:
          InvalidTypeError: a tensor of this type does not have a raw buffer.
          InvalidArgumentError: the part is not inside the buffer.
        """
        kind, sizes = _plain(dtype), _known(shape)
        try:
            self._array = buffer.view(sizes, kind.numpy, offset)
        except ValueError as error:
            raise InvalidArgumentError(
                f"not enough memory for {kind.name}{format_dims(sizes)}: {error}"
            ) from None
        self._dtype = kind

    @classmethod
    def empty(cls, shape: Any, dtype: Any, allocator: Allocator | None = None) -> Tensor:
        """Return an uninitialized tensor; a string tensor has empty strings.

        Args:
          shape: known sizes.
          dtype: any element type except resource and variant.
          allocator: source of the memory; None for the allocator of the process.
        Raises:
          ResourceExhaustedError: the allocator's memory is exhausted.
        """
        kind = dtypes.as_dtype(dtype).base_dtype
        if not kind.is_numpy_compatible:
            raise InvalidTypeError(f"a {kind.name} is a handle and has no memory")
        pool = cpu_allocator() if allocator is None else allocator
        return cls._wrap(pool.empty(_known(shape), kind.numpy), kind)

    @classmethod
    def from_numpy(cls, array: np.ndarray[Any, Any], copy: bool = False) -> Tensor:
        """Return a tensor over the memory of a NumPy array.

        Text, fixed-size bytes and foreign byte order are always converted and therefore copied,
        even if `copy` is False.

        Args:
          array: any shape and strides.
          copy: copy the array even if it need not be converted.
        Raises:
          InvalidTypeError: no element type corresponds to the array.
        """
        source = np.asarray(array)
        kind = dtypes.from_numpy(source.dtype)
        result = to_bytes(source) if kind is dtypes.string else source
        if result.dtype != kind.numpy:
            result = result.astype(kind.numpy)
        return cls._wrap(result.copy() if copy and result is source else result, kind)

    @classmethod
    def from_value(cls, value: Any, dtype: Any = None) -> Tensor:
        """Convert a Python value or nested lists by the rules of `to_array`.

        Raises:
          InvalidTypeError: the value is not of this type.
          InvalidArgumentError: a list is ragged, or an integer does not fit.
        """
        if isinstance(value, Tensor) and dtype is None:
            return value
        kind = None if dtype is None else dtypes.as_dtype(dtype).base_dtype
        array = to_array(value, kind)
        return cls._wrap(array, kind or dtypes.from_numpy(array.dtype))

    @classmethod
    def from_dlpack(cls, source: Any) -> Tensor:
        """Return a tensor over the memory of another framework's CPU tensor.

        Raises:
          InvalidTypeError: it does not support DLPack, or its element type is unknown here.
          InvalidArgumentError: it is in another device's memory.
        """
        return cls.from_numpy(dlpack.from_capsule(source))

    @classmethod
    def _wrap(cls, array: np.ndarray[Any, Any], dtype: DType) -> Tensor:
        self = object.__new__(cls)
        self._array = array
        self._dtype = dtype
        return self

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self._dtype

    @property
    def shape(self) -> TensorShape:
        """The shape, fully defined."""
        return TensorShape(self._array.shape)

    @property
    def dims(self) -> tuple[int, ...]:
        """The sizes."""
        return tuple(self._array.shape)

    @property
    def ndim(self) -> int:
        """The rank."""
        return self._array.ndim

    @property
    def size(self) -> int:
        """Number of elements."""
        return self._array.size

    @property
    def nbytes(self) -> int:
        """Bytes of the elements; for strings, the sum of their lengths."""
        if self._dtype is dtypes.string:
            return sum(len(leaf) for leaf in self._array.flat)
        return self._array.nbytes

    @property
    def buffer(self) -> Buffer:
        """The memory of a contiguous tensor, shared.

        Raises:
          InvalidArgumentError: the tensor is not contiguous, or its elements are strings; copy it
            first.
        """
        try:
            return Buffer(self._array)
        except ValueError as error:
            raise InvalidArgumentError(str(error)) from None

    def get_shape(self) -> TensorShape:
        """Return the shape, like the method of TensorFlow's tensors."""
        return self.shape

    def numpy(self) -> np.ndarray[Any, Any]:
        """Return the array over the same memory."""
        return self._array

    def copy(self, allocator: Allocator | None = None) -> Tensor:
        """Return a contiguous copy in separate memory."""
        result = Tensor.empty(self._array.shape, self._dtype, allocator)
        result._array[...] = self._array
        return result

    def reshape(self, *shape: Any) -> Tensor:
        """Return the elements in another shape: a view if the strides allow it, else a copy.

        Args:
          *shape: sizes, or one sequence of them; one may be -1 and is then inferred.
        Raises:
          InvalidArgumentError: the number of elements differs.
        """
        sizes = shape[0] if len(shape) == 1 and not hasattr(shape[0], "__index__") else shape
        try:
            array = self._array.reshape(tuple(int(size) for size in sizes))
        except ValueError:
            raise InvalidArgumentError(
                f"cannot reshape {self.size} elements of shape {list(self.dims)} to {list(sizes)}"
            ) from None
        return Tensor._wrap(array, self._dtype)

    def item(self) -> Any:
        """Return the only element as a Python value.

        Raises:
          InvalidArgumentError: the number of elements is not 1.
        """
        if self._array.size != 1:
            raise InvalidArgumentError(f"expected one element, got shape {list(self.dims)}")
        return self._array.item()

    def tolist(self) -> Any:
        """Return the elements as nested lists of Python values."""
        return self._array.tolist()

    def __getitem__(self, key: Any) -> Tensor:
        scalar_view = self._array[key]
        if not isinstance(scalar_view, np.ndarray):
            scalar_view = _scalar_view(self._array, key, scalar_view)
        return Tensor._wrap(scalar_view, self._dtype)

    def __len__(self) -> int:
        if not self._array.ndim:
            raise InvalidTypeError("a tensor of rank 0 has no length")
        return len(self._array)

    def __iter__(self) -> Iterator[Tensor]:
        return (self[index] for index in range(len(self)))

    def __bool__(self) -> bool:
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        target = self._array.dtype if dtype is None else np.dtype(dtype)
        if copy is False and target != self._array.dtype:
            raise ValueError(f"cannot convert to {target} without copying from {self._array.dtype}")
        return self._array.astype(target, copy=bool(copy))

    def __buffer__(self, flags: int, /) -> memoryview:
        if self._dtype is dtypes.bfloat16 or self._array.dtype.hasobject:
            raise BufferError(f"the buffer protocol has no {self._dtype.name}")
        return self._array.data

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        return dlpack.to_capsule(
            self._array, stream=stream, max_version=max_version, dl_device=dl_device, copy=copy
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CPU, 0

    def __repr__(self) -> str:
        return f"<weft.Tensor shape={self.dims} dtype={self._dtype.name} numpy={self._array!r}>"


def _scalar_view(array: np.ndarray[Any, Any], key: Any, selected: Any) -> np.ndarray[Any, Any]:
    """Return an array of rank 0 over the same memory; NumPy's indexing returns a scalar."""
    axes = key if isinstance(key, tuple) else (key,)
    try:
        return np.asarray(array[(*axes, Ellipsis)])
    except IndexError:  # the key has an ellipsis already
        return np.asarray(selected)


def _plain(dtype: Any) -> DType:
    kind = dtypes.as_dtype(dtype).base_dtype
    if kind.numpy.hasobject:
        raise InvalidTypeError(f"a tensor of {kind.name} does not have a raw buffer")
    return kind


def _known(shape: Any) -> tuple[int, ...]:
    dims = as_dims(shape)
    if dims is None or num_elements(dims) is None or None in dims:
        raise InvalidArgumentError(
            f"a tensor requires a fully known shape, got {format_dims(dims)}"
        )
    return tuple(size for size in dims if size is not None)

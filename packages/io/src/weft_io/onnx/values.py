"""Values in an ONNX file: tensors, attributes, types."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from onnx import (
    AttributeProto,
    SparseTensorProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
    numpy_helper,
)

from weft_io.onnx.element_types import weft_type
from weft_io.onnx.large_weights import Bytes
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType
from weft_tensor.nesting import format_value

_EXTERNAL: Final = TensorProto.EXTERNAL

_PACKED: Final[dict[int, int]] = {
    TensorProto.INT4: 2,
    TensorProto.UINT4: 2,
    TensorProto.FLOAT4E2M1: 2,
    TensorProto.INT2: 4,
    TensorProto.UINT2: 4,
}
"""Number of elements per byte, for types with several."""

_MAX_DIGITS: Final = 20
"""Maximum number of digits of a file offset."""


class Values:
    """Reader of the values of one model.

    Args:
      folder: the folder of external data; None for a model without a path.
      apart: bytes of large weights by key, see `large_weights`.
    """

    def __init__(
        self, folder: Path | None, large_weights: Mapping[bytes, Bytes] | None = None
    ) -> None:
        self._folder = folder
        self._large_weights = large_weights or {}

    def array(self, tensor: TensorProto) -> np.ndarray[Any, Any]:
        """Return the elements of a tensor: strings as bytes, numbers without a copy if possible.

        Raises:
          InvalidArgumentError: its parts are inconsistent, or its data is outside the model's
            folder.
          UnimplementedError: weft does not support the element type.
        """
        label = f"tensor {tensor.name!r}" if tensor.name else "a tensor"
        dtype = weft_type(tensor.data_type)
        if any(size < 0 for size in tensor.dims):
            raise errors.InvalidArgumentError(f"{label} has negative sizes: {list(tensor.dims)}")
        if tensor.data_location == _EXTERNAL:
            return self._external(tensor, dtype, label)
        if dtype is dtypes.string:
            flat = np.empty(len(tensor.string_data), object)
            flat[:] = list(tensor.string_data)
            return _reshape(flat, tensor, label)
        try:
            result = self._numbers(tensor, dtype)
        except (ValueError, TypeError) as error:
            raise errors.InvalidArgumentError(
                f"{label} of shape {list(tensor.dims)} and type {dtype.name} is damaged: {error}"
            ) from error
        return result

    def _numbers(self, tensor: TensorProto, dtype: DType) -> np.ndarray[Any, Any]:
        raw = self._large_weights.get(tensor.raw_data) if self._large_weights else None
        if raw is None:
            return numpy_helper.to_array(tensor)
        if tensor.data_type in _PACKED or sys.byteorder == "big":
            dense = TensorProto()
            dense.CopyFrom(tensor)
            dense.raw_data = raw.tobytes()
            return numpy_helper.to_array(dense)
        if tensor.HasField("segment"):
            raise ValueError("segments are not supported")
        return raw.view(dtype.numpy).reshape(tuple(tensor.dims))

    def _external(self, tensor: TensorProto, dtype: DType, label: str) -> np.ndarray[Any, Any]:
        """Memory-map external data in a file next to the model.

        Raises: InvalidArgumentError: the file is not in the folder, or too short.
        """
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        if self._folder is None:
            raise errors.InvalidArgumentError(
                f"{label} has its data in the file {location!r}; pass the model as a path"
            )
        folder = self._folder.resolve()
        try:
            path = (folder / location).resolve()
            is_valid = bool(location) and path.is_relative_to(folder) and path.is_file()
        except (OSError, ValueError):  # too long, or not a name at all
            is_valid = False
        if not is_valid:
            raise errors.InvalidArgumentError(
                f"{label} requires a file in the model's folder, got {location!r}"
            )
        if dtype is dtypes.string:
            raise errors.InvalidArgumentError(f"{label} has strings in the file {location!r}")
        offset = _number(entries, "offset", label)
        count = int(np.prod(tensor.dims, dtype=object)) if tensor.dims else 1
        packed = _PACKED.get(tensor.data_type, 1)
        expected_size = count * dtype.size if packed == 1 else -(-count // packed)
        available = path.stat().st_size - offset
        if _number(entries, "length", label) not in (0, expected_size) or available < expected_size:
            raise errors.InvalidArgumentError(
                f"{label} of {expected_size} bytes does not fit the data in the file {location!r}: "
                f"{entries.get('length', 'no')} bytes are declared, {available} are available"
            )
        if not count:
            return _reshape(np.empty(0, dtype.numpy), tensor, label)
        raw = np.memmap(path, np.uint8, "r", offset, (expected_size,))
        if packed > 1:
            kind, dims = tensor.data_type, tensor.dims
            inner = TensorProto(data_type=kind, dims=dims, raw_data=raw.tobytes())
            return numpy_helper.to_array(inner)
        return np.asarray(raw).view(dtype.numpy).reshape(tuple(tensor.dims))

    def sparse(self, tensor: SparseTensorProto) -> np.ndarray[Any, Any]:
        """Convert a sparse tensor to a dense array.

        Raises: InvalidArgumentError: its parts do not match, or it is 1000 times larger than its
          file.
        """
        values, indices = self.array(tensor.values), self.array(tensor.indices)
        dims = tuple(tensor.dims)
        size = int(np.prod(dims, dtype=object)) if dims else 1
        if any(n < 0 for n in dims) or size > 1_000_000 + 1000 * values.size:
            raise errors.InvalidArgumentError(
                f"a sparse tensor of {values.size} values may not have shape {list(dims)}"
            )
        dense = np.zeros(dims, values.dtype)
        flat = indices if indices.ndim == 1 else np.zeros(len(indices), np.int64)
        if indices.ndim == 2 and indices.shape[1] == len(dims):
            if np.any(indices < 0) or np.any(indices >= np.array(dims)):
                raise errors.InvalidArgumentError("a sparse tensor has indices outside its shape")
            flat = np.ravel_multi_index(tuple(indices.T), dims) if dims else flat
        if flat.shape != values.shape or np.any(flat < 0) or np.any(flat >= max(size, 1)):
            raise errors.InvalidArgumentError("a sparse tensor has indices outside its shape")
        dense.reshape(-1)[flat] = values
        return dense

    def attribute(self, attribute: AttributeProto) -> Any:
        """Convert an attribute to a Python value: strings to str, tensors to arrays.

        Raises: InvalidArgumentError: its type is unknown.
        """
        read = _ATTRIBUTES.get(attribute.type)
        if read is None:
            raise errors.InvalidArgumentError(
                f"attribute {attribute.name!r} has the type {attribute.type}, which is unknown"
            )
        return read(self, attribute)


def _number(entries: dict[str, str], key: str, label: str) -> int:
    text = entries.get(key, "0")
    if not text.isdecimal() or len(text) > _MAX_DIGITS:
        raise errors.InvalidArgumentError(
            f"{label}: {key} must be a number, got {format_value(text)}"
        )
    return int(text)


def _reshape(flat: np.ndarray[Any, Any], tensor: TensorProto, label: str) -> np.ndarray[Any, Any]:
    try:
        return flat.reshape(tuple(tensor.dims))
    except ValueError:
        raise errors.InvalidArgumentError(
            f"{label} of shape {list(tensor.dims)} has {flat.size} elements"
        ) from None


_ATTRIBUTES: Final[dict[int, Callable[[Values, AttributeProto], Any]]] = {
    AttributeProto.FLOAT: lambda _, a: a.f,
    AttributeProto.INT: lambda _, a: a.i,
    AttributeProto.STRING: lambda _, a: a.s.decode("utf-8", "replace"),
    AttributeProto.TENSOR: lambda values, a: values.array(a.t),
    AttributeProto.SPARSE_TENSOR: lambda values, a: values.sparse(a.sparse_tensor),
    AttributeProto.GRAPH: lambda _, a: a.g,
    AttributeProto.TYPE_PROTO: lambda _, a: a.tp,
    AttributeProto.FLOATS: lambda _, a: list(a.floats),
    AttributeProto.INTS: lambda _, a: list(a.ints),
    AttributeProto.STRINGS: lambda _, a: [s.decode("utf-8", "replace") for s in a.strings],
    AttributeProto.TENSORS: lambda values, a: [values.array(t) for t in a.tensors],
    AttributeProto.GRAPHS: lambda _, a: list(a.graphs),
}


def type_and_shape(declared: TypeProto) -> tuple[DType, list[int | None] | None]:
    """Return the element type and shape of a value; variant for sequences and optional values.

    Raises: UnimplementedError: weft does not support the type.
    """
    if declared.HasField("tensor_type"):
        tensor = declared.tensor_type
        dims = None
        if tensor.HasField("shape"):
            dims = [
                item.dim_value if item.HasField("dim_value") and item.dim_value >= 0 else None
                for item in tensor.shape.dim
            ]
        return weft_type(tensor.elem_type), dims
    if declared.HasField("sequence_type") or declared.HasField("optional_type"):
        return dtypes.variant, []
    kind = declared.WhichOneof("value") or "no type"
    raise errors.UnimplementedError(f"values of type {kind} are not supported")


def declared_type(info: ValueInfoProto) -> tuple[DType | None, list[int | None] | None]:
    """Return the declared type and shape of a value; None if it is not declared."""
    if not info.HasField("type") or info.type == TypeProto():
        return None, None
    return type_and_shape(info.type)

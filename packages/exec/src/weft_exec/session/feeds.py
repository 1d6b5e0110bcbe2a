"""Validation and conversion of fed values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from weft_exec.resources.resources import ResourceHandle
from weft_graph.graph_util import tensor_named
from weft_graph.ir import builder, lossy_conversions
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Output
from weft_tensor import dtypes, errors
from weft_tensor.shape import format_dims
from weft_tensor.values import to_array

Converter = Callable[[Any], Any]


def converter(output: Output) -> Converter:
    """Return a function that converts a fed value to the value of `output`.

    An array with the same element type is used without a copy. Any other value is converted like
    `np.asarray(value, dtype)`. If that loses information, a warning is logged once for each line of
    the program.

    Raises (the converter): InvalidTypeError, InvalidArgumentError: the value does not fit.
    """
    dtype = output.dtype.base_dtype
    if dtype is dtypes.resource:
        return _handle_converter(output)
    if dtype is dtypes.variant:
        return lambda value: value
    if output.dims == () and dtype is not dtypes.string:
        return _scalar_converter(output)
    return _array_converter(output)


def arrays_by_tensor(
    values: Mapping[Any, Any], graph: Graph, names: Mapping[str, Output]
) -> dict[Output, np.ndarray]:
    """Convert the values that a graph is specialized for, as if they were fed.

    Args:
      values: the values by tensor, by the name of a tensor, or by a name in `names`.
      names: aliases of tensors, such as those of a signature.
    Raises:
      NotFoundError: the graph has no tensor with a name.
      InvalidTypeError, InvalidArgumentError: a value does not fit its tensor.
    """
    result = {}
    for key, value in values.items():
        tensor = names.get(key, key) if isinstance(key, str) else key
        output = tensor_named(graph, tensor) if isinstance(tensor, str) else tensor
        output = graph.as_graph_element(output, allow_operation=False)
        assert isinstance(output, Output)
        result[output] = np.asarray(converter(output)(value))
    return result


def _handle_converter(output: Output) -> Converter:
    def convert(value: Any) -> Any:
        if not isinstance(value, ResourceHandle):
            raise errors.InvalidTypeError(
                f"{output.name} is fed {value!r}; it must be fed a handle that a fetch returned",
                node=output.node.name,
                op=output.node.type,
                line=output.node.line,
            )
        return value

    return convert


def _scalar_converter(output: Output) -> Converter:
    dtype = output.dtype.base_dtype
    kind = dtype.numpy.type
    exact = {kind}
    if dtype.is_integer:
        exact.add(int)
    elif dtype.is_floating:
        exact |= {float, int}
    elif dtype.is_complex:
        exact |= {float, int, complex}

    def convert(value: Any) -> Any:
        if type(value) in exact:
            try:
                return kind(value)
            except OverflowError as cause:
                if dtype.is_integer:
                    return _convert_general(output, value)  # its error names the range
                raise errors.InvalidArgumentError(
                    f"{output.name} is fed an integer that is out of range for {dtype.name}",
                    node=output.node.name,
                    op=output.node.type,
                    line=output.node.line,
                ) from cause
        array = _convert_general(output, value)
        if array.ndim:
            raise _shape_error(output, array.shape)
        return array[()]

    return convert


def _array_converter(output: Output) -> Converter:
    dtype = output.dtype.base_dtype
    numpy_dtype = dtype.numpy
    dims = output.dims
    static = None if dims is None or None in dims else dims
    check_bytes = dtype is dtypes.string

    def convert(value: Any) -> Any:
        if type(value) is not np.ndarray or value.dtype is not numpy_dtype or check_bytes:
            value = _convert_general(output, value)
        shape = value.shape
        if shape == static or dims is None:
            return value
        if len(shape) != len(dims):
            raise _shape_error(output, shape)
        for dim, actual in zip(dims, shape, strict=True):
            if dim is not None and dim != actual:
                raise _shape_error(output, shape)
        return value

    return convert


def _convert_general(output: Output, value: Any) -> np.ndarray:
    dtype = output.dtype.base_dtype
    if isinstance(value, Output) or hasattr(value, "_as_output"):
        raise errors.InvalidTypeError(
            f"{output.name} is fed {value!r}, which is itself part of a graph; feed its value"
        )
    if isinstance(value, np.ndarray) and value.dtype == dtype.numpy and not value.dtype.hasobject:
        return np.asarray(value)
    if value is None:
        raise errors.InvalidTypeError(f"{output.name} is fed None")

    def lost(change: str) -> None:
        lossy_conversions.say(output.name, dtype, change, builder.format_line(*builder.user_line()))

    try:
        return np.asarray(to_array(value, dtype, lost))
    except errors.OpError as error:
        raise type(error)(
            f"{output.name} is fed a value that does not fit: {error.message}",
            node=output.node.name,
            op=output.node.type,
            line=output.node.line,
        ) from error


def _shape_error(output: Output, shape: tuple[int, ...]) -> errors.InvalidArgumentError:
    return errors.InvalidArgumentError(
        f"{output.name} requires shape {format_dims(output.dims)}, "
        f"but is fed a value of shape {format_dims(shape)}",
        node=output.node.name,
        op=output.node.type,
        line=output.node.line,
    )

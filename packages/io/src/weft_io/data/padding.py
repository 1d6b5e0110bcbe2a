"""Conversion of the padding arguments of `padded_batch`, for each component."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft_graph.ir import nest
from weft_graph.ir.builder import convert_to_tensor
from weft_graph.ir.constant_value import constant_value
from weft_graph.ir.node import Output
from weft_io.arguments import scalar
from weft_tensor import dtypes, errors
from weft_tensor.arguments import INT64_MAX
from weft_tensor.shape import Dims, as_dims


def compute_padded_shapes(form: Any, padded_shapes: Any) -> tuple[list[Output], list[Dims]]:
    """Return the padded shape of each component: as a tensor, and the statically known part.

    Args:
      form: the form of the elements.
      padded_shapes: a structure of shapes: TensorShapes, lists, or tensors int64 of shape (rank,).
    Raises: InvalidArgumentError: a shape is incompatible with the elements.
    """
    shapes = nest.flatten_up_to(form, padded_shapes, check_types=False)
    tensors: list[Output] = []
    dims: list[Dims] = []
    for spec, shape in zip(nest.flatten(form), shapes, strict=True):
        tensor, static_shape = _shape(shape)
        if static_shape is not None and spec.dims is not None:
            _check_fits(static_shape, spec.dims)
        tensors.append(tensor)
        dims.append(static_shape)
    return tensors, dims


def _shape(shape: Any) -> tuple[Output, Dims]:
    if isinstance(shape, Output):
        if not shape.dtype.is_integer or (shape.dims is not None and len(shape.dims) != 1):
            raise errors.InvalidArgumentError(
                f"a shape in padded_shapes must be int64, shape (rank,), got {shape!r}"
            )
        constant = constant_value(shape)
        if constant is None:
            rank = None if shape.dims is None else shape.dims[0]
            return shape, None if rank is None else (None,) * rank
        sizes: Any = [None if n < 0 else int(n) for n in constant]
        return convert_to_tensor(constant.astype(np.int64)), tuple(sizes)
    listed = shape if isinstance(shape, list | tuple) else [shape]
    if any(isinstance(n, int) and n > INT64_MAX for n in listed):
        raise errors.InvalidArgumentError(
            f"a size in padded_shapes must be at most {INT64_MAX}, got {shape}"
        )
    if isinstance(shape, list | tuple):
        shape = [None if n == -1 else n for n in shape]
    dims = as_dims(shape)
    if dims is None:
        raise errors.InvalidArgumentError("padded_shapes must have known ranks, got <unknown>")
    values = np.array([-1 if n is None else n for n in dims], np.int64)
    return convert_to_tensor(values), dims


def _check_fits(padded: Dims, dims: Dims) -> None:
    assert padded is not None and dims is not None
    fits = len(padded) == len(dims) and all(
        expected is None or size is None or size <= expected
        for expected, size in zip(padded, dims, strict=True)
    )
    if not fits:
        raise errors.InvalidArgumentError(
            f"The padded shape {padded} is not compatible with the corresponding input component "
            f"shape {dims}."
        )


def padding_values_for(form: Any, padding: Any) -> list[Output]:
    """Return the padding value of each component.

    Raises: InvalidTypeError: its element type is wrong; InvalidArgumentError: it is not a scalar.
    """
    flat = nest.flatten(form)
    values = (
        [None] * len(flat)
        if padding is None
        else nest.flatten_up_to(form, padding, check_types=False)
    )
    outputs: list[Output] = []
    for spec, value in zip(flat, values, strict=True):
        if value is None:
            value = b"" if spec.dtype is dtypes.string else np.zeros((), spec.dtype.numpy)
        outputs.append(scalar(value, spec.dtype, "a value in padding_values"))
    return outputs

"""Operations on gradients: sums, zeros, and conversion of sparse gradients to dense ones."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from weft_graph.ir import builder
from weft_graph.ir.constant_value import constant_value_as_dims
from weft_graph.ir.indexed_slices import IndexedSlices
from weft_graph.ir.node import Output
from weft_graph.ops import array, control, join, shapes
from weft_graph.ops.resource_state import handle_dims, handle_source
from weft_tensor import dtypes
from weft_tensor.shape import is_fully_defined

Grad = Output | IndexedSlices

_log = logging.getLogger("weft")
_DENSE_WARNING_BYTES = 1 << 26


def is_trainable(output: Output) -> bool:
    """Return True if gradients flow through an output's element type."""
    dtype = output.dtype.base_dtype
    return dtype.is_floating or dtype.is_complex or dtype is dtypes.resource


def needs_zeros(output: Output) -> bool:
    """Return True if a missing gradient may be replaced by zeros."""
    return is_trainable(output) and output.dtype is not dtypes.resource


def zeros_like(output: Output) -> Output:
    """Return zeros of the shape of an output."""
    return array.zeros_like(output, optimize=False)


def as_dense(grad: Grad | None) -> Output | None:
    """Return `grad` as one dense output; warn if that uses much memory."""
    if grad is None or isinstance(grad, Output):
        return grad
    _warn_dense(grad)
    return builder.convert_to_tensor(grad)


_warned: set[str] = set()


def _warn_dense(grad: Any) -> None:
    dims = None if grad.dense_shape is None else constant_value_as_dims(grad.dense_shape)
    size = 1
    for d in dims or ():
        size *= d or 1
    if size * grad.dtype.size >= _DENSE_WARNING_BYTES and "dense" not in _warned:
        _warned.add("dense")
        _log.warning(
            "converting a sparse gradient of shape %s to a dense tensor, which may use much memory",
            dims,
        )


def add_all(grads: Sequence[Grad]) -> Grad:
    """Return the sum of an output's gradients; it is sparse if all of them are."""
    if all(isinstance(grad, IndexedSlices) for grad in grads):
        return _concatenate(grads)  # type: ignore[arg-type]
    return builder.out("AddN", [[as_dense(grad) for grad in grads]])


def _concatenate(grads: Sequence[IndexedSlices]) -> IndexedSlices:
    return IndexedSlices(
        join.concat([grad.values for grad in grads], 0),
        join.concat([grad.indices for grad in grads], 0),
        grads[0].dense_shape,
    )


def zeros_for(output: Output) -> Output:
    """Return zeros of the shape of an output, or of a handle's variable."""
    if output.dtype is dtypes.resource:
        return _zeros_for_handle(output)
    dtype = output.dtype.base_dtype
    if is_fully_defined(output.dims):
        return array.zeros(output.dims, dtype)
    zeros = array.zeros(shapes.shape(output), dtype)
    zeros.set_shape(output.dims)
    return zeros


def _zeros_for_handle(handle: Output) -> Output:
    node = handle_source(handle)
    dtype = dtypes.float32 if node is None else node.attrs["dtype"]
    dims = None if node is None else node.attrs["shape"]
    if is_fully_defined(dims):
        return array.zeros(dims, dtype)
    return array.zeros_like(builder.out("ReadVariableOp", [handle], {"dtype": dtype}))


def shape_for(output: Output) -> Output:
    """Return the shape of an output, or of a handle's variable, as an int32 vector."""
    if output.dtype is not dtypes.resource:
        return shapes.shape(output)
    dims = handle_dims(output)
    if is_fully_defined(dims):
        return builder.constant(list(dims or ()), dtypes.int32)
    return builder.out("VariableShape", [output])


def empty_slices(output: Output, like: IndexedSlices) -> IndexedSlices:
    """Return empty slices of an output, with the element types of other slices."""
    values = like.values
    inner = None if values.dims is None else values.dims[1:]
    if is_fully_defined(inner):
        none = array.zeros([0, *(inner or ())], values.dtype)
    else:
        none = array.zeros(join.concat([[0], shape_for(output)[1:]], 0), values.dtype)
        none.set_shape(None if inner is None else (0, *inner))
    return IndexedSlices(none, array.zeros([0], like.indices.dtype))


def all_before_any(grads: Sequence[Grad | None]) -> list[Grad | None]:
    """Return the same gradients, all available only when all are computed."""
    present = [grad for grad in grads if grad is not None]
    if len(present) < 2:
        return list(grads)
    gated = iter(control.tuple(present))
    return [None if grad is None else next(gated) for grad in grads]

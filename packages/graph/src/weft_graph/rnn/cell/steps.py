"""Helpers of recurrent networks: batch sizes, zero states, ends of sequences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft_graph.ir import nest
from weft_graph.ir.builder import constant_of, convert_to_tensor, out
from weft_graph.ir.constant_value import constant_value, constant_value_as_dims
from weft_graph.ir.node import Output
from weft_graph.ops import array, join, shapes
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType
from weft_tensor.shape import Dims, as_dims, format_dims, is_fully_defined

Size = Any
"""A single size, a shape, or an integer tensor of rank 0 or 1."""


def _static(size: Size) -> Dims:
    if not isinstance(size, Output):
        return as_dims(size)
    if size.dims == ():
        value = constant_value(size)
        return (None if value is None else int(value),)
    return constant_value_as_dims(size)


def _vector(size: Size, dims: Dims) -> Output:
    """Return a size as an int32 vector."""
    if not isinstance(size, Output):
        if dims is None or None in dims:
            raise errors.InvalidArgumentError(
                "a shape that is converted to a tensor must be fully known, got "
                f"{format_dims(dims)}"
            )
        return shapes.shape_vector(dims, dtypes.int32)
    if size.dims not in ((), None) and len(size.dims or ()) != 1:
        raise errors.InvalidArgumentError(
            f"a size must be an integer tensor of rank 0 or 1, got {size!r}"
        )
    if size.dtype.base_dtype is not dtypes.int32:
        size = out("Cast", [size], {"DstT": dtypes.int32})
    return shapes.expand_dims(size, 0) if size.dims == () else size


def concat_dims(prefix: Size, suffix: Size) -> Dims:
    """Return the static result of `concat_sizes`."""
    first, second = _static(prefix), _static(suffix)
    return None if first is None or second is None else (*first, *second)


def concat_sizes(prefix: Size, suffix: Size) -> Any:
    """Return the sizes of `prefix` followed by those of `suffix`.

    Args:
      prefix: usually the batch size.
      suffix: usually the size of a state or an output.
    Returns: a tuple of integers if all are static, else an int32 vector.
    Raises: InvalidArgumentError: a static shape has unknown sizes, or the rank of a tensor of sizes
      is above 1.
    """
    dims = concat_dims(prefix, suffix)
    if is_fully_defined(dims):
        return dims
    parts = [_vector(part, _static(part)) for part in (prefix, suffix)]
    return out("ConcatV2", [parts, 0], name="concat")


def zeros_of(batch_size: Size, size: Size, dtype: Any) -> Output:
    """Return zeros of shape (batch_size, *size)."""
    result = array.zeros(concat_sizes(batch_size, size), dtype)
    result.set_shape(concat_dims(batch_size, size))
    return result


def zero_tensors(sizes: Any, batch_size: Size, dtype: Any) -> Any:
    """Return zeros for each size of a structure; see `zeros_of`."""
    return nest.map_structure(lambda size: zeros_of(batch_size, size, dtype), sizes)


def infer_state_dtype(explicit_dtype: Any, state: Any) -> DType:
    """Return `dtype`, or the element type of a state if it is None.

    Raises: InvalidArgumentError: the parts of the state have different types, or there are none.
    """
    if explicit_dtype is not None:
        return dtypes.as_dtype(explicit_dtype)
    element_types = {dtypes.as_dtype(tensor.dtype).base_dtype for tensor in nest.flatten(state)}
    if len(element_types) != 1:
        names = sorted(dtype.name for dtype in element_types)
        raise errors.InvalidArgumentError(
            f"dtype is required if the parts of the state have different types, got {names}"
        )
    return element_types.pop()


def initial_state_of(cell: Any, batch_size: Any, dtype: Any) -> Any:
    """Return the initial state of a cell if the caller passed none.

    Raises: InvalidArgumentError: `dtype` is None too.
    """
    if not dtype:
        raise errors.InvalidArgumentError("dtype is required without initial_state")
    if hasattr(cell, "get_initial_state"):
        return cell.get_initial_state(inputs=None, batch_size=batch_size, dtype=dtype)
    return cell.zero_state(batch_size, dtype)


def batch_size_of(inputs: Sequence[Output], axis: int) -> Any:
    """Return the common size of tensors along `axis`: an integer if one of them is static.

    Args:
      inputs: at least one tensor, of rank above `axis` or unknown.
      axis: 1 if time is the first axis.
    Returns: an integer, or an int32 tensor of rank 0.
    Raises: InvalidArgumentError: a rank is too low.
    """
    for tensor in inputs:
        dims = tensor.dims
        if dims is None:
            continue
        if len(dims) <= axis:
            raise errors.InvalidArgumentError(
                f"inputs must have a rank of at least {axis + 1}, got {tensor!r}"
            )
        if dims[axis] is not None:
            return dims[axis]
    return shapes.shape(inputs[0])[axis]


def transpose_batch_time(x: Output) -> Output:
    """Swap the first two axes; return `x` itself if its rank is known to be below 2."""
    dims = x.dims
    if dims is None:
        inner_axes = out("Range", [2, shapes.rank(x), 1])
        perm = out("ConcatV2", [[[1, 0], inner_axes], 0])
        return out("Transpose", [x, perm], name="transpose")
    if len(dims) < 2:
        return x
    return out("Transpose", [x, [1, 0, *range(2, len(dims))]], name="transpose")


# --------------------------------------------------------------------------- ends of sequences


def lengths_of(sequence_length: Any) -> Output:
    """Return the lengths of sequences as an integer tensor of rank 1 or unknown rank.

    Floats are truncated.

    Raises:
      InvalidTypeError: they are not numbers.
      InvalidArgumentError: the rank is not 1.
    """
    lengths = convert_to_tensor(sequence_length, name="sequence_length")
    if lengths.dims is not None and len(lengths.dims) != 1:
        raise errors.InvalidArgumentError(
            f"sequence_length must be a vector of the batch size, got {lengths!r}"
        )
    if lengths.dtype.is_floating:
        return out("Cast", [lengths], {"DstT": dtypes.int32})
    if not lengths.dtype.is_integer:
        raise errors.InvalidTypeError(f"sequence_length must be numbers, got {lengths!r}")
    return lengths


def copy_through(past_end: Output, before: Any, after: Any) -> Any:
    """Return, for each example, `before` if its sequence has ended, else `after`.

    Args:
      past_end: bool, shape (B,).
      before, after: structures of tensors of shape (B, ...). Tensors of rank 0, and other values,
        do not belong to one example; those of `after` are returned.
    Raises: InvalidArgumentError, InvalidTypeError: the structures differ.
    """
    return nest.map_structure(lambda old, new: _select_past_end(past_end, old, new), before, after)


def _select_past_end(past_end: Output, old: Any, new: Any) -> Any:
    if not isinstance(new, Output) or new.dims == () or getattr(old, "dims", None) == ():
        return new
    result = out("Select", [past_end, old, new])
    if isinstance(old, Output):
        result.set_shape(old.dims)
    return result


def rnn_step(
    past_end: Output, zero_output: Any, state: Any, call_cell: Callable[[], tuple[Any, Any]]
) -> tuple[Any, Any]:
    """Compute one step of a cell over a batch of sequences; some may have ended.

    The cell runs for all examples. Ended ones output zeros and keep their state.

    Args:
      past_end: bool, shape (B,).
      zero_output: zeros in the structure of the cell's output.
      state: the state before the step.
      call_cell: function that returns the output and the next state.
    Returns: output and state.
    Raises: InvalidArgumentError, InvalidTypeError: the structure of the cell's output or state
      differs.
    """
    output, new_state = call_cell()
    outputs = copy_through(past_end, zero_output, output)
    return outputs, copy_through(past_end, state, new_state)


def past_ends(sequence_length: Output, steps: int) -> list[Output]:
    """Return, for each of `steps` steps, a mask of the ended sequences: bool, shape (B,)."""
    kind = sequence_length.dtype.base_dtype
    times = constant_of(np.arange(steps, dtype=kind.numpy)[:, None], kind, name="times")
    is_finished = out("GreaterEqual", [times, sequence_length], name="past_end")
    return join.unstack(is_finished, num=steps)

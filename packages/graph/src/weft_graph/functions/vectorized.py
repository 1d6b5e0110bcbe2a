"""Row-wise application of a function whose results need no declaration."""

from __future__ import annotations

__all__ = ["vectorized_map"]

from collections.abc import Callable
from typing import Any

from weft_graph.control_flow.functional import map_fn
from weft_graph.functions.decorator import function
from weft_graph.functions.type_spec import TensorSpec
from weft_graph.ir import nest
from weft_graph.ir.builder import convert_to_tensor
from weft_graph.ir.default_graph import name_scope
from weft_graph.ir.node import Output
from weft_graph.ops import sequence, shapes
from weft_tensor import errors


def vectorized_map(
    fn: Callable[[Any], Any],
    elems: Any,
    fallback_to_while_loop: bool = True,
    warn: bool = True,
) -> Any:
    """Apply `fn` to every row and stack the results along a new first axis.

    Unlike `map_fn`, it infers the types of the results, and a tensor with one row is broadcast to
    the rows of the others.

    Args:
      fn: function of a row of `elems`, in its structure; it is trace_row once, as by `function`.
      elems: tensors of shape (N, ...), or (1, ...) to broadcast one row, in any structure.
      fallback_to_while_loop: no effect: the result is a loop with several concurrent iterations.
      warn: no effect.
    Returns: tensors of shape (N, ...) in the structure of the results of `fn`.
    Raises:
      InvalidTypeError: `fn` is not callable.
      InvalidArgumentError: there are no tensors, one has rank 0, or the numbers of rows differ.

    Examples:
      >>> x = wf.constant([[1.0, 2.0], [3.0, 4.0]])
      >>> total, large = wf.vectorized_map(lambda row: (wf.reduce_sum(row), row > 2.0), x)
      >>> wf.Session().run(total)
      array([3., 7.], dtype=float32)
      >>> wf.Session().run(large)
      array([[False, False],
             [ True,  True]])
    """
    if not callable(fn):
        raise errors.InvalidTypeError(f"fn must be callable, got {fn!r}")
    with name_scope("vectorized_map"):
        converted = nest.map_structure(convert_to_tensor, elems)
        tensors = nest.flatten(converted)
        count = _rows(tensors)
        types: list[Any] = []

        def trace_row(row: Any) -> Any:
            results = nest.map_structure(convert_to_tensor, fn(row))
            types.append(nest.map_structure(lambda output: output.dtype.base_dtype, results))
            return results

        call = function(trace_row)
        specs = [TensorSpec(None if t.dims is None else t.dims[1:], t.dtype) for t in tensors]
        call.get_concrete_function(nest.pack_sequence_as(converted, specs))

        def call_on_row(i: Output) -> Any:
            rows = [t[0] if t.dims is not None and t.dims[0] == 1 else t[i] for t in tensors]
            return call(nest.pack_sequence_as(converted, rows))

        return map_fn(call_on_row, sequence.range(count), dtype=types[0])


def _rows(tensors: list[Output]) -> Any:
    """Return the number of rows of the first tensor, ignoring tensors known to have one row.

    Raises: InvalidArgumentError: there are no tensors, one has rank 0, or the numbers of rows
      differ.
    """
    if not tensors or any(tensor.dims == () for tensor in tensors):
        raise errors.InvalidArgumentError(
            f"vectorized_map requires tensors of rank 1 or more, got {tensors!r}"
        )
    num_rows = [tensor.dims[0] for tensor in tensors if tensor.dims is not None]
    distinct_counts = {size for size in num_rows if size not in (None, 1)}
    if len(distinct_counts) > 1:
        raise errors.InvalidArgumentError(
            f"elems must have equal numbers of rows, or one row; got {sorted(distinct_counts)}"
        )
    longest = [t for t in tensors if t.dims is None or t.dims[0] != 1] or tensors
    return distinct_counts.pop() if distinct_counts else shapes.shape(longest[0])[0]

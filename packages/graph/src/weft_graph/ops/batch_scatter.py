"""Batched updates of rows of variables, composed of other ops."""

from __future__ import annotations

from typing import Any

from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ops.gather import with_batch_positions
from weft_graph.ops.state import scatter_nd_update
from weft_tensor import errors

__all__ = ["batch_scatter_update"]


def batch_scatter_update(
    ref: Any, indices: Any, updates: Any, use_locking: bool = True, name: str | None = None
) -> Any:
    """Replace rows of a variable in each batch: `ref[b][indices[b][i]] = updates[b][i]`.

    Args:
      ref: a variable of shape (B, N, ...), where B are the batch axes.
      indices: int32 or int64, shape (B, n), of known rank; each in [0, N).
      updates: shape (B, n, ...).
      use_locking: accepted and ignored; updates are always atomic.
    Returns: the variable after the update.
    Raises:
      InvalidArgumentError: the rank of `indices` is unknown or 0; at run time, an index is out of
        range.

    Examples:
      >>> x = wf.Variable([[1, 2, 3], [4, 5, 6]])
      >>> with wf.Session() as session:
      ...     session.run(x.initializer)
      ...     session.run(wf.batch_scatter_update(x, [[0], [2]], [[10], [60]]))
      array([[10,  2,  3],
             [ 4,  5, 60]], dtype=int32)
    """
    index_tensor = convert_to_tensor(indices)
    if not index_tensor.dims:
        raise errors.InvalidArgumentError(
            f"indices must have a known rank of at least 1, got {index_tensor!r}"
        )
    points = with_batch_positions(out("ExpandDims", [index_tensor, -1]), len(index_tensor.dims) - 1)
    return scatter_nd_update(ref, points, updates, use_locking, name)

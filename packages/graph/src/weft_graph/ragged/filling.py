"""Filling of empty rows."""

from __future__ import annotations

__all__ = ["ragged_fill_empty_rows", "ragged_fill_empty_rows_grad"]

from typing import Any, NamedTuple

from weft_graph.ir.builder import create
from weft_graph.ir.node import Output


class FilledRows(NamedTuple):
    """The result of `ragged_fill_empty_rows`."""

    output_value_rowids: Output
    output_values: Output
    empty_row_indicator: Output
    reverse_index_map: Output


class FilledRowsGradient(NamedTuple):
    """The result of `ragged_fill_empty_rows_grad`."""

    d_values: Output
    d_default_value: Output


def ragged_fill_empty_rows(
    value_rowids: Any, values: Any, nrows: Any, default_value: Any, name: str | None = None
) -> FilledRows:
    """Add a default value to each empty row.

    Args:
      value_rowids: int64, shape (n,), not decreasing: the row of each value.
      values: any type, shape (n,).
      nrows: int64, shape (): number of rows.
      default_value: type of `values`, shape (): value for empty rows.
      name: name of the node.
    Returns: `output_value_rowids`, int64, and `output_values`, shape (m,); `empty_row_indicator`,
      bool, shape (nrows,): True for empty rows; `reverse_index_map`, int64, shape (n,): the index
      of each value in the result.
    Raises (at run time): InvalidArgumentError: a row id is out of range, or they decrease.

    Examples:
      >>> filled = wf.ragged_fill_empty_rows([0, 2, 2], [5, 6, 7], nrows=4, default_value=-1)
      >>> ids, values, empty, _ = wf.Session().run(filled)
      >>> ids, values, empty
      (array([0, 1, 2, 2, 3]), array([ 5, -1,  6,  7, -1], dtype=int32), array([False,  True, \
False,  True]))
    """
    inputs = [value_rowids, values, nrows, default_value]
    return FilledRows(*create("RaggedFillEmptyRows", inputs, name=name).outputs)


def ragged_fill_empty_rows_grad(
    reverse_index_map: Any, grad_values: Any, name: str | None = None
) -> FilledRowsGradient:
    """Return the gradient of `ragged_fill_empty_rows`.

    Args:
      reverse_index_map: result of `ragged_fill_empty_rows`, int64, shape (n,).
      grad_values: numbers, shape (m,): the gradient of `output_values`.
      name: name of the node.
    Returns: the gradients `d_values`, shape (n,), and `d_default_value`, shape ().
    Raises (at run time): InvalidArgumentError: an index is out of range.

    Examples:
      >>> grads = wf.ragged_fill_empty_rows_grad([0, 2], [1.0, 2.0, 3.0])
      >>> wf.Session().run(grads.d_values), wf.Session().run(grads.d_default_value)
      (array([1., 3.], dtype=float32), np.float32(2.0))
    """
    inputs = [reverse_index_map, grad_values]
    return FilledRowsGradient(*create("RaggedFillEmptyRowsGrad", inputs, name=name).outputs)

"""Stacked cells."""

from __future__ import annotations

__all__ = ["MultiRNNCell"]

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from weft_graph.ir import nest
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ops import join, slicing
from weft_graph.rnn.cell.base import RNNCell, assert_like_rnncell
from weft_graph.rnn.cell.config import to_config
from weft_graph.variables.scope import variable_scope
from weft_tensor import errors


class MultiRNNCell(RNNCell):
    """Stacked cells: the output of each cell is the input of the next one.

    Args:
      cells: at least one cell; the first one receives the input.
      state_is_tuple: True for a tuple of states, False for one tensor of all states.
    Raises:
      InvalidTypeError: `cells` is not a list or tuple.
      InvalidArgumentError: it is empty, or `state_is_tuple` is False and the state of a cell is not
        a single tensor.

    Examples:
      >>> cells = [wf.nn.rnn_cell.GRUCell(8), wf.nn.rnn_cell.GRUCell(4)]
      >>> wf.nn.rnn_cell.MultiRNNCell(cells).output_size
      4
    """

    def __init__(self, cells: Sequence[Any], state_is_tuple: bool = True) -> None:
        super().__init__()
        if not isinstance(cells, Sequence):
            raise errors.InvalidTypeError(f"cells must be a list or tuple of cells, got {cells!r}")
        for cell in cells:
            assert_like_rnncell("cells", cell)
        if not cells:
            raise errors.InvalidArgumentError("MultiRNNCell requires at least one cell")
        if len({id(cell) for cell in cells}) < len(cells):
            warnings.warn(
                "MultiRNNCell received the same cell object twice, so these layers share their "
                "weights; create one cell per layer",
                stacklevel=2,
            )
        sizes = [] if state_is_tuple else [cell.state_size for cell in cells]
        if any(nest.is_nested(size) for size in sizes):
            raise errors.InvalidArgumentError(
                "state_is_tuple=False requires cells whose state is one tensor, "
                f"got the state sizes {sizes}"
            )
        self._cells = list(cells)
        self._state_is_tuple = state_is_tuple

    def get_config(self) -> dict[str, Any]:
        """Return the cells and `state_is_tuple`; see `RNNCell`."""
        return {"cells": to_config(self._cells), "state_is_tuple": self._state_is_tuple}

    def _inner_cells(self) -> Sequence[Any]:
        return self._cells

    def _trackable_items(self) -> Iterator[tuple[str, Any]]:
        yield from ((f"cell-{number}", cell) for number, cell in enumerate(self._cells))
        yield from super()._trackable_items()

    @property
    def state_size(self) -> Any:
        """A tuple of the cells' sizes, or their sum."""
        sizes = [cell.state_size for cell in self._cells]
        return tuple(sizes) if self._state_is_tuple else sum(sizes)

    @property
    def output_size(self) -> Any:
        """Return the output size of the last cell."""
        return self._cells[-1].output_size

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        """Return a state of zeros; see `RNNCell`."""
        if not self._state_is_tuple:
            return super().zero_state(batch_size, dtype)
        with get_default_graph().name_scope(type(self).__name__ + "ZeroState"):
            return tuple(cell.zero_state(batch_size, dtype) for cell in self._cells)

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """Compute one step of each cell.

        Raises: InvalidArgumentError: the number of states is not that of the cells.
        """
        states = self._states(state)
        new_states = []
        for number, (cell, old_state) in enumerate(zip(self._cells, states, strict=True)):
            with variable_scope(f"cell_{number}"):
                inputs, new_state = cell(inputs, old_state)
            new_states.append(new_state)
        if self._state_is_tuple:
            return inputs, tuple(new_states)
        return inputs, join.concat(new_states, 1)

    def _states(self, state: Any) -> list[Any]:
        """Return the state of each cell."""
        if not self._state_is_tuple:
            sizes = [cell.state_size for cell in self._cells]
            starts = [sum(sizes[:number]) for number in range(len(sizes))]
            return [
                slicing.slice(state, [0, start], [-1, size])
                for start, size in zip(starts, sizes, strict=True)
            ]
        if not nest.is_nested(state) or len(state) != len(self._cells):
            raise errors.InvalidArgumentError(
                f"cell {self.name} requires a tuple of {len(self._cells)} states, got {state!r}"
            )
        return list(state)

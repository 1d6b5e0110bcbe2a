"""Cases of the ops with state: the value before, the update, and the value after.

They take references and handles rather than arrays, so `CASES` is empty and `STATE_CASES` are run
by tests/exec/kernels/test_state.py, over both kinds of variables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from weft_testing.cases import FLOATS, REALS, Case

Array = np.ndarray[Any, Any]
CASES: list[Case] = []
NUMBERS = (*REALS, "complex64")


class StateCase:
    """One update.

    Args:
      op: "Add" for AssignAdd and AssignAddVariableOp, "ScatterAdd" for the two scatters, ...
      before: the variable's value.
      inputs: the update's arguments; floats are cast to the varied type.
      after: the value expected.
      dtypes: element types to run.
    """

    def __init__(
        self,
        op: str,
        before: Any,
        inputs: Sequence[Any],
        after: Any,
        dtypes: Sequence[str] = NUMBERS,
        label: str = "",
    ) -> None:
        self.op = op
        self.before = np.array(before, float)
        self.inputs = inputs
        self.after = np.array(after, float)
        self.dtypes = dtypes
        self.name = f"{op}-{label}" if label else op


def _loop(update: Callable[[Any, Any], Any]) -> Callable[[Any, Any, Any], Array]:
    """A scatter in the plainest way."""

    def run(before: Any, indices: Any, updates: Any) -> Array:
        array = np.array(before, float)
        flat = np.reshape(indices, -1)
        rows = np.broadcast_to(updates, np.shape(indices) + array.shape[1:])
        for row, value in zip(flat, rows.reshape(-1, *array.shape[1:]), strict=True):
            array[row] = update(array[row], value)
        return array

    return run


TABLE = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]]
ONCE = np.array([2, 0], np.int32)
TWICE = np.array([[1, 3, 1], [1, 0, 3]], np.int64)
ROWS = np.array([[2.0, 4.0], [1.0, 2.0]])
MORE = np.array([[[1.0, 2.0], [2.0, 1.0], [3.0, 1.0]], [[1.0, 1.0], [4.0, 2.0], [2.0, 2.0]]])
HOWS = {
    "Update": _loop(lambda a, b: b),
    "Add": _loop(lambda a, b: a + b),
    "Sub": _loop(lambda a, b: a - b),
    "Mul": _loop(lambda a, b: a * b),
    "Div": _loop(lambda a, b: a / b),
    "Min": _loop(np.minimum),
    "Max": _loop(np.maximum),
}
ORDERED = {"Min": REALS, "Max": REALS, "Div": ("float32", "float64", "complex64")}
SIGNED = (*FLOATS, "int8", "int16", "int32", "int64", "complex64")

STATE_CASES = [
    StateCase("Assign", [1.0, 2.0], [np.array([3.0, 4.0])], [3.0, 4.0], (*NUMBERS, "bool")),
    StateCase("AssignAdd", [1.0, 2.0], [np.array([3.0, 4.0])], [4.0, 6.0]),
    StateCase("AssignSub", [5.0, 6.0], [np.array([3.0, 4.0])], [2.0, 2.0]),
    StateCase("AssignAdd", 1.0, [np.array(3.0)], 4.0, label="rank 0"),
    StateCase("AssignSub", 5.0, [np.array(3.0)], 2.0, label="rank 0"),
    *[
        StateCase(
            f"Scatter{how}",
            table,
            [indices, updates],
            run(table, indices, updates),
            ORDERED.get(how, SIGNED),
            label,
        )
        for how, run in HOWS.items()
        for label, table, indices, updates in (
            ("once", TABLE, ONCE, ROWS),
            ("twice", TABLE, TWICE, MORE),
            ("scalar update", TABLE, TWICE, np.array(2.0)),
            ("vector", [1.0, 2.0, 3.0], np.array([0, 2, 0], np.int32), np.array([1.0, 2.0, 4.0])),
            ("one index", TABLE, np.array(1, np.int32), np.array([2.0, 1.0])),
            ("no index", TABLE, np.zeros(0, np.int32), np.zeros((0, 2))),
        )
    ],
    StateCase(
        "ScatterNdUpdate",
        TABLE,
        [np.array([[0, 1], [3, 0]], np.int32), np.array([9.0, 8.0])],
        [[1, 9], [3, 4], [5, 6], [8, 8]],
        SIGNED,
    ),
    StateCase(
        "ScatterNdAdd",
        TABLE,
        [np.array([[0, 1], [3, 0], [0, 1]], np.int32), np.array([9.0, 8.0, 1.0])],
        [[1, 12], [3, 4], [5, 6], [15, 8]],
        SIGNED,
    ),
    StateCase(
        "ScatterNdSub",
        TABLE,
        [np.array([[1], [1]], np.int64), np.array([[1.0, 2.0], [1.0, 1.0]])],
        [[1, 2], [1, 1], [5, 6], [7, 8]],
        SIGNED,
        "rows",
    ),
]

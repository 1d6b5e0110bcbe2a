"""A lowered graph: rules add ops to it, and passes edit it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from weft_lite.schema.enums import DataType, Layout, OpKind, Storage

Array = np.ndarray[Any, Any]

TYPES = {
    "float32": DataType.FLOAT32,
    "int32": DataType.INT32,
    "uint8": DataType.UINT8,
    "int16": DataType.INT16,
    "int8": DataType.INT8,
    "int64": DataType.INT64,
    "bool": DataType.BOOL,
    "float16": DataType.FLOAT16,
}
"""Element types by their names in NumPy and graphs."""

NAMES = {kind: name for name, kind in TYPES.items()}
"""Names of the element types."""


@dataclass(eq=False)
class Value:
    """A tensor of the file; a constant if `array` is not None.

    Attributes:
      shape: the shape, with each dynamic dimension replaced by its bound.
      declared: the shape, with -1 for dynamic dimensions.
    """

    name: str
    dtype: DataType
    shape: tuple[int, ...]
    declared: tuple[int, ...]
    array: Array | None = None
    storage: Storage = Storage.ARENA
    layout: Layout = Layout.PLAIN
    scales: list[float] = field(default_factory=list)
    zero_points: list[int] = field(default_factory=list)
    axis: int = 0


@dataclass(eq=False)
class Operation:
    """An op of the file, on values; None for an omitted operand."""

    kind: OpKind
    inputs: list[Value | None]
    outputs: list[Value]
    options: Any = None
    name: str = ""


@dataclass(eq=False)
class Lowered:
    """A graph of operations, in execution order.

    `bodies` are the subgraphs of If and While, whose options refer to them by their index in this
    list, starting with 1.
    """

    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    ops: list[Operation] = field(default_factory=list)
    bodies: list[Lowered] = field(default_factory=list)

    def consumers(self) -> dict[Value, list[Operation]]:
        """Return the ops that read each value, including those in bodies."""
        operations: dict[Value, list[Operation]] = {}
        for graph in self.graphs():
            for op in graph.ops:
                for value in op.inputs:
                    if value is not None:
                        operations.setdefault(value, []).append(op)
        return operations

    def graphs(self) -> list[Lowered]:
        """Return the main graph and its bodies."""
        return [self, *self.bodies]

    def results(self) -> set[Value]:
        """Return the outputs of the main graph and of bodies."""
        return {value for graph in self.graphs() for value in graph.outputs}


def constant(name: str, array: Any, layout: Layout = Layout.PLAIN) -> Value:
    """Return a constant of the file."""
    contiguous = np.require(array, requirements="C")  # which keeps rank 0
    kind, shape = TYPES[contiguous.dtype.name], tuple(contiguous.shape)
    return Value(name, kind, shape, shape, contiguous, Storage.CONSTANT, layout)


def floats(values: Sequence[Value | None] | Iterable[Value | None]) -> bool:
    """Return True if all values are float32."""
    return all(value is None or value.dtype is DataType.FLOAT32 for value in values)

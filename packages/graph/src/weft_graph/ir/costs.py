"""Cost rules: the cost of one execution of a node.

Rules are part of the declarations of ops (`Traits.cost`); most come from `ops.cost_rules`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any, NamedTuple, TypeAlias

from weft_tensor.dtypes import DType

Shape: TypeAlias = tuple[int, ...]


class Sizes(NamedTuple):
    """The sizes of one node's values, all known or assumed.

    Attributes:
      attrs: the node's attributes.
      inputs, outputs: shapes.
      input_types, output_types: element types.
      input_bytes, output_bytes: their sizes in bytes.
    """

    attrs: Mapping[str, Any]
    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]
    input_types: tuple[DType, ...]
    output_types: tuple[DType, ...]
    input_bytes: tuple[int, ...]
    output_bytes: tuple[int, ...]

    @property
    def all_bytes(self) -> int:
        """Total bytes of all inputs and outputs."""
        return sum(self.input_bytes) + sum(self.output_bytes)

    @property
    def elements_in(self) -> int:
        """Number of elements of the largest input."""
        return max(map(prod, self.inputs), default=0)

    @property
    def elements_out(self) -> int:
        """Number of elements of the largest output."""
        return max(map(prod, self.outputs), default=0)


class Cost(NamedTuple):
    """The cost of one execution.

    Attributes:
      flops: floating-point operations; a multiply-add counts as two.
      bytes: bytes read and written.
    """

    flops: float
    bytes: float


Rule: TypeAlias = Callable[[Sizes], float]
"""A number computed from sizes."""

CostRule: TypeAlias = Callable[[Sizes], Cost]
"""The cost of a node with these sizes."""


def free(sizes: Sizes) -> Cost:
    """Return zero cost, for ops that pass values on unchanged."""
    return Cost(0.0, 0.0)


def memory_cost(sizes: Sizes) -> Cost:
    """Return the cost of reading all inputs and writing all outputs once, without arithmetic."""
    return Cost(0.0, float(sizes.all_bytes))


def elementwise_cost(sizes: Sizes) -> Cost:
    """Return the cost of `memory_cost` plus one operation for each element of the output."""
    return Cost(float(sizes.elements_out), float(sizes.all_bytes))

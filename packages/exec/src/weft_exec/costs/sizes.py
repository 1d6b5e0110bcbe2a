"""What the rules for the work of an op look at."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple, TypeAlias

from weft_graph.ir.node import Node
from weft_tensor import dtypes

Dims: TypeAlias = tuple[int, ...]


class Sizes(NamedTuple):
    """The sizes of one node, all known or assumed.

    Attributes:
      node: for its attributes and types; its own shapes may be unknown.
      inputs, outputs: shapes.
      input_bytes, output_bytes: what they take.
    """

    node: Node
    inputs: tuple[Dims, ...]
    outputs: tuple[Dims, ...]
    input_bytes: tuple[int, ...]
    output_bytes: tuple[int, ...]

    @property
    def all_bytes(self) -> int:
        """Bytes of all inputs and outputs."""
        return sum(self.input_bytes) + sum(self.output_bytes)

    @property
    def elements_in(self) -> int:
        """Elements of the largest input."""
        return max(map(prod, self.inputs), default=0)

    @property
    def elements_out(self) -> int:
        """Elements of the largest output."""
        return max(map(prod, self.outputs), default=0)

    @property
    def states(self) -> int:
        """How many inputs are references or handles."""
        return sum(o.dtype.is_ref or o.dtype is dtypes.resource for o in self.node.inputs)

    @property
    def argument_names(self) -> list[str]:
        """The names of the op's arguments: those of the inputs, where none of them is a list."""
        return [arg.name for arg in self.node.op_def.inputs]

    def attr(self, name: str, default: Any = None) -> Any:
        """The value of an attribute."""
        return self.node.attrs.get(name, default)


def words(text: str) -> list[str]:
    """A list of op types."""
    return text.split()


Rule: TypeAlias = Callable[[Sizes], float]


def dims_at(shapes: tuple[Dims, ...], index: int, rank: int) -> Dims:
    """A shape with at least `rank` axes: ones before what is there, as an unknown rank is short."""
    dims = shapes[index] if index < len(shapes) else ()
    return (1,) * (rank - len(dims)) + dims

"""What makes functions of nodes: a seam between those that run nodes and those that compile them.

A package that compiles registers a generator in a module that the entry-point group
`weft_graph.code_generators` names.  It is imported when somebody first wants to compile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from weft_graph.ir.compiled_function import CompiledFunction, Roofline
from weft_graph.ir.node import Node, Output
from weft_graph.ir.registry import Registry
from weft_tensor import dtypes
from weft_tensor.dtypes import DType

Shape = tuple[int, ...]

FEW: Final = 16
"""Elements up to which a vector of integers may be sizes or axes."""


def are_sizes(node: Node) -> bool:
    """Whether what a node gives may be sizes, axes or a counter, which others ask for.

    Who compiles is given such a node only where its values follow from shapes.
    """
    return bool(node.outputs) and all(map(is_size, node.outputs))


def is_size(output: Output) -> bool:
    """Whether an output may be sizes, axes or a counter."""
    dims = output.dims
    if output.dtype not in (dtypes.int32, dtypes.int64):
        return False
    return dims is None or not dims or (len(dims) == 1 and (dims[0] or 0) <= FEW)


class NotGenerated(Exception):  # noqa: N818 - it is no error of a program
    """Nodes that have to run one by one for the shapes that they got, and why."""


class Generated(Protocol):
    """A function of arrays.

    Attributes:
      takes: the positions of the inputs that it is given; what was known is in it already.
      draws: the members that draw random numbers, in the order in which it wants their streams.
      results: the type and the shape of each result.
      updates: the positions of the inputs whose variables it changes.
      long: whether it may run for milliseconds, and can be interrupted.
      shares: whether its code is for many sizes, so that one more takes little time.
    """

    takes: Sequence[int]
    draws: Sequence[Node]
    results: Sequence[tuple[DType, Shape]]
    updates: Sequence[int]
    long: bool
    shares: bool

    def __call__(self, *arrays: Any) -> None:
        """Compute, from inputs that it takes, results, and what variables become, in place.

        It may be called by several threads at once.  Where it fails, no variable is changed yet.

        Args:
          arrays: of the types and shapes that it was made for: inputs, of any strides, then, if
            members draw, the states of their streams for this execution, uint64 of shape
            (members, 6): counters and keys of Philox4x64-10. Then one for each result, which is
            filled, then those of the variables.
        Raises:
          OpError: an operand is refused.
          CancelledError: it was interrupted.
        """
        ...

    def interrupt(self) -> None:
        """Make calls, those that run too, end within milliseconds, until `resume`.

        Those that change variables go on: what they have begun they end.
        """
        ...

    def resume(self) -> None:
        """Let it run again."""
        ...


class CodeGenerator(Protocol):
    """What makes functions of nodes."""

    def why_not(self, node: Node) -> str:
        """Why a node had better run by its kernel, or "" if it may be compiled."""
        ...

    def changes(self, node: Node) -> int:
        """How many variables a node changes, its first inputs; 0 for a node that is none of these.

        What it computes of them is compiled for their shapes; they have one and values. A reference
        that it gives is that of its first input.
        """
        ...

    def changes_places(self, node: Node) -> bool:
        """Whether a node changes some places of variables alone.

        Members that read what it leaves make the function copy the variable.
        """
        ...

    def reads(self, node: Node) -> bool:
        """Whether a node gives the value of a variable, its input, and may be compiled.

        A handle is read where other members change its variable.
        """
        ...

    def draws(self, node: Node) -> bool:
        """Whether a node draws random numbers, and may be compiled.

        The function is given the state of its stream, whose executions the caller counts.
        """
        ...

    def needs_value(self, node: Node) -> Sequence[int]:
        """Positions of the inputs of a node whose values decide what is compiled, such as axes."""
        ...

    def find(
        self,
        members: Sequence[Node],
        inputs: Sequence[Output],
        outputs: Sequence[Output],
        shapes: Sequence[Shape],
        values: Mapping[int, Any],
    ) -> Generated | None:
        """What `generate` makes, where it costs about a millisecond, as it was made before.

        Returns: None where it has to be made.
        """
        ...

    def generate(
        self,
        members: Sequence[Node],
        inputs: Sequence[Output],
        outputs: Sequence[Output],
        shapes: Sequence[Shape],
        values: Mapping[int, Any],
        like: Iterable[Generated] = (),
    ) -> Generated:
        """A function that computes some nodes.

        Args:
          members: sources before users. Results that `constant_value` knows for these shapes, such
            as sizes and axes, may decide what is compiled of other members.
          inputs: what they take of other nodes; constants among them are known. Members that read
            a reference, or a handle, read what the members before them have left in the variable.
          outputs: what is wanted of them.
          shapes: of the inputs.
          values: of those that decide what is compiled, by their positions among the inputs.
          like: functions of the same nodes for other shapes, whose code may do.
        Raises: NotGenerated: they cannot be compiled for these.
        """
        ...

    def explain(
        self,
        members: Sequence[Node],
        inputs: Sequence[Output],
        outputs: Sequence[Output],
        given: Sequence[Any],
        values: Mapping[int, Any],
    ) -> CompiledFunction:
        """Compile some nodes as `generate` does, run the function, and tell what it does.

        Args:
          members, inputs, outputs, values: as of `generate`.
          given: the inputs: arrays, of variables what they have. They stay as they are.
        Raises:
          NotGenerated: they cannot be compiled for these.
          OpError: an operand is refused.
        """
        ...

    def roofline(self) -> Roofline:
        """What this machine can do at most: measured when first asked for, in about a second."""
        ...


generators: Final[Registry[CodeGenerator]] = Registry(
    "code generator", group="weft_graph.code_generators"
)
"""By name; who compiles takes the first."""

"""Composite tensors: objects that consist of several outputs, such as IndexedSlices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self

from weft_graph.ir.registry import Registry
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_tensor.dtypes import DType
    from weft_tensor.shape import Dims


class CompositeTensor:
    """A value that is several outputs; `nest` looks into it where it is asked to.

    Its class takes the parts, in their order, to make another one.
    """

    __slots__ = ()

    @property
    def parts(self) -> tuple[Any, ...]:
        """The outputs that the object consists of."""
        raise NotImplementedError

    def rebuilt(self, parts: Sequence[Any]) -> Self:
        """Return an object of the same kind with other components."""
        return type(self)(*parts)

    @property
    def dims(self) -> Dims:
        """The static shape of the whole."""
        raise NotImplementedError

    def part_dims(self, dims: Dims) -> list[Dims]:
        """The shapes that its parts keep in a loop in which the whole keeps the shape `dims`."""
        return [part.dims for part in self.parts]

    def value_of(self, values: Sequence[Any]) -> Any:
        """Return the fetched value, composed of the values of its parts."""
        raise NotImplementedError

    def fed_parts(self, value: Any) -> Sequence[Any]:
        """Return the values of its parts, of a value that is fed.

        Raises: InvalidTypeError, InvalidArgumentError: it is of another kind.
        """
        raise NotImplementedError

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise errors.InvalidTypeError(
            f"{self!r} consists of several tensors and is not an array: use weft's functions "
            "instead of NumPy's, or fetch its value with Session.run"
        )

    @property
    def graph(self) -> Any:
        """The graph it belongs to."""
        raise NotImplementedError

    @property
    def op(self) -> Any:
        """The node that makes the values."""
        raise NotImplementedError


class AppliesOps:
    """A value that ops accept as input although it is not an output; its class applies the ops.

    The one seam by which functions of the API take such values: they make nodes with `create`,
    which hands the op over where it would have converted an input.
    """

    __slots__ = ()

    def as_operand(self, dtype: DType | None) -> Any:
        """Return the operand that `convert_to_tensor` passes on to the op.

        Raises: InvalidTypeError: its element type is not `dtype`.
        """
        raise NotImplementedError

    def apply_op(
        self, op: Any, inputs: Sequence[Any], attrs: dict[str, Any], name: str | None
    ) -> Sequence[Any]:
        """Return the results of an op of which it is an input.

        Args:
          op: the declaration.
          inputs: as `create` got them.
          attrs: the attributes that the caller gave.
          name: that of the node, had it been one.
        Raises: InvalidTypeError: the op does not take such values.
        """
        raise NotImplementedError

    def to_sparse(self) -> Any:
        """Return a SparseTensor of all its elements."""
        raise NotImplementedError

    def map_elements(self, function: Callable[[Any], Any]) -> Any:
        """Apply a function to a tensor of all elements; return a value of the same kind.

        For functions that look at each element by itself, but ask for a shape before they come to
        the op.
        """
        raise NotImplementedError


class Applied:
    """Carries the result of `create` when an input applied the op instead of creating a node.

    Attributes:
      outputs: the results.
    """

    __slots__ = ("outputs",)

    def __init__(self, outputs: Sequence[Any]) -> None:
        self.outputs = tuple(outputs)


class HandOver(Exception):  # noqa: N818 - no error: it leads out of the conversion of inputs
    """An input was found that applies ops itself.

    Attributes:
      value: that input.
    """

    def __init__(self, value: AppliesOps) -> None:
        super().__init__(value)
        self.value = value


makers: Registry[Callable[..., Any]] = Registry("maker of composite tensors", "weft_graph.ragged")
"""Makers of composite tensors, for layers below the one that defines their class."""

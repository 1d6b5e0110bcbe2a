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
    """A value that consists of several outputs; `nest` can expand it.

    The constructor of its class takes the parts in order.
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
        """Return the shape invariants of its parts if `dims` is that of the whole."""
        return [part.dims for part in self.parts]

    def value_of(self, values: Sequence[Any]) -> Any:
        """Return the fetched value, composed of the values of its parts."""
        raise NotImplementedError

    def fed_parts(self, value: Any) -> Sequence[Any]:
        """Split a fed value into the values of the parts.

        Raises: InvalidTypeError, InvalidArgumentError: the value has the wrong kind.
        """
        raise NotImplementedError

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise errors.InvalidTypeError(
            f"{self!r} consists of several tensors and is not an array: use weft's functions "
            "instead of NumPy's, or fetch its value with Session.run"
        )

    @property
    def graph(self) -> Any:
        """The graph of the parts."""
        raise NotImplementedError

    @property
    def op(self) -> Any:
        """The node that computes the values."""
        raise NotImplementedError


class AppliesOps:
    """A value that is not an output, but implements ops on itself.

    API functions create nodes with `create`. If an input is such a value, `create` passes the op to
    it instead of converting it.
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
        """Apply an op that has this value as an input; return the results.

        Args:
          op: the declaration.
          inputs: the inputs as passed to `create`.
          attrs: the attributes that the caller passed.
          name: the name that a node would have.
        Raises: InvalidTypeError: the op does not support such values.
        """
        raise NotImplementedError

    def to_sparse(self) -> Any:
        """Return a SparseTensor of all its elements."""
        raise NotImplementedError

    def map_elements(self, function: Callable[[Any], Any]) -> Any:
        """Apply an elementwise function to the flat values; return a value of the same class.

        It is for functions that need a shape before they create the op.
        """
        raise NotImplementedError


class DispatchedResult:
    """The result of `create` if an input applied the op instead of creating a node.

    Attributes:
      outputs: the results.
    """

    __slots__ = ("outputs",)

    def __init__(self, outputs: Sequence[Any]) -> None:
        self.outputs = tuple(outputs)


class HandOver(Exception):  # noqa: N818 - no error: it leads out of the conversion of inputs
    """Signals that an input implements ops itself.

    Attributes:
      value: the input.
    """

    def __init__(self, value: AppliesOps) -> None:
        super().__init__(value)
        self.value = value


makers: Registry[Callable[..., Any]] = Registry("maker of composite tensors", "weft_graph.ragged")
"""Constructors of composite tensors, for layers below the one that defines the class."""

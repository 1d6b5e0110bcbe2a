"""The interface of import rules: an ONNX node with its inputs, attributes and version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import numpy as np
from onnx import GraphProto, TensorProto, TypeProto

from weft_graph.ir.builder import constant, convert_to_tensor
from weft_graph.ir.constant_value import constant_value
from weft_graph.ir.node import Output
from weft_graph.ops import casting
from weft_graph.ops.identity import ensure_shape
from weft_graph.ops.shapes import rank
from weft_io.onnx.element_types import weft_type
from weft_io.onnx.model import unsupported
from weft_io.onnx.transpositions import Transpositions, channels_first, inverse
from weft_io.onnx.values import declared_type
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType
from weft_tensor.shape import format_dims

_VERSION: Final = 21
"""Version of the standard ops that rules use to compute other ops."""


class Translation(Protocol):
    """The services of a graph's translation that rules use, implemented by `Scope`.

    Attributes:
      axes: the record of values that are transpositions of others.
    """

    axes: Transpositions

    @property
    def floats(self) -> dict[Output, Output]:
        """The original floats of integers that were computed as floats."""

    def type_of(self, value: Output) -> TypeProto:
        """Return ONNX's type of a value; an empty type for a sequence of unknown elements."""

    def note_type(self, value: Output, kind: TypeProto) -> None:
        """Record the type of a sequence or optional value."""

    def find(self, name: str, user: str) -> Output:
        """Return the output with a name.

        Raises: InvalidArgumentError: no earlier node defines the name.
        """

    def inner(self, graph: GraphProto, inputs: Sequence[Any]) -> list[Output]:
        """Add the nodes of a subgraph, which can use the values of this scope."""

    def apply(
        self,
        user: str,
        op: str,
        inputs: Sequence[Output | None],
        version: int,
        attributes: Mapping[str, Any],
    ) -> Output:
        """Apply the rule of a standard op and return its first result."""


class Operation:
    """An ONNX node that is being translated.

    `operation[0]` is its first input; `operation.get(0)` is used for an optional input.

    Attributes:
      op: ONNX's name of the op.
      version: version of the op's domain, as declared by the model.
      inputs: outputs of the graph; None for omitted ones.
      attributes: Python values (numbers, str, lists, arrays, GraphProto), with ONNX's defaults.
      num_outputs: number of results, without unnamed trailing ones.
    """

    __slots__ = ("_scope", "attributes", "inputs", "num_outputs", "op", "version")

    def __init__(
        self,
        op: str,
        version: int,
        inputs: Sequence[Output | None],
        attributes: Mapping[str, Any],
        num_outputs: int,
        scope: Translation,
    ) -> None:
        self.op = op
        self.version = version
        self.inputs = list(inputs)
        self.attributes = attributes
        self.num_outputs = num_outputs
        self._scope = scope

    # -------------------------------------------------------------------------- inputs

    def __getitem__(self, index: int) -> Output:
        """Return a required input.

        Raises: InvalidArgumentError: it is omitted.
        """
        result = self.get(index)
        if result is None:
            raise errors.InvalidArgumentError(f"{self.op} lacks its required input {index}")
        return result

    def get(self, index: int) -> Output | None:
        """Return an optional input, or None."""
        return self.inputs[index] if index < len(self.inputs) else None

    def value(self, index: int) -> np.ndarray[Any, Any] | None:
        """Return the value of an input if it is known statically, else None."""
        result = self.get(index)
        return None if result is None else constant_value(result)

    def known(self, index: int, label: str) -> np.ndarray[Any, Any]:
        """Return the value of an input that determines the structure of the graph.

        Raises: UnimplementedError: the value is known only at run time.
        """
        self[index]
        result = self.value(index)
        if result is None:
            raise unsupported(
                f"{label} of {self.op} must be a constant of the model",
                "fold it before the export, or fix what it depends on: inputs with inputs= (in "
                "lite values=), sizes with shapes=",
            )
        return result

    def rank(self, index: int = 0) -> int:
        """Return the rank of an input; it determines the structure of the graph.

        Raises: UnimplementedError: it is unknown at import.
        """
        dims = self[index].dims
        if dims is None:
            raise self.unknown("known rank", index)
        return len(dims)

    def size(self, axis: int, index: int = 0) -> int:
        """Return the size of an input along an axis; it determines the structure of the graph.

        Raises: UnimplementedError: it is unknown at import.
        """
        self.rank(index)
        size = (self[index].dims or ())[axis]
        if size is None:
            raise self.unknown(f"known size at axis {axis}", index)
        return size

    def unknown(self, required: str, index: int) -> errors.UnimplementedError:
        """Return the error for an input whose rank or size must be known.

        Args:
          required: the required property of the input, such as "known rank".
        """
        return unsupported(
            f"{self.op} requires input {index} of {required}, got shape "
            f"{format_dims(self[index].dims)}",
            "declare the shape in the model, pass shapes=, or pass a tensor of it in inputs=",
        )

    def require_rank(self, count: int, index: int = 0) -> Output:
        """Return an input that must have a certain rank, and set its static rank.

        Raises: InvalidArgumentError: it has another rank.
        """
        value = self[index]
        if value.dims is None:
            self.inputs[index] = value = ensure_shape(value, [None] * count)
        if self.rank(index) != count:
            raise errors.InvalidArgumentError(
                f"{self.op} requires input {index} of rank {count}, got {self.rank(index)}"
            )
        return value

    def vector(self, index: int) -> Output | None:
        """Return an optional input that must have rank 1, and set its static rank.

        Raises: InvalidArgumentError: it has another rank.
        """
        return None if self.get(index) is None else self.require_rank(1, index)

    # -------------------------------------------------------------------- order of axes

    def transposed(self, x: Output, order: Sequence[int]) -> Output:
        """Permute axes; the inverse permutation returns the original value."""
        return self._scope.axes.transposed(x, order)

    def plain(self, index: int = 0) -> tuple[Output, list[int]]:
        """Return the untransposed value of an input, and the position of its axes in it."""
        result = self._scope.axes.source(self[index])
        if result is None:
            return self[index], list(range(self.rank(index)))
        return result[0], list(result[1])

    def channels_last(self, index: int = 0) -> Output:
        """Convert an input from (N, C, ...) to (N, ..., C)."""
        return self.transposed(self[index], inverse(channels_first(self.rank(index))))

    def channels_first(self, x: Output) -> Output:
        """Convert a result from (N, ..., C) to (N, C, ...)."""
        if x.dims is None:
            raise errors.UnimplementedError(
                f"{self.op} requires inputs of known rank: that of its result is unknown"
            )
        return self.transposed(x, channels_first(len(x.dims)))

    def shared(self, axes: int | tuple[int, ...]) -> Output:
        """Return a constant of axes, shared among nodes with the same axes."""
        return self._scope.axes.constant(axes)

    # ---------------------------------------------------------------------- whole numbers

    def cast_to_integers(self, x: Output, dtype: DType) -> Output:
        """Convert integers stored as floats; converting back returns the original floats."""
        result = cast(x, dtype)
        self._scope.floats[result] = x
        return result

    def cast_to_floats(self, x: Output, dtype: DType) -> Output:
        """Convert integers to a floating type that represents them exactly."""
        float_values = self._scope.floats
        if x in float_values:
            return cast(float_values[x], dtype)
        source = self._scope.axes.source(x)
        if source is not None and source[0] in float_values:
            return self.transposed(cast(float_values[source[0]], dtype), source[1])
        return cast(x, dtype)

    # ---------------------------------------------------------------------- attributes

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return an attribute, or a default if the model does not have it."""
        return self.attributes.get(name, default)

    def required(self, name: str) -> Any:
        """Return a required attribute.

        Raises: InvalidArgumentError: it is missing.
        """
        result = self.attributes.get(name)
        if result is None:
            raise errors.InvalidArgumentError(f"{self.op} lacks its required attribute {name}")
        return result

    def dtype_of(self, name: str, default: DType) -> DType:
        """Return the element type that an attribute names.

        Raises: UnimplementedError: weft does not support the type. InvalidArgumentError: ONNX has
          no such type.
        """
        number = self.attributes.get(name)
        if isinstance(number, str):  # before version 6
            types = dict(TensorProto.DataType.items())
            if number not in types:
                raise errors.InvalidArgumentError(
                    f"{self.op}: unknown ONNX element type {number!r}"
                )
            number = types[number]
        return weft_type(number) if number else default

    # ------------------------------------- what is an input or an attribute, by version

    def operand(self, index: int, name: str) -> np.ndarray[Any, Any] | None:
        """Return a known value, which is an attribute in older versions and an input in newer ones.

        Returns: None if it is omitted.
        Raises: UnimplementedError: the value is known only at run time.
        """
        if self.get(index) is not None:
            return self.known(index, name)
        result = self.attributes.get(name)
        return None if result is None else np.asarray(result)

    def tensor(self, index: int, name: str, dtype: DType = dtypes.int64) -> Output | None:
        """Return an input, or the attribute that replaces it, as a constant of `dtype`."""
        tensor = self.get(index)
        if tensor is not None:
            return tensor
        result = self.attributes.get(name)
        return None if result is None else constant(np.asarray(result), dtype)

    def axis(self, default: int = 0, input_index: int = 0, name: str = "axis") -> int:
        """Return the attribute `axis`, counted from the front.

        Raises: InvalidArgumentError: the input has no such axis.
        """
        axis: int = self.attribute(name, default)
        count = self.rank(input_index)
        if not -count <= axis < max(count, 1):
            raise errors.InvalidArgumentError(
                f"{name} of {self.op} must be an axis in [{-count}, {count}), got {axis}"
            )
        return axis % max(count, 1)

    # ---------------------------------------------------------------------------- types

    def type(self, index: int) -> TypeProto:
        """Return the ONNX type of an input, including the element type of a sequence."""
        return self._scope.type_of(self[index])

    def kind(self, value: Output) -> TypeProto | None:
        """Return the ONNX type of a sequence or optional value; None for tensors."""
        return self._scope.type_of(value) if value.dtype is dtypes.variant else None

    def typed(self, value: Output, kind: TypeProto) -> Output:
        """Record the ONNX type of a sequence or optional value, and return the value."""
        self._scope.note_type(value, kind)
        return value

    def named(self, name: str) -> Output:
        """Return a value of the node's graph by name.

        Raises: InvalidArgumentError: no earlier node defines the name.
        """
        return self._scope.find(name, f"{self.op}'s value")

    def of(
        self, op: str, *inputs: Output | None, version: int = _VERSION, **attributes: Any
    ) -> Output:
        """Apply the rule of another standard op and return its first result."""
        return self._scope.apply(self.op, op, inputs, version, attributes)

    # ------------------------------------------------------------------------ subgraphs

    def subgraph(self, name: str) -> GraphProto:
        """Return a graph in an attribute.

        Raises: InvalidArgumentError: the attribute is missing.
        """
        graph: GraphProto = self.required(name)
        return graph

    def run(self, graph: GraphProto, inputs: Sequence[Any]) -> list[Output]:
        """Add the nodes of a subgraph, called with `inputs`, to the default graph."""
        return self._scope.inner(graph, inputs)

    def declared(self, graph: GraphProto) -> list[tuple[DType | None, list[int | None] | None]]:
        """Return the declared types and shapes of a subgraph's inputs; None for missing ones."""
        return [declared_type(item) for item in graph.input]

    def results(self, graph: GraphProto) -> list[tuple[DType | None, list[int | None] | None]]:
        """Return the declared types and shapes of a subgraph's results; None for missing ones."""
        return [declared_type(item) for item in graph.output]


def like(value: Any, x: Output) -> Output:
    """Return a constant of the element type of `x`."""
    return convert_to_tensor(value, dtype=x.dtype.base_dtype)


def cast(x: Output, dtype: DType) -> Output:
    """Convert elements to another type."""
    result: Output = casting.cast(x, dtype)
    return result


def rank_of(x: Output) -> Any:
    """Return the rank; an int if it is known statically."""
    return rank(x) if x.dims is None else len(x.dims)


def as_int32(x: Output) -> Output:
    """Convert integers to int32."""
    return cast(x, dtypes.int32)

"""The interface of export rules: a node of the graph, and methods that add ONNX nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import numpy as np
from onnx import TensorProto, defs, numpy_helper

from weft_graph.ir.constant_value import constant_value
from weft_graph.ir.node import Node, Output
from weft_io.onnx.element_types import onnx_type
from weft_io.onnx.export_graph import Body, ExportedNode, Subgraph, Value, as_sequence
from weft_io.onnx.older_forms import check, to_older_form
from weft_io.onnx.transpositions import inverse
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType


class NodeExport:
    """A node of the graph that is being exported.

    `export[0]` is the value of its first input.

    Attributes:
      node: the node.
      opset: the version of the ONNX ops to write.
    """

    __slots__ = ("_body", "node", "opset")

    def __init__(self, node: Node, body: Body) -> None:
        self.node = node
        self.opset = body.opset
        self._body = body

    # --------------------------------------------------------------------------- inputs

    def __getitem__(self, index: int) -> Value:
        """Return the value of an input."""
        return self._body.values[self.node.inputs[index]]

    def __len__(self) -> int:
        return len(self.node.inputs)

    def inputs(self) -> list[Value]:
        """Return the values of all inputs."""
        return [self[index] for index in range(len(self))]

    def at(self, output: Output) -> Value:
        """Return the value of any exported output of the graph."""
        return self._body.values[output]

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return an attribute of the node."""
        return self.node.attrs.get(name, default)

    def value(self, index: int) -> np.ndarray[Any, Any] | None:
        """Return the constant value of an input; None if it is unknown."""
        result = self[index].array
        return constant_value(self.node.inputs[index]) if result is None else result

    def of(self, output: Output) -> np.ndarray[Any, Any] | None:
        """Return the constant value of any output of the graph; None if it is unknown."""
        return constant_value(output)

    def sequence(self, index: int) -> Value:
        """Return an input as a sequence."""
        return as_sequence(self._body, self[index], self.node.name)

    def empty_sequence(self, dtype: DType) -> Value:
        """Return an empty sequence."""
        result = Value(dtype, sequence=True)
        attributes = {"dtype": onnx_type(dtype)}
        self.append(ExportedNode("SequenceEmpty", [], [result], attributes, self.node.name))
        return result

    def filled(self, value: Any, sizes: Value, dtype: DType) -> Value:
        """Return a tensor of one repeated number; the sizes are int64."""
        number = numpy_helper.from_array(np.full([1], value, dtype.numpy))
        return self.add("ConstantOfShape", sizes, dtype=dtype, value=number)

    def known(self, index: int, label: str) -> np.ndarray[Any, Any]:
        """Return the value of an input that determines the structure of the model.

        Raises: UnimplementedError: the value is known only at run time.
        """
        result = self.value(index)
        if result is None:
            raise errors.UnimplementedError(f"{label} must be a constant")
        return result

    def dims(self, index: int = 0) -> list[int | None]:
        """Return the shape of an input, whose rank must be known.

        Raises: UnimplementedError: the rank is unknown.
        """
        dims = self.node.inputs[index].dims
        if dims is None:
            raise errors.UnimplementedError(f"the rank of input {index} must be known")
        return list(dims)

    def rank(self, index: int = 0) -> int:
        """Return the rank of an input."""
        return len(self.dims(index))

    # ---------------------------------------------------------------------- results

    def append(self, node: ExportedNode) -> None:
        """Add an ONNX node unchanged."""
        self._body.nodes.append(node)

    def in_subgraph(self, graph: Subgraph) -> AbstractContextManager[None]:
        """Return a context that adds nodes to a subgraph."""
        return self._body.in_subgraph(graph)

    def add(
        self,
        op: str,
        *inputs: Value | None,
        dtype: DType | None = None,
        sequence: bool = False,
        **attributes: Any,
    ) -> Value:
        """Add an ONNX node with one result.

        Args:
          op: ONNX's name of the op.
          *inputs: the inputs; None for an omitted one.
          dtype: element type of the result; defaults to that of the first input.
          sequence: True if the result is a sequence of tensors.
          **attributes: the attributes; None values are omitted.
        Raises: UnimplementedError: ONNX's op does not support the element types.
        """
        result = Value(dtype or _type_of(op, inputs[0]), sequence=sequence)
        return self._add_records(op, inputs, [result], attributes)[0]

    def add_many(
        self, op: str, *inputs: Value | None, dtypes: Sequence[DType | None], **attributes: Any
    ) -> list[Value]:
        """Add a node with several results; None as a type means the first input's type."""
        outputs = [Value(kind or _type_of(op, inputs[0])) for kind in dtypes]
        return self._add_records(op, inputs, outputs, attributes)

    def _add_records(
        self,
        op: str,
        inputs: Sequence[Value | None],
        outputs: list[Value],
        attributes: Mapping[str, Any],
    ) -> list[Value]:
        inputs, attributes = to_older_form(op, self.opset, inputs, attributes)
        check(op, self.opset, attributes, self.node)
        _check_types(op, self.opset, inputs, outputs)
        self._body.nodes.append(ExportedNode(op, inputs, outputs, attributes, self.node.name))
        return outputs

    def constant(self, value: Any, dtype: DType | None = None) -> Value:
        """Return a constant of the model."""
        return self._body.constant(value, dtype)

    def like(self, value: Any, other: Value) -> Value:
        """Return a constant with the element type of another value."""
        return self.constant(value, other.dtype)

    def ints(self, values: Any) -> Value:
        """Return an int64 constant, as ONNX requires for shapes and axes."""
        return self.constant(values, dtypes.int64)

    def int64(self, value: Value) -> Value:
        """Convert integers to int64."""
        if value.dtype is dtypes.int64:
            return value
        return self.cast(value, dtypes.int64) if value.wide is None else value.wide

    def narrow(self, value: Value, dtype: DType) -> Value:
        """Convert int64 sizes or positions of ONNX to the integer type of the graph's node."""
        result = self.cast(value, dtype)
        if result is not value:
            result.wide = value
        return result

    def cast(self, value: Value, dtype: DType) -> Value:
        """Convert elements to another type."""
        if value.dtype is dtype.base_dtype:
            return value
        if value.array is not None and value.array.dtype.kind not in "OSU":
            return self.constant(value.array.astype(dtype.numpy))
        return self.add("Cast", value, dtype=dtype.base_dtype, to=onnx_type(dtype))

    def vector(self, value: Value) -> Value:
        """Convert an int64 scalar to a vector of one element."""
        return self.reshape(self.int64(value), [1])

    def reshape(self, value: Value, sizes: Sequence[int]) -> Value:
        """Reshape; one size may be -1, none may be 0."""
        if value.array is not None:
            return self.constant(value.array.reshape(tuple(sizes)))
        return self.add("Reshape", value, self.ints(list(sizes)))

    def transposed(self, value: Value, order: Sequence[int]) -> Value:
        """Permute axes; the inverse permutation returns the original value."""
        order = tuple(int(axis) for axis in order)
        if value.untransposed is not None:
            value, previous_order = value.untransposed
            order = tuple(previous_order[axis] for axis in order)
        if order == tuple(range(len(order))):
            return value
        if (value, order) not in self._body.transposed:
            if value.array is not None:
                result = Value(value.dtype, array=value.array.transpose(order))
            else:
                result = self.add("Transpose", value, perm=list(order))
                result.untransposed = (value, order)
            self._body.transposed[value, order] = result
        return self._body.transposed[value, order]

    def elementwise(
        self, op: str, *values: Value, dtype: DType | None = None, **attributes: Any
    ) -> Value:
        """Add an ONNX node that broadcasts its inputs.

        If all inputs are transposed in the same way, the op is applied before the transposition.
        """
        order = next((v.untransposed[1] for v in values if v.untransposed is not None), None)
        plain = [] if order is None else [self._untransposed(value, order) for value in values]
        sources = [value for value in plain if value is not None]
        if order is None or len(sources) < len(values):
            return self.add(op, *values, dtype=dtype, **attributes)
        return self.transposed(self.add(op, *sources, dtype=dtype, **attributes), order)

    def _untransposed(self, value: Value, order: tuple[int, ...]) -> Value | None:
        """Return the value whose transposition by `order` is `value`."""
        if value.untransposed is not None and value.untransposed[1] == order:
            return value.untransposed[0]
        if value.array is None or value.array.ndim > len(order):
            return None
        if value.array.ndim == 0:
            return value
        missing = len(order) - value.array.ndim
        widened = self.constant(value.array.reshape((1,) * missing + value.array.shape))
        return self.transposed(widened, inverse(order))


def _type_of(op: str, first: Value | None) -> DType:
    assert first is not None, f"{op} without inputs needs a type"
    return first.dtype


@cache
def _allowed_types(op: str, opset: int) -> tuple[list[frozenset[str]], list[frozenset[str]]]:
    """Return the types that ONNX permits for each input and output of an op."""
    schema = defs.get_schema(op, opset)
    parameter_lists = (schema.inputs, schema.outputs)
    input_types, output_types = (
        [frozenset(item.types) for item in formal] for formal in parameter_lists
    )
    return input_types, output_types


def _check_types(
    op: str, opset: int, inputs: Sequence[Value | None], outputs: Sequence[Value]
) -> None:
    try:
        input_types, output_types = _allowed_types(op, opset)
    except defs.SchemaError:
        raise errors.UnimplementedError(
            f"opset {opset} of ONNX does not have the op {op}"
        ) from None
    for values, allowed, verb in ((inputs, input_types, "takes"), (outputs, output_types, "gives")):
        for index, value in enumerate(values):
            types = allowed[min(index, len(allowed) - 1)]  # the last one may be repeated
            if value is not None and _type_name(value) not in types:
                raise errors.UnimplementedError(f"ONNX's {op} {verb} no {value.dtype.name}")


def _type_name(value: Value) -> str:
    name = f"tensor({TensorProto.DataType.Name(onnx_type(value.dtype)).lower()})"
    return f"seq({name})" if value.sequence else name

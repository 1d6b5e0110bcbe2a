"""Sequences of tensors and values that may not be there."""

from __future__ import annotations

from onnx import TypeProto

from weft_graph.ir.builder import constant, create, out
from weft_graph.ir.node import Output
from weft_graph.ops.shapes import reshape
from weft_io.onnx.element_types import weft_type
from weft_io.onnx.operation import Operation, cast
from weft_io.onnx.registry import importer
from weft_io.onnx.values import type_and_shape
from weft_tensor import dtypes, errors


def _sequence_of(element: TypeProto) -> TypeProto:
    found = TypeProto()
    found.sequence_type.elem_type.CopyFrom(element)
    return found


def _any_shape(element: TypeProto) -> TypeProto:
    """A tensor type without its shape: members of a sequence have shapes of their own."""
    found = TypeProto()
    found.tensor_type.elem_type = element.tensor_type.elem_type
    return found


def _element(operation: Operation, index: int = 0) -> TypeProto:
    """The type of the members of a sequence, or of an optional value.

    Raises: UnimplementedError: nothing says it.
    """
    found = operation.type(index)
    if found.HasField("sequence_type"):
        return found.sequence_type.elem_type
    if found.HasField("optional_type"):
        return found.optional_type.elem_type
    raise errors.UnimplementedError(f"{operation.op} requires input {index} of a known type")


@importer("SequenceEmpty")
def _empty(operation: Operation) -> Output:
    dtype = operation.dtype_of("dtype", dtypes.float32)
    element = TypeProto()
    element.tensor_type.elem_type = operation.attribute("dtype") or 1
    return operation.typed(
        create("TensorSequence", [[]], {"N": 0, "T": dtype}).outputs[0], _sequence_of(element)
    )


@importer("SequenceConstruct")
def _construct(operation: Operation) -> Output:
    values = [operation[index] for index in range(len(operation.inputs))]
    return operation.typed(
        out("TensorSequence", [values]), _sequence_of(_any_shape(operation.type(0)))
    )


def _position(operation: Operation, index: int) -> Output:
    return cast(reshape(operation[index], []), dtypes.int64)


@importer("SequenceInsert")
def _insert(operation: Operation) -> Output:
    sequence, given = operation[0], operation.get(2)
    at = out("SequenceLength", [sequence]) if given is None else _position(operation, 2)
    found = out("SequenceInsert", [sequence, operation[1], at])
    return operation.typed(found, _sequence_of(_any_shape(operation.type(1))))


@importer("SequenceErase")
def _erase(operation: Operation) -> Output:
    at = constant(-1, dtypes.int64) if operation.get(1) is None else _position(operation, 1)
    return operation.typed(out("SequenceErase", [operation[0], at]), operation.type(0))


@importer("SequenceAt")
def _at(operation: Operation) -> Output:
    dtype, dims = type_and_shape(_element(operation))
    attrs = {"T": dtype, "shape": None if dims is None else tuple(dims)}
    return out("SequenceAt", [operation[0], _position(operation, 1)], attrs)


@importer("SequenceLength")
def _length(operation: Operation) -> Output:
    return out("SequenceLength", [operation[0]])


@importer("SplitToSequence")
def _split(operation: Operation) -> Output:
    x, sizes = operation[0], operation.get(1)
    axis = operation.attribute("axis", 0)
    squeeze = sizes is None and not operation.attribute("keepdims", 1)
    given = constant(1, dtypes.int64) if sizes is None else cast(sizes, dtypes.int64)
    found = out("SequenceSplit", [x, given], {"axis": axis, "squeeze": squeeze})
    return operation.typed(found, _sequence_of(_any_shape(operation.type(0))))


@importer("ConcatFromSequence")
def _concat(operation: Operation) -> Output:
    dtype = weft_type(_element(operation).tensor_type.elem_type)
    new_axis = bool(operation.attribute("new_axis", 0))
    attrs = {"T": dtype, "shape": None, "axis": operation.required("axis"), "new_axis": new_axis}
    return out("SequenceConcat", [operation[0]], attrs)


# ----------------------------------------------------------------------- optional values


@importer("Optional")
def _optional(operation: Operation) -> Output:
    value = operation.get(0)
    found = TypeProto()
    if value is None:
        found.optional_type.elem_type.CopyFrom(operation.required("type"))
        return operation.typed(out("OptionalNone"), found)
    found.optional_type.elem_type.CopyFrom(operation.type(0))
    return operation.typed(out("OptionalFromValue", [[value]]), found)


def _is_optional(operation: Operation) -> bool:
    value = operation.get(0)
    return value is not None and operation.type(0).HasField("optional_type")


@importer("OptionalHasElement")
def _has(operation: Operation) -> Output:
    if not _is_optional(operation):
        return constant(operation.get(0) is not None)
    return out("OptionalHasValue", [operation[0]])


@importer("OptionalGetElement")
def _get(operation: Operation) -> Output:
    value = operation[0]
    if not _is_optional(operation):
        return value
    element = _element(operation)
    dtype, dims = type_and_shape(element)
    attrs = {"output_types": [dtype], "output_shapes": [None if dims is None else tuple(dims)]}
    found = create("OptionalGetValue", [value], attrs).outputs[0]
    return operation.typed(found, element) if dtype is dtypes.variant else found

"""Sequences of tensors, and optional values."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from onnx import TypeProto, helper

from weft_graph.ir.builder import constant, create, out
from weft_graph.ir.node import Output
from weft_graph.ops.shapes import reshape
from weft_io.onnx.operation import Operation, cast
from weft_io.onnx.registry import importer
from weft_io.onnx.values import type_and_shape
from weft_tensor import dtypes, errors


def _sequence_of(element: TypeProto) -> TypeProto:
    result = TypeProto()
    result.sequence_type.elem_type.CopyFrom(element)
    return result


def _tensors(element: TypeProto, dims: Sequence[int | None] | None) -> TypeProto:
    """Return a tensor type with a shape and the element type of another type."""
    return helper.make_tensor_type_proto(element.tensor_type.elem_type, dims)


def common_type(first_type: TypeProto, second_type: TypeProto) -> TypeProto:
    """Return a type that includes two types which differ at most in shapes."""
    if first_type.HasField("sequence_type") and second_type.HasField("sequence_type"):
        return _sequence_of(
            common_type(first_type.sequence_type.elem_type, second_type.sequence_type.elem_type)
        )
    if first_type.HasField("optional_type") and second_type.HasField("optional_type"):
        result = TypeProto()
        inner = common_type(first_type.optional_type.elem_type, second_type.optional_type.elem_type)
        result.optional_type.elem_type.CopyFrom(inner)
        return result
    if not (first_type.HasField("tensor_type") and second_type.HasField("tensor_type")):
        return first_type
    a, b = type_and_shape(first_type)[1], type_and_shape(second_type)[1]
    if a is None or b is None or len(a) != len(b):
        return _tensors(first_type, None)
    return _tensors(first_type, [x if x == y else None for x, y in zip(a, b, strict=True)])


def shapeless(kind: TypeProto) -> TypeProto:
    """Return a type without its shapes."""
    result = TypeProto()
    if kind.HasField("sequence_type"):
        return _sequence_of(shapeless(kind.sequence_type.elem_type))
    if kind.HasField("optional_type"):
        result.optional_type.elem_type.CopyFrom(shapeless(kind.optional_type.elem_type))
        return result
    return _tensors(kind, None) if kind.HasField("tensor_type") else kind


def _element(operation: Operation, index: int = 0) -> TypeProto:
    """Return the element type of a sequence or an optional value.

    Raises: UnimplementedError: the type is unknown.
    """
    result = operation.type(index)
    if result.HasField("sequence_type"):
        return result.sequence_type.elem_type
    if result.HasField("optional_type"):
        return result.optional_type.elem_type
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
    kinds = [operation.type(index) for index in range(len(values))]
    return operation.typed(
        out("TensorSequence", [values]), _sequence_of(reduce(common_type, kinds))
    )


def _position(operation: Operation, index: int) -> Output:
    return cast(reshape(operation[index], []), dtypes.int64)


@importer("SequenceInsert")
def _insert(operation: Operation) -> Output:
    sequence, sizes_input = operation[0], operation.get(2)
    index = out("SequenceLength", [sequence]) if sizes_input is None else _position(operation, 2)
    result = out("SequenceInsert", [sequence, operation[1], index])
    member = operation.type(1)
    sequence_type = operation.type(0).sequence_type
    element = (
        common_type(member, sequence_type.elem_type)
        if sequence_type.HasField("elem_type")
        else member
    )
    return operation.typed(result, _sequence_of(element))


@importer("SequenceErase")
def _erase(operation: Operation) -> Output:
    index = constant(-1, dtypes.int64) if operation.get(1) is None else _position(operation, 1)
    return operation.typed(out("SequenceErase", [operation[0], index]), operation.type(0))


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
    sizes_input = constant(1, dtypes.int64) if sizes is None else cast(sizes, dtypes.int64)
    result = out("SequenceSplit", [x, sizes_input], {"axis": axis, "squeeze": squeeze})
    dims = None if x.dims is None else list(x.dims)
    if dims is not None and squeeze:
        del dims[axis]
    elif dims is not None:
        dims[axis] = None
    return operation.typed(result, _sequence_of(_tensors(operation.type(0), dims)))


@importer("ConcatFromSequence")
def _concat(operation: Operation) -> Output:
    dtype, dims = type_and_shape(_element(operation))
    axis, new_axis = operation.required("axis"), bool(operation.attribute("new_axis", 0))
    count = None if dims is None else len(dims) + new_axis
    if dims is not None and count is not None and -count <= axis < count:
        dims = [*dims[: axis % count], None, *dims[axis % count + (not new_axis) :]]
    attrs = {
        "T": dtype,
        "shape": None if dims is None else tuple(dims),
        "axis": axis,
        "new_axis": new_axis,
    }
    return out("SequenceConcat", [operation[0]], attrs)


# ----------------------------------------------------------------------- optional values


@importer("Optional")
def _optional(operation: Operation) -> Output:
    value = operation.get(0)
    result = TypeProto()
    if value is None:
        result.optional_type.elem_type.CopyFrom(operation.required("type"))
        return operation.typed(out("OptionalNone"), result)
    result.optional_type.elem_type.CopyFrom(operation.type(0))
    return operation.typed(out("OptionalFromValue", [[value]]), result)


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
    result = create("OptionalGetValue", [value], attrs).outputs[0]
    return operation.typed(result, element) if dtype is dtypes.variant else result

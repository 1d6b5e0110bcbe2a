"""Branches and loops with subgraphs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from weft_graph.control_flow.conditional import cond
from weft_graph.control_flow.loop import while_loop
from weft_graph.control_flow.tensor_array import TensorArray
from weft_graph.ir.builder import constant
from weft_graph.ir.default_graph import name_scope
from weft_graph.ir.node import Output
from weft_graph.ops import sequence
from weft_graph.ops.array import placeholder, zeros
from weft_graph.ops.comparison import less, logical_and
from weft_graph.ops.identity import ensure_shape
from weft_graph.ops.join import concat, stack, unstack
from weft_graph.ops.permutation import reverse, transpose
from weft_graph.ops.shapes import rank, reshape, shape
from weft_io.onnx.operation import Operation, cast
from weft_io.onnx.registry import importer
from weft_io.onnx.rules.sequence import common_type, shapeless
from weft_tensor import dtypes, errors
from weft_tensor.shape import TensorShape, as_dims

if TYPE_CHECKING:
    from onnx import GraphProto


@importer("If")
def _if(operation: Operation) -> list[Output]:
    """Import both branches, or only the selected one if the condition is constant."""
    condition = operation.value(0)
    if condition is not None:
        name = "then_branch" if condition.all() else "else_branch"
        return operation.run(operation.subgraph(name), [])
    then_graph, else_graph = operation.subgraph("then_branch"), operation.subgraph("else_branch")
    kinds: list[Any] = []

    def trace_body(graph: GraphProto) -> list[Output]:
        results = operation.run(graph, [])
        kinds.append([operation.kind(item) for item in results])
        return results

    match = cond(
        reshape(operation[0], []), lambda: trace_body(then_graph), lambda: trace_body(else_graph)
    )
    results = list(match) if isinstance(match, (list, tuple)) else [match]
    for index, result in enumerate(results):
        present_values = [item[index] for item in kinds if item[index] is not None]
        if result.dtype is dtypes.variant and present_values:
            operation.typed(result, reduce(common_type, present_values))
    return results


def _shapes(
    operation: Operation, graph: GraphProto, first: int, values: Sequence[Output]
) -> list[TensorShape]:
    """Return static shapes of carried values for all iterations, as the subgraph declares."""
    declared = operation.declared(graph)[first:]
    result = []
    for (_, dims), value in zip(declared, values, strict=False):
        if value.dtype is dtypes.variant:
            result.append(TensorShape([]))
        elif dims is None or value.dims is None or len(value.dims) != len(dims):
            result.append(TensorShape(None))
        else:
            pairs = zip(dims, value.dims, strict=True)
            result.append(TensorShape([a if a == b else None for a, b in pairs]))
    return result


def _arrays(
    operation: Operation, graph: GraphProto, first: int, size: Output | None, inputs: Sequence[Any]
) -> list[TensorArray]:
    """Create arrays for the results of a subgraph, starting with number `first`.

    Args:
      size: the number of iterations, None if it is unknown.
      inputs: the type and shape of each of the subgraph's inputs.
    """
    types = operation.results(graph)
    if any(dtype is None for dtype, _ in types[first:]):
        types = _infer_types(operation, graph, inputs)
    result = []
    for dtype, dims in types[first:]:
        element = None if dims is None else TensorShape(dims)
        result.append(
            TensorArray(
                dtype,
                0 if size is None else size,
                dynamic_size=size is None,
                infer_shape=False,
                element_shape=element,
            )
        )
    return result


def _infer_types(operation: Operation, graph: GraphProto, inputs: Sequence[Any]) -> list[Any]:
    """Return the types of a subgraph's results, by building it in nodes that are never run."""
    with name_scope("types"):
        placeholders = [placeholder(dtype, dims) for dtype, dims in inputs]
        return [(item.dtype.base_dtype, item.dims) for item in operation.run(graph, placeholders)]


@importer("Loop")
def _loop(operation: Operation) -> list[Output]:
    limit, condition = operation.get(0), operation.get(1)
    carried = [operation[index] for index in range(2, len(operation.inputs))]
    body, count = operation.subgraph("body"), len(operation.inputs) - 2
    go_on = constant(True) if condition is None else reshape(condition, [])
    shapes = _shapes(operation, body, 2, carried)
    types = [(dtypes.int64, []), (dtypes.bool_, []), *_types(carried, shapes)]
    arrays = _arrays(operation, body, 1 + count, None, types)

    def should_continue(iteration: Output, go_on: Output, *_: Any) -> Output:
        if limit is None:
            return go_on
        return logical_and(go_on, less(iteration, reshape(limit, [])))

    def step(iteration: Output, go_on: Output, *state: Any) -> list[Any]:
        _pass_kinds(operation, carried, state)
        results = operation.run(body, [iteration, go_on, *state[:count]])
        carried_values = [
            ensure_shape(item, shape) if item.dtype is not dtypes.variant else item
            for item, shape in zip(results[1 : 1 + count], shapes, strict=True)
        ]
        index = cast(iteration, dtypes.int32)
        written = [
            array.write(index, value)
            for array, value in zip(state[count:], results[1 + count :], strict=True)
        ]
        return [iteration + 1, reshape(results[0], []), *carried_values, *written]

    scalars = [TensorShape([]), TensorShape([])]
    flows = [TensorShape([])] * len(arrays)
    result = while_loop(
        should_continue,
        step,
        [constant(0, dtypes.int64), go_on, *carried, *arrays],
        shape_invariants=[*scalars, *shapes, *flows],
        parallel_iterations=1,
    )[2:]
    _pass_kinds(operation, carried, result)
    num_iterations = operation.value(0), True if condition is None else operation.value(1)
    if all(item is not None and np.all(item) for item in num_iterations):
        return [*result[:count], *(array.stack() for array in result[count:])]
    return [*result[:count], *(_stack(array) for array in result[count:])]


def _stack(array: TensorArray) -> Output:
    """Stack all results of a loop; without iterations, undeclared sizes are 0."""
    dims = as_dims(array.element_shape)
    if dims is not None and None not in dims:
        return array.stack()
    sizes = [0, *(size or 0 for size in dims or ())]
    result: Output = cond(array.size() > 0, array.stack, lambda: zeros(sizes, array.dtype))
    return result


def _pass_kinds(operation: Operation, values: Sequence[Output], kinds: Sequence[Any]) -> None:
    """Record that carried sequences keep their types in all iterations, except for shapes."""
    for value, kind_name in zip(values, kinds, strict=False):
        kind = operation.kind(value)
        if kind is not None:
            operation.typed(kind_name, shapeless(kind))


@importer("Scan")
def _scan(operation: Operation) -> list[Output]:
    if operation.version < 9:
        return _scan_of_batch(operation)
    return _run_scan(operation, [operation[i] for i in range(len(operation.inputs))])


def _scan_of_batch(operation: Operation) -> list[Output]:
    """Import a Scan of version 8, which scans each batch member; all must have the same length."""
    if operation.get(0) is not None:
        raise errors.UnimplementedError("Scan does not support sequence_lens")
    values = [operation[i] for i in range(1, len(operation.inputs))]
    sizes = [value.dims[0] for value in values if value.dims]
    batch = next((size for size in sizes if size is not None), None)
    if batch is None:
        raise operation.unknown("known size at axis 0, the batch", 1)
    rows = [unstack(value, batch) for value in values]
    results = [_run_scan(operation, list(item)) for item in zip(*rows, strict=True)]
    return [stack(list(item)) for item in zip(*results, strict=True)]


def _run_scan(operation: Operation, values: Sequence[Output]) -> list[Output]:
    body, sources = operation.subgraph("body"), operation.required("num_scan_inputs")
    count = len(values) - sources
    state, scanned = list(values[:count]), list(values[count:])
    directions = operation.attribute("scan_input_directions") or operation.attribute("directions")
    axes = operation.attribute("scan_input_axes")
    inputs = []
    for index, value in enumerate(scanned):
        axis = axes[index] if axes else 0
        value = _move_axis_to_front(value, axis)
        if directions and directions[index]:
            value = reverse(value, [0])
        inputs.append(TensorArray(value.dtype.base_dtype, shape(value)[0]).unstack(value))
    num_iterations = shape(_move_axis_to_front(scanned[0], axes[0] if axes else 0))[0]
    shapes = _shapes(operation, body, 0, state)
    rows = [(value.dtype.base_dtype, _row(value, axes, i)) for i, value in enumerate(scanned)]
    outputs = _arrays(operation, body, count, num_iterations, [*_types(state, shapes), *rows])

    def step(iteration: Output, *loop: Any) -> list[Any]:
        parts = [array.read(iteration) for array in inputs]
        results = operation.run(body, [*loop[:count], *parts])
        carried = [ensure_shape(a, b) for a, b in zip(results[:count], shapes, strict=True)]
        pairs = zip(loop[count:], results[count:], strict=True)
        return [iteration + 1, *carried, *(array.write(iteration, value) for array, value in pairs)]

    result = while_loop(
        lambda iteration, *_: less(iteration, num_iterations),
        step,
        [constant(0), *state, *outputs],
        shape_invariants=[TensorShape([]), *shapes, *[TensorShape([])] * len(outputs)],
    )[1:]
    return [*result[:count], *_collect(operation, result[count:])]


def _types(values: Sequence[Output], shapes: Sequence[TensorShape]) -> list[Any]:
    return [(a.dtype.base_dtype, b) for a, b in zip(values, shapes, strict=True)]


def _row(value: Output, axes: Sequence[int] | None, index: int) -> Any:
    """Return the shape of one slice of a scanned tensor."""
    if value.dims is None:
        return None
    axis = (axes[index] if axes else 0) % max(len(value.dims), 1)
    return [size for i, size in enumerate(value.dims) if i != axis]


def _move_axis_to_front(value: Output, axis: int) -> Output:
    """Move an axis to the front."""
    if not axis:
        return value
    if value.dims is not None:
        count = len(value.dims)
        axis %= count
        return transpose(value, [axis, *(i for i in range(count) if i != axis)])
    position, axes_after = _positions(value, axis)
    return transpose(value, concat([[position], sequence.range(position), axes_after], 0))


def _positions(value: Output, axis: int) -> tuple[Output, Output]:
    """Return an axis of a value of unknown rank, and the axes after it."""
    count = rank(value)
    position = constant(axis) if axis > 0 else count + axis
    return position, sequence.range(position + 1, count)


def _collect(operation: Operation, arrays: Sequence[TensorArray]) -> list[Output]:
    directions = operation.attribute("scan_output_directions")
    axes = operation.attribute("scan_output_axes")
    result = []
    for index, array in enumerate(arrays):
        value = array.stack()
        if directions and directions[index]:
            value = reverse(value, [0])
        axis = axes[index] if axes else 0
        result.append(_first_to(value, axis))
    return result


def _first_to(value: Output, axis: int) -> Output:
    """Move the first axis to another position, which may be negative."""
    if not axis:
        return value
    if value.dims is not None:
        count = len(value.dims)
        axis %= count
        return transpose(value, [*range(1, axis + 1), 0, *range(axis + 1, count)])
    position, axes_after = _positions(value, axis)
    return transpose(value, concat([sequence.range(1, position + 1), [0], axes_after], 0))

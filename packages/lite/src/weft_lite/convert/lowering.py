"""Lowering of a graph to ops of lite: pruning, constant folding, rules per node, and fusion."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from weft_exec.config import SessionConfig
from weft_exec.devices.device import Device, make_devices
from weft_exec.kernels.numpy_warnings import call_quietly
from weft_exec.kernels.registry import find_kernel
from weft_exec.passes.prepare import prepare
from weft_exec.resources.resources import ResourceManager
from weft_graph.ir.node import Node, Output
from weft_graph.ir.step_graph import StepGraph, sort_nodes
from weft_graph.ir.traits import Role
from weft_lite.convert.errors import NotInLiteError, unsupported_type
from weft_lite.convert.flow import FlowLowering
from weft_lite.convert.fuse import fuse
from weft_lite.convert.lowered import TYPES, Array, Lowered, Value, constant
from weft_lite.convert.registry import Builder, OpKind, describe_location
from weft_lite.convert.scalars import find_rule
from weft_lite.convert.shapes import Shapes
from weft_lite.convert.sources import Source
from weft_lite.schema.enums import Storage
from weft_tensor import errors

Shape = tuple[int, ...]

_CHECKS = ("Assert",)
"""Ops without results that can only abort a step; lite omits them."""

_SMALL_BYTES = 1 << 16
"""Size in bytes up to which a constant may be folded although it is larger than its operands."""

_HANDLES = {"resource", "variant"}

_SKIPPED = (Role.CONSTANT, Role.ARGUMENT, Role.TRIGGER)


def lower(source: Source, bounds: Sequence[Shape], named: Mapping[str, Shape]) -> Lowered:
    """Lower a graph to ops of lite.

    Args:
      bounds: the largest shape of each input.
      named: the largest shapes of nodes by name, for shapes that cannot be inferred.
    Raises:
      UnimplementedError: lite cannot compute some nodes; the message lists them.
      InvalidArgumentError: a name in `named` is unknown.
    """
    inputs, outputs = list(source.inputs.values()), list(source.outputs.values())
    unknown = [name for name in named if source.graph.find_node(name) is None]
    if unknown:
        raise errors.InvalidArgumentError(
            f"the graph has no nodes of these names in bounds: {unknown}"
        )
    host = make_devices(ResourceManager(), SessionConfig())[0]
    with source.graph.as_default():
        step = prepare(inputs, outputs, [], host)
    _drop_checks(step)
    step.remove_unreachable(reason="lite")
    builder = Builder(
        Shapes(step, bounds, named, _shape_measurer(source, bounds)),
        any(None in (x.dims or (None,)) for x in inputs) or bool(named),
    )
    builder.variables.update({k: _variable(k, v) for k, v in source.variables.items()})
    lowering = _Lowering(builder, host)
    for input_, bound, feed in zip(inputs, bounds, step.feeds, strict=True):
        lowering.add_input(input_, bound, feed)
    lowering.run(step)
    try:
        builder.lowered.outputs = _results(builder, step.fetches)
    except NotInLiteError as error:
        raise errors.UnimplementedError(str(error)) from error
    fuse(builder.lowered)
    return builder.lowered


def _drop_checks(step: StepGraph) -> None:
    """Remove checks, and the nodes that only checks use."""
    for node in list(step.graph.nodes):
        if any(control.type in _CHECKS for control in node.controls):
            controls = [c for c in node.controls if c.type not in _CHECKS]
            controls += [
                c for check in node.controls if check.type in _CHECKS for c in check.controls
            ]
            step.graph.set_control_inputs(node, list(dict.fromkeys(controls)), reason="lite")
    unused = [n for n in step.graph.nodes if n.type in _CHECKS and not n.consumers]
    feeds = {feed.node for feed in step.feeds}
    kept_nodes = {output.node for output in step.fetches} | feeds | set(step.targets)
    while unused:
        sources = {source.node for node in unused for source in node.inputs}
        step.graph.remove_nodes(unused, reason="lite")
        unused = [
            node
            for node in sources
            if not node.consumers and node not in kept_nodes and not node.traits.stateful
        ]


def _variable(name: str, array: Array) -> Value:
    """Return a variable with an initial value."""
    result = constant(name, array)
    result.storage = Storage.VARIABLE
    return result


def _shape_measurer(source: Source, bounds: Sequence[Shape]) -> Callable[[Output], Shape]:
    """Return a function that determines shapes by runs on inputs of the largest sizes."""

    def measure(output: Output) -> Shape:
        try:
            expected = source.graph.get_operation_by_name(output.node.name).outputs[output.index]
            shape = _shape_on(source, bounds, expected, 0)
        except (errors.OpError, KeyError) as error:
            reason = error.message if isinstance(error, errors.OpError) else "it is in a function"
            raise NotInLiteError(_require_bound(output, f"on zeros {reason}")) from error
        try:
            other = _shape_on(source, bounds, expected, 1)
        except errors.OpError:
            return shape  # ones are not indices there, for example
        if shape != other:
            explanation = f"it is {shape} on zeros and {other} on ones"
            raise NotInLiteError(_require_bound(output, explanation))
        return shape

    return measure


def _shape_on(source: Source, bounds: Sequence[Shape], output: Output, number: int) -> Shape:
    """Return the shape of an output in a run whose inputs have `number` in all elements."""
    feeds: dict[Output, Any] = {
        x: np.full(bound, number, x.dtype.as_numpy_dtype)
        for x, bound in zip(source.inputs.values(), bounds, strict=True)
    }
    with source.session() as session:
        return tuple(np.shape(session.run(output, feeds)))


def _require_bound(output: Output, message: str) -> str:
    """Return a message that asks for a bound."""
    return (
        f"lite cannot infer its size, since {message}: give the largest size with "
        f"bounds={{{output.node.name!r}: [...]}}"
    )


class _Lowering:
    """Applies the rules to all nodes, and collects the nodes without a rule."""

    def __init__(self, builder: Builder, host: Device) -> None:
        self._builder = builder
        self._host = host
        self._refused: dict[str, str] = {}

    def add_input(self, source: Output, bound: Shape, output: Output) -> None:
        """Create an input of the file, or record the reason against it."""
        try:
            value = self._builder.new(source.node.name, source.dtype.name, bound)
        except NotInLiteError as error:
            self._refused[source.name] = f"input {source.name}: {error}"
            value = _unwritten_value(source)
        value.declared = tuple(-1 if d is None else d for d in source.dims or ())
        self._builder.same(output, value)
        self._builder.lowered.inputs.append(value)

    def run(self, step: StepGraph) -> None:
        """Lower all nodes.

        Raises: UnimplementedError: lite cannot compute some nodes; the message lists them.
        """
        flow = FlowLowering(sort_nodes(set(step.graph.nodes)), self._builder, self._node)
        try:
            flow.run(step.fetches)
        except NotInLiteError as error:
            self._refused[""] = str(error)
        if self._refused:
            lines = "\n  ".join(self._refused.values())
            raise errors.UnimplementedError(
                f"{len(self._refused)} nodes are not supported by lite:\n  {lines}"
            )

    def _node(self, node: Node) -> None:
        """Lower a node with its rule, or record the reason against it."""
        if node.role in _SKIPPED or (not node.inputs and not node.outputs):
            return
        try:
            if self._fold(node):
                return
            rule = find_rule(node.type)
            if rule is None:
                raise NotInLiteError(_missing_reason(node))
            _require_dtypes(node)
            rule(node, self._builder)
        except NotInLiteError as error:
            self._refused[node.name] = (
                f"{node.name} ({node.type}): {error}{describe_location(node)}"
            )
            for output in node.outputs:  # so that its users are checked too
                self._builder.same(output, _unwritten_value(output))

    def _fold(self, node: Node) -> bool:
        """Fold a node with constant inputs that earlier passes missed, as in a branch or a loop.

        Returns: True if the node's outputs are now constants.
        """
        if node.role is not None or node.traits.stateful or not node.outputs:
            return False
        arrays = [self._builder.known(output) for output in node.outputs]
        if any(array is None for array in arrays):
            arrays = self._compute(node)
        if len(arrays) != len(node.outputs):
            return False
        for output, array in zip(node.outputs, arrays, strict=True):
            self._builder.fold(output, array)
        return True

    def _compute(self, node: Node) -> list[Array]:
        """Return the results of a node's kernel; empty if unknown or much larger than inputs."""
        operands = [self._builder.array(source) for source in node.inputs]
        kernel = find_kernel(node, self._host.type)
        if not operands or any(array is None for array in operands):
            return []
        if kernel is None or kernel.asynchronous:
            return []
        try:
            result = call_quietly(kernel.make(node, self._host), *operands)
        except errors.OpError:
            return []  # the file will fail with it too, if it runs the node
        results = [
            np.asarray(x) for x in (result if isinstance(result, tuple | list) else [result])
        ]
        limit = max(_SMALL_BYTES, sum(array.nbytes for array in operands))
        return results if sum(array.nbytes for array in results) <= limit else []


def _require_dtypes(node: Node) -> None:
    """Check that lite supports the element types of a node."""
    dtypes = {x.dtype.base_dtype.name for x in (*node.inputs, *node.outputs)}
    for name in sorted(dtypes - TYPES.keys() - _HANDLES):
        raise unsupported_type(name)


def _missing_reason(node: Node) -> str:
    """Return why a node has no rule, and a hint what to do."""
    if node.role is Role.PLACEHOLDER:
        return f"name it in `inputs`, or give its value by values={{{node.name!r}: ...}}"
    if node.role is Role.VARIABLE:
        return "the graph is not frozen; convert it with `Converter.from_session`"
    if node.traits.random:
        return (
            "lite does not support random numbers; if only training uses them, switch them off "
            "with values=, such as values={'training': False} or values={'keep_prob': 1.0}"
        )
    return "lite does not support the op: convert the parts before and after it to separate files"


def _unwritten_value(output: Output) -> Value:
    """Return a placeholder value that is never written, for a value that lite cannot compute."""
    kind = TYPES.get(output.dtype.base_dtype.name, TYPES["float32"])
    shape = tuple(size or 1 for size in output.dims or ())
    return Value(output.name, kind, shape, shape)


def _results(builder: Builder, fetches: Sequence[Output]) -> list[Value]:
    """Return the values of the fetches; inputs, constants and repeated values are copied."""
    values: list[Value] = []
    for output in fetches:
        value = builder.value(output)
        if value in builder.lowered.inputs or value in values or value.array is not None:
            copy = Value(value.name, value.dtype, value.shape, value.declared)
            builder.add(OpKind.Copy, [value], [copy], None, output.node.name)
            value = copy
        values.append(value)
    return values

"""From nodes of a graph to a program, for the shapes that a call has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from weft_compiler.ir.expressions import Expr, of_scalar
from weft_compiler.ir.program import Program
from weft_compiler.lower.registry import Operation, Unsupported, require, rule_of
from weft_compiler.lower.values import Value, broadcast, computed
from weft_compiler.lower.writer import write
from weft_graph.ir.constant_value import constant_value
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Node, Output
from weft_graph.ir.op_def import NodeSpec, lookup_op
from weft_graph.ir.scalar import applications
from weft_graph.ir.traits import Role
from weft_tensor import errors
from weft_tensor.dtypes import DType

Shape = tuple[int, ...]

_DIVIDES: Final = {"div", "floor_div", "floor_mod", "trunc_mod", "reciprocal", "pow"}


def why_not(node: Node) -> str:
    """Why a node cannot be lowered, whatever its shapes, or ""."""
    traits = node.op_def.traits
    odd = [out.dtype for out in (*node.inputs, *node.outputs) if not _computes_with(out.dtype)]
    if odd:
        return f"it has values of type {odd[0].name}"
    if traits.identity or rule_of(node.type) is not None:
        return ""
    if traits.scalar is None or traits.scalar.by_kernel:
        return f"no rule says how {node.type} is computed"
    scalar = traits.scalar.expression(
        [source.dtype for source in node.inputs], node.outputs[0].dtype
    )
    if any(part.name in _DIVIDES and part.dtype.is_integer for part in applications(scalar)):
        return "it may divide integers by 0, which its kernel looks for"
    return ""


def lower(
    name: str,
    members: Sequence[Node],
    inputs: Sequence[Output],
    outputs: Sequence[Output],
    shapes: Sequence[Shape],
    given_values: Mapping[int, Any] | None = None,
) -> Program:
    """The program that computes some nodes.

    Args:
      name: of the program.
      members: sources before users.
      inputs: what they take of other nodes; constants among them are known.
      outputs: what is wanted of them.
      shapes: of the inputs.
      given_values: the values of inputs, by position, that are known for this program.
    Returns: a program with the inputs and outputs in their order; constants that it uses follow.
    Raises: Unsupported: it cannot be lowered with these shapes.
    """
    twins = specialise(members, inputs, shapes, given_values or {})
    values: dict[Output, Value] = {}
    for given in inputs:
        twin = twins[given]
        constant = twin.node.attrs["value"] if twin.node.role is Role.CONSTANT else None
        values[twin] = Value(given.node.name, twin.dtype, _shape(twin), constant=constant)
    for member in members:
        node = twins[member.outputs[0]].node
        results = _lowered(node, [values[source] for source in node.inputs])
        for output, value in zip(node.outputs, results, strict=True):
            assert (value.dtype, value.shape) == (output.dtype, _shape(output)), (node, value)
            values[output] = value
    wanted: list[Value] = []
    for output in outputs:
        value = values[twins[output]]
        if value.definition is None or value in wanted:
            value = computed(output.node.name, value.dtype, value.shape, value.at)
        wanted.append(value)
    first = [values[twins[given]] for given in inputs]
    known = [value for value in values.values() if value.constant is not None]
    return write(name, list(dict.fromkeys([*first, *known])), wanted)


def specialise(
    members: Sequence[Node],
    inputs: Sequence[Output],
    shapes: Sequence[Shape],
    given_values: Mapping[int, Any],
) -> dict[Output, Output]:
    """Copies of nodes whose shapes are all known.

    Returns: the copies of the inputs and of what the members give.
    Raises: Unsupported: a shape depends on values that are known when a step runs only.
    """
    graph = Graph()
    twins: dict[Output, Output] = {}
    for at, (given, shape) in enumerate(zip(inputs, shapes, strict=True)):
        node = given.node
        name = graph.unique_name(node.name)
        if node.role is Role.CONSTANT:
            twins[given] = graph.add_copy(node, name, ()).outputs[0]
            continue
        attrs: dict[str, Any] = {"dtype": given.dtype}
        attrs |= {"value": given_values[at]} if at in given_values else {"shape": shape}
        op = lookup_op("Const" if at in given_values else "Placeholder")
        twin = graph.add_derived(node, op, name, (), attrs, [given.dtype], [shape])
        twins[given] = twin.outputs[0]
    for member in members:
        sources = tuple([twins[source] for source in member.inputs])
        rule = member.op_def.shape_rule
        try:
            found = list(rule(NodeSpec(sources, member.attrs))) if rule is not None else []
        except errors.OpError as error:
            raise Unsupported(f"{member.name} has no result for these shapes: {error}") from error
        types = [output.dtype for output in member.outputs]
        if len(found) != len(types) or any(dims is None or None in dims for dims in found):
            raise Unsupported(f"the shapes of what {member.name} gives depend on values")
        name = graph.unique_name(member.name)
        twin = graph.add_derived(member, member.op_def, name, sources, member.attrs, types, found)
        twins.update(zip(member.outputs, twin.outputs, strict=True))
    return twins


def _lowered(node: Node, inputs: Sequence[Value]) -> Sequence[Value]:
    """The values of a node's results."""
    known = [constant_value(output) for output in node.outputs]
    if all(value is not None for value in known):
        return [
            Value(output.name, output.dtype, _shape(output), constant=value)
            for output, value in zip(node.outputs, known, strict=True)
        ]
    if node.op_def.traits.identity:
        return [inputs[0]]
    operation = Operation(node, inputs)
    rule = rule_of(node.type)
    if rule is None:
        require(not why_not(node), why_not(node))
        return [_elementwise(operation)]
    found = rule(operation)
    return [found] if isinstance(found, Value) else found


def _elementwise(op: Operation) -> Value:
    """What the scalar definition of an op says, of operands that broadcast."""
    definition = op.node.op_def.traits.scalar
    assert definition is not None
    scalar = definition.expression([value.dtype for value in op.inputs], op.dtype())

    def element(*at: Expr) -> Expr:
        return of_scalar(
            scalar,
            lambda i: op.inputs[i].at(*broadcast(op.inputs[i].shape, at)),
            lambda name: op.node.attrs[name],
        )

    return computed(op.name, op.dtype(), op.shape(), element)


def _computes_with(dtype: DType) -> bool:
    return dtype.is_bool or dtype.is_integer or dtype.is_floating


def _shape(output: Output) -> Shape:
    assert output.dims is not None
    return tuple([size for size in output.dims if size is not None])

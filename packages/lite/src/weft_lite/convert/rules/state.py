"""Variables that keep their values between invocations.

Reads are copies, because an update may run between a read and its users.
"""

from __future__ import annotations

from weft_graph.ir.node import Node, Output
from weft_graph.ops.stack import producer
from weft_lite.convert.errors import NotInLiteError
from weft_lite.convert.lowered import Value
from weft_lite.convert.registry import Builder, OpKind, rule
from weft_lite.schema.tables import ElementwiseOptions

_UPDATES = {
    "Assign": None, "AssignVariableOp": None,
    "AssignAdd": OpKind.Add, "AssignAddVariableOp": OpKind.Add,
    "AssignSub": OpKind.Sub, "AssignSubVariableOp": OpKind.Sub,
}  # fmt: skip


def variable(output: Output, b: Builder) -> Value:
    """Return the variable of a reference or a handle."""
    source = producer(output)
    if source.name not in b.variables:
        raise NotInLiteError(f"{source.name} has no value: include it in variables=")
    return b.variables[source.name]


@rule("VariableV2", "Variable", "VarHandleOp")
def declare(node: Node, b: Builder) -> None:
    """Use the existing value of a variable."""
    if node.outputs[0].dtype.is_ref:
        b.same(node.outputs[0], variable(node.outputs[0], b))


@rule("ReadVariableOp")
def read(node: Node, b: Builder) -> None:
    """Lower to a Copy of the variable."""
    copy_variable(node, variable(node.inputs[0], b), b)


def copy_variable(node: Node, source: Value, b: Builder) -> None:
    """Copy the current value of a variable to the output of a node."""
    result = b.like(source, node.name)
    b.add(OpKind.Copy, [source], [result], None, node.name)
    b.same(node.outputs[0], result)


@rule(*_UPDATES)
def update(node: Node, b: Builder) -> None:
    """Lower to an Assign of the new value, after an Add or Sub for AssignAdd and AssignSub."""
    state = variable(node.inputs[0], b)
    value = b.value(node.inputs[1])
    kind = _UPDATES[node.type]
    if kind is not None:
        total = b.like(state, f"{node.name}/sum")
        b.add(kind, [state, value], [total], ElementwiseOptions(), node.name)
        value = total
    result = b.like(state, node.name)
    b.add(OpKind.Assign, [state, value], [result], None, node.name)
    for output in node.outputs:
        b.same(output, result)

"""Numeric checks of every value that a step computes: infinities and NaNs are errors."""

from __future__ import annotations

from typing import Final

from weft_graph.ir.node import Output
from weft_graph.ir.op_def import lookup_op
from weft_graph.ir.step_graph import StepGraph
from weft_graph.ir.traits import Role

_CHECK: Final = "CheckNumerics"
_UNCOMPUTED_ROLES: Final = (Role.CONSTANT, Role.ARGUMENT, Role.VARIABLE, Role.PLACEHOLDER)
"""Roles of nodes that compute nothing."""


def check_numerics(step: StepGraph) -> int:
    """Check each floating-point output; return the number of checks."""
    checked = {
        output: _add_check(step, output)
        for node in step.live_nodes()
        if node.type != _CHECK and node.role not in _UNCOMPUTED_ROLES and not node.traits.routes
        for output in node.outputs
        if output.dtype.is_floating and not output.dtype.is_ref
    }
    checks = {output.node for output in checked.values()}
    step.graph.replace_all_uses(checked, reason="check numerics", keep=checks)
    for old, new in checked.items():
        step.forward(old, new)
    return len(checked)


def _add_check(step: StepGraph, output: Output) -> Output:
    """Return an output through a new node that checks it."""
    node = output.node
    check = step.graph.add_derived(
        node,
        lookup_op(_CHECK),
        step.graph.unique_name(f"{node.name}/numerics{output.index or ''}"),
        (output,),
        {"T": output.dtype, "message": f"output {output.index} of {node.type} {node.name!r}"},
        [output.dtype],
        [output.dims],
    )
    check.device = node.device
    return check.outputs[0]

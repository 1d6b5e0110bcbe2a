"""A check of every value that a step computes: the first infinity or NaN is an error."""

from __future__ import annotations

from typing import Final

from weft_graph.ir.node import Output
from weft_graph.ir.op_def import lookup_op
from weft_graph.ir.step_graph import StepGraph
from weft_graph.ir.traits import Role

_CHECK: Final = "CheckNumerics"
_GIVEN: Final = (Role.CONSTANT, Role.ARGUMENT, Role.VARIABLE, Role.PLACEHOLDER)
"""Roles of nodes that compute nothing."""


def check_numerics(step: StepGraph) -> int:
    """Put a check behind each output of floating numbers; returns how many."""
    count = 0
    for node in step.live_nodes():
        if node.type == _CHECK or node.role in _GIVEN or node.traits.routes:
            continue
        for output in node.outputs:
            if output.dtype.is_floating and not output.dtype.is_ref:
                _check(step, output)
                count += 1
    return count


def _check(step: StepGraph, output: Output) -> None:
    node = output.node
    users = output.consumers()
    made = step.graph.add_derived(
        node,
        lookup_op(_CHECK),
        step.graph.unique_name(f"{node.name}/numerics{output.index or ''}"),
        (output,),
        {"T": output.dtype, "message": f"output {output.index} of {node.type} {node.name!r}"},
        [output.dtype],
        [output.dims],
    )
    made.device = node.device
    checked = made.outputs[0]
    for user in users:
        for i, source in enumerate(user.inputs):
            if source is output:
                step.graph.replace_input(user, i, checked, reason="check numerics")
    step.forward(output, checked)

"""Constant folding: replaces nodes with constant inputs by constants that kernels compute."""

from __future__ import annotations

from typing import Final

import numpy as np

from weft_exec.devices.device import Device
from weft_exec.kernels.numpy_warnings import call_quietly
from weft_exec.kernels.registry import find_kernel
from weft_graph.ir.constant_value import constant_value
from weft_graph.ir.device_spec import DeviceSpec
from weft_graph.ir.node import Node, Output
from weft_graph.ir.op_def import lookup_op
from weft_graph.ir.step_graph import StepGraph
from weft_graph.ir.traits import Role, State
from weft_graph.passes.certain_shapes import CertainShapes
from weft_tensor.dtypes import string
from weft_tensor.shape import num_elements

LARGEST_FOLDED = 10 << 20
"""Maximum size of a folded constant in bytes; larger results are computed in each step."""

_CONSTANT: Final = frozenset({Role.CONSTANT})
_CONSTANT_OR_FED: Final = _CONSTANT | {Role.ARGUMENT}
"""Roles of inputs whose value a folded node need not wait for, even in branches and loops."""


def fold_constants(step: StepGraph, device: Device) -> int:
    """Replace nodes whose inputs are all constants by their value.

    A folded node keeps its name and device and the control inputs of its constants. Only nodes with
    a single output and without side effects are folded. The node still waits for inputs that are
    used only for their shape, because these may fail. In a branch or a loop it waits for all
    inputs, so that it remains there. If a kernel fails, the node is not changed, and the step will
    report the error.

    Returns: the number of folded nodes.
    """
    const = lookup_op("Const")
    count = 0
    effects: set[Node] = set()
    routed: set[Node] = set()
    shapes = CertainShapes()
    for node in step.graph.nodes:
        if _is_routed(node, routed):
            routed.add(node)
        if _has_effects(node) or not effects.isdisjoint([s.node for s in node.inputs]):
            effects.add(node)
        if not _foldable(node, effects, shapes, device):
            continue
        value = _evaluate(node, device)
        if value is None:
            continue
        controls = [control for source in node.inputs for control in source.node.controls]
        free = _CONSTANT if node in routed else _CONSTANT_OR_FED
        measured = _fold_by_shape(node) is not None
        sources = [_shape_source(node)] if measured else node.inputs
        controls += [source.node for source in sources if source.node.role not in free]
        step.graph.become_constant(node, const, value, reason="fold")
        if controls:
            step.graph.set_control_inputs(node, controls, reason="fold")
        step.changes[f"fold {node.type}"] += 1
        count += 1
    return count


def _is_routed(node: Node, routed: set[Node]) -> bool:
    """Return True if a node may be in a branch or a loop."""
    if node.traits.routes or not routed.isdisjoint(node.controls):
        return True
    return bool(routed) and not routed.isdisjoint([source.node for source in node.inputs])


def _has_effects(node: Node) -> bool:
    """Return True if removing a node could change the behavior of the step."""
    if node.controls:
        return True
    traits = node.traits
    return traits.stateful and traits.state not in (State.CREATES, State.READS)


def _foldable(node: Node, effects: set[Node], shapes: CertainShapes, device: Device) -> bool:
    if len(node.outputs) != 1 or node.controls or node.op_def.stateful:
        return False
    if node.role is not None:  # a recursive call may take long, and an argument may be fed
        return False
    if node.device and not DeviceSpec.from_string(node.device).matches(device.spec):
        return False
    if _fold_by_shape(node) is not None:
        source = _shape_source(node).node
        return node.inputs[0].node not in effects and shapes.hold_for(source)
    if not node.inputs and not node.traits.host_code:
        return False
    if any([s.node.role is not Role.CONSTANT for s in node.inputs]):
        return False
    output = node.outputs[0]
    count = num_elements(output.dims)
    return count is None or count * max(1, output.dtype.size) <= LARGEST_FOLDED


def _fold_by_shape(node: Node) -> np.ndarray | None:
    """Return the value of a node that depends only on the static shape of one of its inputs.

    The node returns the shape, or selects sizes that are known.
    """
    if not node.inputs:
        return None
    first = node.inputs[0].node
    if node.traits.tells_shape:
        return constant_value(node.outputs[0]) if len(node.inputs) == 1 else None
    if not first.traits.tells_shape or len(first.inputs) != 1 or first.controls:
        return None
    if any([operand.node.role is not Role.CONSTANT for operand in node.inputs[1:]]):
        return None
    return constant_value(node.outputs[0])


def _shape_source(node: Node) -> Output:
    """Return the input whose shape a node reads."""
    source = node.inputs[0]
    return source if node.traits.tells_shape else source.node.inputs[0]


def _evaluate(node: Node, device: Device) -> np.ndarray | None:
    matches = _fold_by_shape(node)
    if matches is not None:
        return matches
    kernel = find_kernel(node, device.type)
    if kernel is None or kernel.asynchronous:
        return None
    inputs = [source.node.attrs["value"] for source in node.inputs]
    try:
        result = call_quietly(kernel.make(node, device), *inputs)
    except Exception:  # because the step itself will raise it, with its location
        return None
    if not isinstance(result, np.ndarray | np.generic) or result.nbytes > LARGEST_FOLDED:
        return None
    if node.outputs[0].dtype is string and result.dtype.kind != "O":
        return None
    value = np.array(result, order="C")  # the layout that matrix product kernels need in each step
    value.flags.writeable = False
    return value

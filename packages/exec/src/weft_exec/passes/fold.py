"""Constant folding: nodes with constant inputs become constants, computed by their own kernels."""

from __future__ import annotations

import numpy as np

from weft_exec.devices.device import Device
from weft_exec.kernels.quiet import quietly
from weft_exec.kernels.registry import find_kernel
from weft_graph.ir.device_spec import DeviceSpec
from weft_graph.ir.node import Node
from weft_graph.ir.op_def import lookup_op
from weft_graph.ir.step_graph import StepGraph
from weft_graph.ops.control_flow import ROUTING
from weft_tensor.dtypes import string
from weft_tensor.shape import num_elements

LARGEST_FOLDED = 10 << 20
"""Bytes; larger results are computed each time rather than kept."""

_SOURCES = frozenset({"_Arg", "ReadVariableOp", "VarHandleOp", "Variable", "VariableV2"})
_NEVER = frozenset(
    {
        "Assert",
        "CheckNumerics",
        "PartitionedCall",  # a recursion may take long
        "Placeholder",
        "PlaceholderWithDefault",
        "Print",
    }
)


def fold_constants(step: StepGraph, device: Device) -> int:
    """Replace nodes whose inputs are all constants by their value.

    A node keeps its name and place, and waits for what its constants waited for; only single
    outputs without effects are folded.  In a branch or a loop it also waits for its inputs, so that
    it stays there.  A kernel that fails is left for the step to fail with, where the error has its
    place.

    Returns: the number of nodes folded.
    """
    const = lookup_op("Const")
    count = 0
    effects: set[Node] = set()
    routed: set[Node] = set()
    for node in step.graph.nodes:
        if _is_routed(node, routed):
            routed.add(node)
        if _has_effects(node) or not effects.isdisjoint([s.node for s in node.inputs]):
            effects.add(node)
        if not _foldable(node, effects, device):
            continue
        value = _evaluate(node, device)
        if value is None:
            continue
        waits = [control for source in node.inputs for control in source.node.control_inputs]
        if node in routed:
            waits += [source.node for source in node.inputs if source.node.type != "Const"]
        step.graph.become_constant(node, const, value, reason="fold")
        if waits:
            step.graph.set_control_inputs(node, waits, reason="fold")
        step.changes[f"fold {node.type}"] += 1
        count += 1
    return count


def _is_routed(node: Node, routed: set[Node]) -> bool:
    """Whether a node may be in a branch or a loop."""
    if node.type in ROUTING or not routed.isdisjoint(node.control_inputs):
        return True
    return bool(routed) and not routed.isdisjoint([source.node for source in node.inputs])


def _has_effects(node: Node) -> bool:
    """Whether leaving a node out could be noticed."""
    return bool(node.control_inputs) or (node.op_def.stateful and node.type not in _SOURCES)


def _foldable(node: Node, effects: set[Node], device: Device) -> bool:
    if len(node.outputs) != 1 or node.control_inputs or node.op_def.stateful:
        return False
    if node.type in ("Const", "_Arg") or node.type in _NEVER:
        return False
    if node.device and not DeviceSpec.from_string(node.device).matches(device.spec):
        return False
    output = node.outputs[0]
    if node.type in ("Shape", "Size", "Rank") and _static(node) is not None:
        return node.inputs[0].node not in effects
    if not node.inputs or any([source.node.type != "Const" for source in node.inputs]):
        return False
    count = num_elements(output.dims)
    return count is None or count * max(1, output.dtype.size) <= LARGEST_FOLDED


def _static(node: Node) -> np.ndarray | None:
    dims = node.inputs[0].dims
    if dims is None or (None in dims and node.type != "Rank"):
        return None
    dtype = node.outputs[0].dtype.numpy
    if node.type == "Shape":
        return np.array(dims, dtype)
    return np.array(len(dims) if node.type == "Rank" else num_elements(dims), dtype)


def _evaluate(node: Node, device: Device) -> np.ndarray | None:
    if node.type in ("Shape", "Size", "Rank"):
        found = _static(node)
        if found is not None:
            return found
    kernel = find_kernel(node, device.type)
    if kernel is None or kernel.asynchronous:
        return None
    inputs = [source.node.attrs["value"] for source in node.inputs]
    try:
        result = quietly(kernel.make(node, device), *inputs)
    except Exception:  # because the step itself will raise it, with its place
        return None
    if not isinstance(result, np.ndarray | np.generic) or result.nbytes > LARGEST_FOLDED:
        return None
    if node.outputs[0].dtype is string and result.dtype.kind != "O":
        return None
    value = np.array(result)
    value.flags.writeable = False
    return value

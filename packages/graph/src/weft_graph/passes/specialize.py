"""Specialization of a step for known inputs.

    training = placeholder_with_default(False, [])
    y = cond(training, by_batch_statistics, by_moving_averages)   →   y = by_moving_averages()

A converted model has one purpose, so placeholders for switches become constants: their defaults or
specified values. Conditionals on them are then folded. Sessions do not use this pass, because
another Run may feed the placeholder.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from weft_graph.ir.constant_value import constant_value, forget_values
from weft_graph.ir.node import Node, Output
from weft_graph.ir.op_def import lookup_op
from weft_graph.ir.step_graph import StepGraph, is_back_edge
from weft_graph.ir.traits import Role
from weft_graph.passes.control_inputs import release_controls
from weft_graph.passes.inference import drop_masks, drop_null_updates
from weft_graph.passes.partitioned_lookups import join_partitioned_lookups
from weft_tensor import dtypes, errors

Array = np.ndarray[Any, Any]

_REASON: Final = "specialize"


def specialize(step: StepGraph, values: Mapping[Output, Array] | None = None) -> int:
    """Bind inputs of a step, remove dead branches, masks and updates, and join partitioned lookups.

    Args:
      step: a pruned step with inlined calls.
      values: values by output; these outputs are the last feeds of the step, and become constants.
        Other placeholders that are not fed become their defaults.
    Returns: the number of replaced nodes.
    Raises: InvalidArgumentError: a fetch or a target is in a branch that is not taken.
    """
    count = _bind_feeds(step, values or {}) + _bind_defaults(step)
    while folded := fold_conditionals(step):
        count += folded
    count += drop_masks(step) + drop_null_updates(step)
    return count + join_partitioned_lookups(step)


def _bind_feeds(step: StepGraph, values: Mapping[Output, Array]) -> int:
    """Replace the last feeds by constants."""
    first = len(step.feeds) - len(values)
    for feed, (source, value) in zip(step.feeds[first:], values.items(), strict=True):
        name = step.graph.unique_name(source.node.name)
        step.replace(feed, _constant(step, feed.node, name, value), reason=_REASON)
    bound = [feed.node for feed in step.feeds[first:]]
    del step.feeds[first:]
    step.drop_unused(bound)
    return len(values)


def _constant(step: StepGraph, origin: Node, name: str, value: Array) -> Output:
    dtype = dtypes.as_dtype(value.dtype)
    attrs = {"value": value, "dtype": dtype}
    const = lookup_op("Const")
    return step.graph.add_derived(origin, const, name, (), attrs, [dtype], [value.shape]).outputs[0]


def _bind_defaults(step: StepGraph) -> int:
    """Replace placeholders that have a default by the default."""
    nodes = [node for node in step.graph.nodes if node.role is Role.PLACEHOLDER and node.inputs]
    for node in nodes:
        step.replace(node.outputs[0], step.resolve(node.inputs[0]), reason=_REASON)
    release_controls(step, {node: step.resolve(node.inputs[0]) for node in nodes})
    step.drop_unused(nodes)
    return len(nodes)


def fold_conditionals(step: StepGraph) -> int:
    """Fold conditionals with static predicates.

    Returns: the number of removed Switch nodes. Switches whose predicate is the result of another
      folded conditional remain until the next call.
    Raises: InvalidArgumentError: a fetch or a target is in a branch that is not taken.
    """
    sides = _find_decided_switches(step)
    if not sides:
        return 0
    dead = _dead_elements(step, sides)
    _require_alive(step, dead)
    live = {switch.outputs[side]: switch.inputs[0] for switch, side in sides.items()}
    pivots = {user for output in live for user in output.consumers() if user.traits.identity}
    replaced = {**live, **_find_bypassed_merges(step, dead)}
    for old, new in replaced.items():
        if old not in dead:
            step.replace(old, step.resolve(new), reason=_REASON)
    sources = {old.node: step.resolve(new) for old, new in reversed(replaced.items())}
    release_controls(step, sources, pivots)
    step.remove_unreachable(reason=_REASON)
    forget_values(output for node in step.graph.nodes for output in node.outputs)
    return len(sides)


def _find_decided_switches(step: StepGraph) -> dict[Node, int]:
    """Return the Switch nodes with a static predicate, and the index of the live output."""
    switches = [node for node in step.graph.nodes if node.role is Role.SWITCH]
    values = {node: constant_value(node.inputs[1]) for node in switches}
    return {node: int(bool(value)) for node, value in values.items() if value is not None}


def _dead_elements(step: StepGraph, sides: Mapping[Node, int]) -> set[Output | Node]:
    """Return the outputs that never have a value, and the nodes that never run.

    Inputs come before their users, except at back edges: a loop that is not entered is dead.
    """
    dead: set[Output | Node] = set()
    for node in step.graph.nodes:
        ahead = [source in dead for source in node.inputs if not is_back_edge(node, source)]
        lacks_input = all(ahead) if node.role is Role.MERGE else any(ahead)
        waits_for_dead = any(control in dead for control in node.controls)
        if lacks_input or (waits_for_dead and node.role is not Role.TRIGGER):
            dead.update([node, *node.outputs])
        elif node in sides:
            dead.add(node.outputs[1 - sides[node]])
    return dead


def _require_alive(step: StepGraph, dead: set[Output | Node]) -> None:
    lost = [output.node for output in step.fetches if output in dead]
    lost += [node for node in step.targets if node in dead]
    for node in lost:
        raise errors.InvalidArgumentError(
            "it is computed only in a branch that is not taken; fetch the result of the "
            "conditional, or change the value of its predicate",
            op=node.type,
            node=node.name,
            line=node.line or None,
        )


def _find_bypassed_merges(step: StepGraph, dead: set[Output | Node]) -> dict[Output, Output]:
    """Return the replacements of the outputs of each Merge with one remaining input."""
    result: dict[Output, Output] = {}
    for node in [node for node in step.graph.nodes if node.role is Role.MERGE]:
        alive = [i for i, source in enumerate(node.inputs) if source not in dead]
        is_loop = any(is_back_edge(node, source) for source in node.inputs)
        if is_loop or len(alive) != 1 or len(node.inputs) == 1:
            continue
        result[node.outputs[0]] = node.inputs[alive[0]]
        if node.outputs[1].consumers() or node.outputs[1] in step.fetches:
            name = step.graph.unique_name(f"{node.name}/index")
            result[node.outputs[1]] = _constant(step, node, name, np.array(alive[0], np.int32))
    return result

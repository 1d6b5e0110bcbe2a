"""The gradient of a conditional: a conditional on the same predicate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft_autodiff.gradients.path import Path
from weft_autodiff.gradients.units import captured_values
from weft_autodiff.gradients.values import (
    Grad,
    as_dense,
    empty_slices,
    is_trainable,
    shape_for,
    zeros_for,
)
from weft_autodiff.gradients.walk import Pushed, Walk
from weft_graph.control_flow.conditional import branch_results, merge_results, open_conditional
from weft_graph.control_flow.context import (
    CondContext,
    Conditional,
    Recall,
    current_context,
    is_inside,
)
from weft_graph.ir.indexed_slices import IndexedSlices
from weft_graph.ir.node import Output
from weft_tensor import dtypes

Totals = dict[Output, Grad]


def differentiate_conditional(
    walk: Walk, conditional: Conditional, outputs: Sequence[Output], path: Path
) -> None:
    """Propagate gradients of a conditional's outputs to the inputs of its branches.

    Args:
      walk: the backward pass over the level of the conditional.
      outputs: outputs of the conditional that lead to targets; values inside a branch may be among
        them.
      path: the path in that level.
    """
    graph = walk.graph
    context = current_context(graph)
    pred = conditional.pred if context is None else context.capture(conditional.pred)
    scope = graph.scopes.name_prefix
    backward = open_conditional(graph, pred, scope)
    grads = {output: walk.total(output) for output in outputs}
    totals: list[Totals] = []
    for branch, forward in zip(backward.branches, conditional.branches, strict=True):
        branch.forward = forward
        branch.recall = None if context is None else _outer_recall(walk)
        with branch.open():
            totals.append(_walk_branch(walk, forward, grads, path))
    joined = dict.fromkeys(value for total in totals for value in total)
    merged = [
        value for value in joined if not _try_forward_gradient(walk, value, conditional, totals)
    ]
    _merge(walk, backward, merged, totals)


def _outer_recall(walk: Walk) -> Recall | None:
    return None if walk.loop is None else walk.loop.context.recall


def _walk_branch(
    walk: Walk, forward: CondContext, grads: Mapping[Output, Grad | None], path: Path
) -> Totals:
    """Return the gradients of a branch's inputs from those of its results."""
    pushed: list[Pushed] = [
        (push, handle)
        for push, handle in walk.pushed
        if push.context is not None and push.context.is_inside(forward)
    ]
    inner = walk.inner(forward, walk.loop, pushed)
    targets = []
    for output, grad in grads.items():
        target = _find_in_branch(output, forward)
        if grad is not None and target is not None:
            inner.receive(target, grad)
            targets.append(target)
    uses = {
        v: i for v, i in captured_values(forward).items() if is_trainable(v) and path.leads_to(v)
    }
    uses.update({source: source for source in path.sources_in(forward)})
    inner.back(targets, list(uses.values()), set(captured_values(forward).values()))
    grads_of_uses = {value: inner.total(inner_value) for value, inner_value in uses.items()}
    return {value: grad for value, grad in grads_of_uses.items() if grad is not None}


def _find_in_branch(output: Output, branch: CondContext) -> Output | None:
    """Return an output's counterpart in a branch: its result, the output itself, or None."""
    if is_inside(output, branch):
        return output
    for position, source in enumerate(output.node.inputs):
        if source in branch.results and branch.conditional.branches[position] is branch:
            return source
    return None


def _try_forward_gradient(
    walk: Walk, value: Output, conditional: Conditional, totals: Sequence[Totals]
) -> bool:
    """If a value exists in one branch only, pass its gradient on and return True.

    Such values are those inside the branch or its forward branch, and stacks.
    """
    grads = [total[value] for total in totals if value in total]
    graphs = [
        graph for branch in conditional.branches for graph in (branch, branch.forward) if graph
    ]
    if any(is_inside(value, graph) for graph in graphs) or any(_is_stack(grad) for grad in grads):
        for grad in grads:
            walk.receive(value, grad)
        return True
    return False


def _is_stack(grad: Grad) -> bool:
    return isinstance(grad, Output) and grad.dtype is dtypes.resource


def _merge(
    walk: Walk, backward: Conditional, values: Sequence[Output], totals: Sequence[Totals]
) -> None:
    """Merge the gradients of both branches; a missing one is zero."""
    sparse = {
        value: next(total[value] for total in totals if value in total)
        for value in values
        if all(isinstance(total[value], IndexedSlices) for total in totals if value in total)
    }
    for branch, total in zip(backward.branches, totals, strict=True):
        with branch.open():
            results: list[Output] = []
            for value in values:
                other_branch = sparse.get(value)
                results += _parts(value, total.get(value), other_branch)
            branch_results(branch, results)
    outputs = iter(merge_results(backward))
    for value in values:
        if value in sparse:
            slices = IndexedSlices(next(outputs), next(outputs), shape_for(value))
            walk.receive(value, slices)
        else:
            walk.receive(value, next(outputs))


def _parts(value: Output, grad: Grad | None, other_branch: Grad | None) -> list[Output]:
    """Return the gradient of a value in one branch as a list of outputs."""
    if isinstance(other_branch, IndexedSlices):
        slices = empty_slices(value, other_branch) if grad is None else grad
        assert isinstance(slices, IndexedSlices)
        return [slices.values, slices.indices]
    dense = zeros_for(value) if grad is None else as_dense(grad)
    assert dense is not None
    return [dense]

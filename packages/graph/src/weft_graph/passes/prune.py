"""Pruning to the nodes that fetches and targets need, given the feeds (paper, section 4.2)."""

from __future__ import annotations

from collections.abc import Sequence

from weft_graph.control_flow.context import context_of
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Node, Output
from weft_graph.ir.op_def import lookup_op
from weft_graph.ir.step_graph import StepGraph, copy_nodes, reachable, sort_nodes
from weft_graph.ir.traits import Role
from weft_tensor import errors


def prune(feeds: Sequence[Output], fetches: Sequence[Output], targets: Sequence[Node]) -> StepGraph:
    """Return a copy of the nodes that the signature needs.

    Args:
      feeds: outputs whose values come from the caller; nodes that only they need are dropped.
      fetches: outputs to return.
      targets: nodes to run for their side effects.
    Raises: InvalidArgumentError: the nodes form a cycle, or a feed is inside a loop.
    Source: paper, section 4.2.
    """
    for feed in feeds:
        _check_feed(feed)
    fed = set(feeds)
    roots = [output.node for output in fetches if output not in fed] + list(targets)
    nodes = sort_nodes(reachable(roots, fed), fed)
    copy = Graph()
    if roots:
        copy.functions = roots[0].graph.functions
    arg_def = lookup_op("_Arg")
    outputs: dict[Output, Output] = {}
    args: list[Output] = []
    for i, feed in enumerate(feeds):
        dtype = feed.dtype.base_dtype
        # What is fed to a step is checked; what is given to a function is what its callers have.
        checked = feed.node.role is not Role.ARGUMENT
        attrs = {"T": dtype, "index": i, "shape": feed.dims if checked else None}
        name = f"_arg{i}_{feed.node.name}_{feed.index}"
        arg = copy.add_derived(feed.node, arg_def, name, (), attrs, [dtype], [feed.dims])
        outputs[feed] = arg.outputs[0]
        args.append(arg.outputs[0])
    counterparts = copy_nodes(nodes, copy, outputs)
    return StepGraph(copy, args, [outputs[f] for f in fetches], [counterparts[t] for t in targets])


def _check_feed(feed: Output) -> None:
    context = context_of(feed)
    loop = None if context is None else context.loop
    if loop is not None:
        raise errors.InvalidArgumentError(
            f"{feed.name!r} cannot be fed: it is inside the loop {loop.name!r}, and has a value "
            "for each iteration",
            op=feed.node.type,
            node=feed.node.name,
            line=feed.node.line or None,
        )

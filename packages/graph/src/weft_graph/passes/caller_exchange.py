"""Steps that exchange feeds and fetches with their caller while they run.

A feed becomes a Receive and a fetch becomes a Send, so that each is transferred as early as
possible.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from weft_graph.control_flow.context import context_of
from weft_graph.ir.node import Output
from weft_graph.ir.op_def import lookup_op
from weft_graph.ir.step_graph import StepGraph, reachable
from weft_graph.ops.step import RECEIVE, SEND
from weft_tensor import errors

CALLER: Final = "caller"
"""Pseudo device of the caller, which feeds and fetches."""


def fed_key(position: int, home: str) -> str:
    """Return the transfer name of a feed."""
    return f"{CALLER};{home};feed:{position}"


def fetched_key(position: int, home: str) -> str:
    """Return the transfer name of a fetch."""
    return f"{home};{CALLER};fetch:{position}"


def check_outside_loops(fetches: Sequence[Output]) -> None:
    """Reject fetches inside loops, whose values exist once per iteration.

    Raises: InvalidArgumentError: a fetch is inside a loop.
    """
    for output in fetches:
        context = context_of(output)
        loop = None if context is None else context.loop
        if loop is not None:
            raise errors.InvalidArgumentError(
                f"{output.name!r} cannot be fetched: it is inside the loop {loop.name!r}, and has "
                "a value for each iteration",
                op=output.node.type,
                node=output.node.name,
                line=output.node.line or None,
            )


def meet_caller(step: StepGraph, home: str) -> tuple[StepGraph, list[frozenset[int]]]:
    """Replace feeds and fetches by transfers from and to the caller.

    Args:
      step: the prepared step, whose graph is modified.
      home: the device that receives feeds and sends fetches.
    Returns: the step without feeds and fetches, and the feeds that each fetch needs.
    """
    position_of = {}
    for position, arg in enumerate(step.feeds):
        received = _receive(step, arg, position, home)
        position_of[received.node] = position
        step.replace(arg, received, reason="late feed")
    sends, requirements = [], []
    for position, output in enumerate(step.fetches):
        attrs = _ends(home, CALLER, f"fetch:{position}")
        send = step.graph.add_derived(
            output.node,
            lookup_op(SEND),
            step.graph.unique_name(f"_send{position}_{output.node.name}"),
            (output,),
            {"T": output.dtype.base_dtype, **attrs},
            [],
            [],
        )
        send.device = home
        sends.append(send)
        before_send = reachable([send])
        requirements.append(frozenset(p for node, p in position_of.items() if node in before_send))
    step_graph = StepGraph(step.graph, (), (), [*step.targets, *sends])
    step_graph.changes = step.changes
    return step_graph, requirements


def _receive(step: StepGraph, arg: Output, position: int, home: str) -> Output:
    dtype = arg.dtype.base_dtype
    received = step.graph.add_derived(
        arg.node,
        lookup_op(RECEIVE),
        step.graph.unique_name(f"_recv{position}_{arg.node.name}"),
        (),
        {"tensor_type": dtype, **_ends(CALLER, home, f"feed:{position}")},
        [dtype],
        [arg.dims],
    )
    received.device = home
    return received.outputs[0]


def _ends(source: str, target: str, name: str) -> dict[str, str]:
    return {"tensor_name": name, "send_device": source, "recv_device": target}

"""Values from state that a call saves for its gradient.

The gradient recomputes the rest of the body. A saved value is an output of the function after its
results; if it is in a branch, the output is a Merge with an unused value of the other branch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from weft_graph.control_flow.context import CondContext, context_of
from weft_graph.functions import state
from weft_graph.ir.builder import constant_of
from weft_graph.ir.constants import to_array
from weft_graph.ir.node import Node, Output
from weft_graph.ir.traits import Role
from weft_graph.ops import control_flow as primitives, identity
from weft_tensor import dtypes
from weft_tensor.dtypes import DType


def values_from_state(nodes: Iterable[Node]) -> Iterator[Output]:
    """Yield the outputs of `nodes` that a second run could compute differently."""
    for node in nodes:
        if state.returns_state(node):
            yield from state.saved_outputs(node)


def is_single(value: Output) -> bool:
    """Return True if a value of a body exists once per call: it is not in a loop."""
    context = context_of(value)
    return context is None or context.loop is None


def export_value(value: Output) -> Output:
    """Return a single value of a body, or an arbitrary value if its branch does not run."""
    context = context_of(value)
    while context is not None:
        assert isinstance(context, CondContext)
        value = _merge_with_default(context, value)
        context = context.outer
    return value


def _merge_with_default(branch: CondContext, value: Output) -> Output:
    sides: list[Output] = []
    for side in branch.conditional.branches:
        with side.open():
            branch_value = value if side is branch else constant_of(_default_value(value.dtype))
            sides.append(identity.identity(branch_value))
            side.results = (*side.results, sides[-1])
    with branch.outside():
        return primitives.merge(sides, name="saved").output


def _default_value(dtype: DType) -> Any:
    return to_array(b"" if dtype is dtypes.string else 0, dtype)


def output_positions(outputs: Iterable[Output]) -> dict[Output, int]:
    """Return a mapping from values of a body to the outputs that return them."""
    positions: dict[Output, int] = {}
    for index, output in enumerate(outputs):
        stack = [output]
        while stack:
            current = stack.pop()
            if current in positions:
                continue
            positions[current] = index
            node = current.node
            if node.role is Role.MERGE and current.index == 0:
                stack.extend(node.inputs)
            elif node.traits.identity and not node.inputs[0].dtype.is_ref:
                stack.append(node.inputs[0])
    return positions

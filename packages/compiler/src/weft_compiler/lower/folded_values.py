"""Values that lowering computes from sizes, such as the remainder of a batch size.

Lowering evaluates a node if `constant_value` knows its result for the sizes of a request. The
program then contains a number, which may depend on a size in any way: n % 3 is the same for 16, 52
and 64. All other arithmetic is part of the program and right for every size. Code that was verified
for some sizes may therefore be used for another size only if each folded value is the same linear
function of the size. Evaluating them is much cheaper than lowering all nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from weft_compiler.ir.linear_functions import LinearFunction, is_same
from weft_compiler.lower.region import specialize
from weft_compiler.lower.registry import Unsupported
from weft_compiler.lower.request_numbers import AnyRequest, with_numbers
from weft_graph.ir.code_generators import RegionRequest
from weft_graph.ir.constant_value import constant_value
from weft_graph.ir.node import Node, Output
from weft_graph.ir.traits import Role

Values = Sequence[Any]
"""The value of each folded output: an array, or None if lowering does not evaluate it."""

_MEMO: Final = "folded_nodes"
_ROUTES: Final = (Role.SWITCH, Role.ENTER)
"""Roles of nodes whose results lowering replaces by their first inputs."""
_UNKNOWN: Final = (Role.MERGE, Role.NEXT_ITERATION, Role.EXIT)
"""Roles of nodes whose results are known only when a step runs."""


class FoldedValues:
    """The folded results of the elementwise nodes of a request.

    Values of other nodes, such as shapes and axes, are compared by the numbers of programs only.

    Attributes:
      are_evaluated: False if they cannot be evaluated for other sizes: those inside of loops.
    """

    def __init__(self, request: AnyRequest) -> None:
        self._request = request
        self._nodes = _folded_nodes(request)
        self.are_evaluated = not self._nodes or isinstance(request, RegionRequest)

    def at(self, numbers: Sequence[int]) -> Values | None:
        """Return the values for the numbers of another request; None if they are unknown.

        Args:
          numbers: in the order of `numbers_of`.
        """
        if not self._nodes:
            return ()
        request = with_numbers(self._request, numbers)
        if not isinstance(request, RegionRequest):
            return None
        members, inputs = _sources(self._nodes, request)
        positions = [index for index, source in enumerate(request.inputs) if source in inputs]
        known_positions = [
            (new, index) for new, index in enumerate(positions) if index in request.values
        ]
        try:
            outputs = specialize(
                members,
                [request.inputs[index] for index in positions],
                [request.shapes[index] for index in positions],
                {new: request.values[index] for new, index in known_positions},
            )
        except Unsupported:
            return None
        return [constant_value(outputs[out]) for node in self._nodes for out in node.outputs]


def is_on_line(values: Mapping[int, Values | None], size: int) -> bool:
    """Return True if values at a size continue the linear functions through two other sizes.

    Args:
      values: the folded values at three sizes, including `size`.
    """
    first, second = [known_size for known_size in values if known_size != size]
    first_values, second_values, new_values = values[first], values[second], values[size]
    if first_values is None or second_values is None or new_values is None:
        return False
    return all(
        _is_linear_in_size(x, y, z, first, second, size)
        for x, y, z in zip(first_values, second_values, new_values, strict=True)
    )


def _is_linear_in_size(x: Any, y: Any, z: Any, first: int, second: int, size: int) -> bool:
    if x is None or y is None or z is None:
        return x is None and y is None and z is None
    arrays = [_literal(np.asarray(value)) for value in (x, y, z)]
    if len({(array.shape, array.dtype) for array in arrays}) > 1:
        return False
    if arrays[0].dtype.kind not in "biuf":
        return all(array.tobytes() == arrays[0].tobytes() for array in arrays)
    for a, b, c in zip(*[array.ravel().tolist() for array in arrays], strict=True):
        line = LinearFunction.through(a, b, first, second)
        if line is None or not is_same(line.at(size), c):
            return False
    return True


def _literal(array: np.ndarray) -> np.ndarray:
    """Return the numbers that represent an array in a program: one, if all elements are equal."""
    flat = array.reshape(-1)
    return flat[:1] if array.size and (flat == flat[0]).all() else array


def _folded_nodes(request: AnyRequest) -> Sequence[Node]:
    """Return the elementwise nodes that lowering may evaluate from sizes, in order."""
    memo = request.memo if isinstance(request, RegionRequest) else None
    if memo is not None and _MEMO in memo:
        nodes: Sequence[Node] = memo[_MEMO]
        return nodes
    folding = _Folding()
    if isinstance(request, RegionRequest):
        size_inputs = [request.inputs[position] for position in request.values]
        folding.known_outputs.update(size_inputs)
        folding.sized.update(size_inputs)
    num_before = -1
    while (
        len(folding.known_outputs) + len(folding.sized) > num_before
    ):  # nodes of loops are in no fixed order
        num_before = len(folding.known_outputs) + len(folding.sized)
        for node in request.nodes:
            folding.add(node)
    nodes = [
        node
        for node in request.nodes
        if node.op_def.traits.elementwise and not folding.sized.isdisjoint(node.outputs)
    ]
    if memo is not None:
        memo[_MEMO] = nodes
    return nodes


class _Folding:
    """Outputs that lowering may evaluate.

    Attributes:
      known_outputs: those whose value, or a part of it, may be known.
      sized: the ones that depend on sizes.
    """

    def __init__(self) -> None:
        self.known_outputs: set[Output] = set()
        self.sized: set[Output] = set()

    def add(self, node: Node) -> None:
        """Add the outputs of a node if its value rule, or its role, makes them known."""
        rule = node.op_def.value_rule
        needs: Sequence[Output]
        if node.role in _ROUTES:
            needs = node.inputs[:1]
        elif rule is None or node.role in _UNKNOWN or node.role is Role.CONSTANT:
            return
        else:
            needs = node.inputs if rule.needs is None else [node.inputs[i] for i in rule.needs]
        knowledge = [
            source.node.role is Role.CONSTANT or source in self.known_outputs for source in needs
        ]
        # Parts of a value can be unknown only if it consists of integers.
        is_partial = rule is not None and rule.partial and any(knowledge)
        if not all(
            is_known or (is_partial and source.dtype.is_integer)
            for source, is_known in zip(needs, knowledge, strict=True)
        ):
            return
        self.known_outputs.update(node.outputs)
        # Elements of an elementwise result depend on elements only, also if a shape makes it known.
        reads_sizes = rule is not None and rule.uses_shape and not node.op_def.traits.elementwise
        if reads_sizes or not self.sized.isdisjoint(needs):
            self.sized.update(node.outputs)


def _sources(nodes: Sequence[Node], request: RegionRequest) -> tuple[list[Node], set[Output]]:
    """Return the members that nodes depend on, in order, and the outputs that the members read."""
    needed = set(nodes)
    read: set[Output] = set()
    for member in reversed(request.members):
        if member in needed:
            read.update(member.inputs)
            needed.update(source.node for source in member.inputs)
    return [member for member in request.members if member in needed], read

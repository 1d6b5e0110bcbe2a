"""Limits of the expansion of a model's functions, which call each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from onnx import FunctionProto, ModelProto, NodeProto

from weft_io.onnx.model import all_nodes, placed, plain_domain, subgraphs
from weft_tensor import errors

_TIMES: Final = 20
"""Maximum ratio of expanded nodes to the nodes in the file."""

_ALWAYS: Final = 20_000
"""Nodes that a model may unfold to, however small its file is."""

_DEEPEST: Final = 50
"""Maximum depth of nested function calls, each of which uses Python's stack."""


class Unfolding:
    """Expansion limits for the import of one model.

    Attributes:
      functions: those of the model, by domain and name.
    Raises: ResourceExhaustedError: the expansion is too large, which is detected beforehand.
    """

    def __init__(self, model: ModelProto) -> None:
        self.functions: Mapping[tuple[str, str], FunctionProto] = {
            (plain_domain(each.domain), each.name): each for each in model.functions
        }
        bodies = [all_nodes(model.graph), *(all_nodes(each) for each in model.functions)]
        self._most = max(_ALWAYS, _TIMES * sum(1 for body in bodies for _ in body))
        self._left = self._most
        self._calls: list[tuple[str, str]] = []
        if self.functions:
            self._check(model.graph.node)

    def _check(self, nodes: Iterable[NodeProto]) -> None:
        """Raise ResourceExhaustedError at the node that makes too many."""
        sizes: dict[tuple[str, str], int] = {}
        total = 0
        for node in nodes:
            total += self._size([node], 0, sizes)
            if total > self._most:
                raise placed(self._too_many(), node)

    def _size(
        self, nodes: Iterable[NodeProto], depth: int, sizes: dict[tuple[str, str], int]
    ) -> int:
        """Return the number of expanded nodes, given the known `sizes` of functions."""
        total = 0
        for node in nodes:
            total += 1 + sum(self._size(graph.node, depth, sizes) for graph in subgraphs(node))
            key = plain_domain(node.domain), node.op_type
            if key in self.functions and depth <= _DEEPEST:
                if key not in sizes:
                    sizes[key] = 0  # of one that calls itself, which is refused by its name
                    sizes[key] = self._size(self.functions[key].node, depth + 1, sizes)
                total += sizes[key]
        return total

    def enter(self, domain: str, op: str) -> None:
        """Begin to add a function's nodes.

        Raises:
          InvalidArgumentError: it calls itself.
          ResourceExhaustedError: too many functions call each other.
        """
        if (domain, op) in self._calls:
            raise errors.InvalidArgumentError(f"the function {op!r} calls itself")
        if len(self._calls) == _DEEPEST:
            raise errors.ResourceExhaustedError(f"functions call others {_DEEPEST} deep: {op!r}")
        self._calls.append((domain, op))

    def leave(self) -> None:
        """Leave the function entered by `enter`."""
        self._calls.pop()

    def count(self) -> None:
        """Count one more node.

        Raises: ResourceExhaustedError: there are too many.
        """
        self._left -= 1
        if self._left < 0:
            raise self._too_many()

    def _too_many(self) -> errors.ResourceExhaustedError:
        return errors.ResourceExhaustedError(
            f"with it the model's functions unfold to more than {self._most} nodes"
        )

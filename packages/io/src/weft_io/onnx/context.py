"""State shared by all scopes of an imported model: tables, limits and rewrites."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from onnx import NodeProto, TypeProto

from weft_graph.ir.node import Output
from weft_graph.variables.base import Variable
from weft_io.onnx.model import add_location
from weft_io.onnx.model_tables import Extent, Op, Survey
from weft_io.onnx.values import Values
from weft_tensor import errors

_MAX_RATIO: Final = 20
"""Maximum ratio of expanded nodes to nodes in the file."""

_MIN_LIMIT: Final = 20_000
"""Number of nodes that every model may expand to."""

_MAX_DEPTH: Final = 50
"""Maximum depth of nested function calls, because each uses Python's stack."""


class ExpansionLimits:
    """Limits of the expansion of a model's functions, which call each other.

    Args:
      nodes: the nodes of the main graph.
    Raises: ResourceExhaustedError: the expansion would be too large.
    """

    def __init__(self, survey: Survey, nodes: Sequence[NodeProto]) -> None:
        self._survey = survey
        self._limit = max(_MIN_LIMIT, _MAX_RATIO * survey.num_nodes)
        self._num_remaining = self._limit
        self._calls: list[Op] = []
        if survey.functions:
            self._check(nodes)

    def _check(self, nodes: Sequence[NodeProto]) -> None:
        """Raise ResourceExhaustedError at the node of the main graph that exceeds the limit."""
        sizes: dict[Op, int] = {}
        total = 0
        for index in range(len(nodes)):
            extent = self._survey.node_extents.get(index)
            total += 1 if extent is None else self._size(extent, 0, sizes)
            if total > self._limit:
                raise add_location(self._too_many_nodes_error(), nodes[index])

    def _size(self, extent: Extent, depth: int, sizes: dict[Op, int]) -> int:
        """Return the number of expanded nodes, from the known `sizes` of functions."""
        total = extent.num_nodes
        for op in extent.calls if depth <= _MAX_DEPTH else ():
            if op not in sizes:
                sizes[op] = 0  # of a recursive function, which `enter` refuses by its name
                sizes[op] = self._size(self._survey.extents[op], depth + 1, sizes)
            total += sizes[op]
        return total

    def enter(self, op: Op) -> None:
        """Enter a function whose nodes are about to be added.

        Raises:
          InvalidArgumentError: the function calls itself.
          ResourceExhaustedError: the calls are nested too deeply.
        """
        if op in self._calls:
            raise errors.InvalidArgumentError(f"the function {op[1]!r} calls itself")
        if len(self._calls) == _MAX_DEPTH:
            raise errors.ResourceExhaustedError(
                f"functions are nested more than {_MAX_DEPTH} deep: {op[1]!r}"
            )
        self._calls.append(op)

    def leave(self) -> None:
        """Leave the function entered by `enter`."""
        self._calls.pop()

    def count_node(self) -> None:
        """Count one more node.

        Raises: ResourceExhaustedError: there are too many.
        """
        self._num_remaining -= 1
        if self._num_remaining < 0:
            raise self._too_many_nodes_error()

    def _too_many_nodes_error(self) -> errors.ResourceExhaustedError:
        return errors.ResourceExhaustedError(
            f"the model's functions expand to more than {self._limit} nodes"
        )


_NEW_OP: Final = (
    "register an importer of the op (entry points weft_io.onnx_rules), or export the model with a "
    "function that defines it"
)
_OTHER_FORM: Final = (
    "export another form of it, or register an importer of the op (entry points weft_io.onnx_rules)"
)


@dataclass
class Rewrites:
    """Replacements of nodes of the main graph, applied when it is translated.

    Attributes:
      nodes: the new nodes, by the index of the replaced node.
      weights: arrays that new nodes use, by name.
    """

    nodes: dict[int, Sequence[NodeProto]] = field(default_factory=dict)
    weights: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)

    def apply(self, nodes: Sequence[NodeProto]) -> Iterator[NodeProto]:
        """Yield the nodes of a graph in order, after replacements."""
        for index, node in enumerate(nodes):
            yield from self.nodes.get(index, (node,))


@dataclass
class ImportContext:
    """Shared state of all scopes of one model.

    Attributes:
      values: the reader of the model's tensors.
      survey: the tables of its nodes and functions.
      limits: the limits of the expansion of functions.
      frozen: names of variables without gradients.
      rewrites: the replacements of nodes of the main graph.
      variables: the created variables, by name.
      kinds: the types of sequences and optional values.
      floats: the original floats of integers that were computed as floats.
      refusals: the errors of unsupported nodes of the main graph, which name these.
    """

    values: Values
    survey: Survey
    limits: ExpansionLimits
    frozen: frozenset[str]
    rewrites: Rewrites = field(default_factory=Rewrites)
    variables: dict[str, Variable] = field(default_factory=dict)
    kinds: dict[Output, TypeProto] = field(default_factory=dict)
    floats: dict[Output, Output] = field(default_factory=dict)
    refusals: list[errors.UnimplementedError] = field(default_factory=list)

    def raise_refusals(self) -> None:
        """Raise UnimplementedError for unknown ops and refused nodes; the message lists all."""
        unknown = sorted(self.survey.unknown_ops.items())
        others = [error for error in self.refusals if "unknown_op" not in error.details]
        if not (unknown or others):
            return
        lines = [
            f"{op} ({_format_some(nodes)}) is an unknown op; {_NEW_OP}" for op, nodes in unknown
        ]
        lines += [
            f"{error.message}; {error.details.get('remedy', _OTHER_FORM)}" for error in others
        ]
        names = [error.details["onnx_node"] for error in self.refusals]
        raise errors.UnimplementedError(
            "weft cannot import some nodes of the model:" + "".join(f"\n  {x}" for x in lines),
            details={"onnx_node": names[0], "onnx_nodes": names} if names else None,
        )


def _format_some(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:3]))
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"

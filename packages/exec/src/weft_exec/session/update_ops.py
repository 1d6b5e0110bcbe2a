"""Detection of programs that train a graph and never run its update operations."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Node, Output
from weft_graph.ir.step_graph import reachable

_log = logging.getLogger("weft")
_CONVINCING = 1000
"""Number of training steps without update operations after which a warning is logged."""


class UpdateOpsWatch:
    """Counts training steps without update operations, unless a signature of the session has some.

    Operations in GraphKeys.UPDATE_OPS, such as those of batch normalization's moving statistics,
    run only if the program adds them to a step. Programs may run them in a separate Run, so a
    single training step without them proves nothing.

    Attributes:
      is_counting: True if steps must be reported to `count_step`.
    """

    def __init__(self) -> None:
        self.is_counting = False
        self._is_settled = False
        self._steps = 0
        self._train: Node | None = None
        self._updates: list[Node] = []

    def skips_updates(
        self, graph: Graph, feeds: Sequence[Output], outputs: Sequence[Output], targets: list[Node]
    ) -> bool:
        """Record a new signature.

        Return True if it trains without running the update operations.
        """
        updates = [] if self._is_settled else _nodes(graph.get_collection(GraphKeys.UPDATE_OPS))
        if not updates:
            return False
        fed = set(feeds)
        roots = [output.node for output in outputs if output not in fed]
        step = reachable([*roots, *targets], fed)
        if not step.isdisjoint(updates):
            self._settle()
            return False
        trains = [node for node in _nodes(graph.get_collection(GraphKeys.TRAIN_OP)) if node in step]
        trainable = set(_nodes(graph.get_collection(GraphKeys.TRAINABLE_VARIABLES)))
        skipped = [update for update in updates if _follows_from(update, step, trainable)]
        if not trains or not skipped:
            return False
        self._train, self._updates = trains[0], skipped
        self.is_counting = True
        return True

    def count_step(self) -> None:
        """Count a step without update operations; warn once when there have been many."""
        self._steps += 1
        if self._is_settled or self._steps < _CONVINCING or self._train is None:
            return
        _log.warning(
            "update operations are never run: the session has run %d training steps (%s), but none "
            "of the %d operations in GraphKeys.UPDATE_OPS that belong to them (the first is %r, "
            "%s), so moving averages such as those of batch normalization keep their first values; "
            "build the training operation under "
            "control_dependencies(get_collection(GraphKeys.UPDATE_OPS)), or run them with it",
            self._steps,
            self._train.line,
            len(self._updates),
            self._updates[0].name,
            self._updates[0].line,
        )
        self._settle()

    def _settle(self) -> None:
        self._is_settled = True
        self.is_counting = False
        self._train, self._updates = None, []


def _nodes(items: Iterable[object]) -> list[Node]:
    """Return the nodes of a collection's operations, tensors and variables."""
    nodes = [item if isinstance(item, Node) else getattr(item, "op", None) for item in items]
    return [node for node in nodes if isinstance(node, Node)]


def _follows_from(update: Node, step: set[Node], trainable: set[Node]) -> bool:
    """Return True if an update depends only on values of the step, not on another model."""
    other_nodes = reachable([update]) - step
    computed = {source.node for node in other_nodes for source in node.inputs} & step
    return other_nodes.isdisjoint(trainable) and any(node.inputs for node in computed)

"""Detection of programs that add nodes between Runs, a common leak."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from weft_graph.ir.node import Node

_log = logging.getLogger("weft")
_SUSPICIOUS = 10


class GrowthWatch:
    """Counts, for each line of the program, how often it added nodes between two Runs."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}
        self._has_warned = False

    def record_growth(self, nodes: Sequence[Node], num_before: int) -> None:
        """Record growth of the graph from `num_before` nodes; warn once if this is a pattern."""
        if not num_before or self._has_warned:
            return
        line = nodes[num_before].line
        count = self._seen[line] = self._seen.get(line, 0) + 1
        if count >= _SUSPICIOUS:
            self._has_warned = True
            _log.warning(
                "the graph grows between runs: %s has added nodes before %d runs, so every run "
                "is planned again and the graph now has %d nodes; build the graph "
                "once, and feed the values that change",
                line,
                count,
                len(nodes),
            )

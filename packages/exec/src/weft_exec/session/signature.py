"""The cached form of a Run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft_exec.executor.executable import Executable
from weft_exec.session.feeds import converter
from weft_exec.session.fetches import FetchPlan
from weft_graph.ir.node import Output


class Signature:
    """One cached Run: the converters of feeds, the executable, and the structure of results.

    Attributes:
      executable: the executable, which is replaced when steps no longer suit its plan.
      size: the typical value of statically unknown sizes (`unknown_size`) in the plan.
      planned_at: the number of measured steps of the session when it was planned.
      outdated: True if new measurements make another placement worthwhile.
      skips_updates: True if it trains without running the update operations of the graph.
      steps: the number of steps since it was planned.
    """

    __slots__ = (
        "converters",
        "executable",
        "feeds",
        "outdated",
        "plan",
        "planned_at",
        "single",
        "size",
        "skips_updates",
        "steps",
    )

    executable: Executable
    size: int
    planned_at: int
    outdated: bool
    skips_updates: bool

    def __init__(self, plan: FetchPlan, feeds: Sequence[Output], single: bool) -> None:
        self.plan = plan
        self.converters = tuple([converter(feed) for feed in feeds])
        self.feeds = tuple(feeds)
        self.single = single
        self.steps = 0

    def slots(self, executable: Executable, values: Any) -> list[Any]:
        """Return the slots of a new step with the fed values in place."""
        slots = executable.template.copy()
        # Callers check the count: `strict` takes as long as a feed.
        for convert, slot, value in zip(self.converters, executable.feed_slots, values):  # noqa: B905
            slots[slot] = convert(value)
        return slots

"""The cached form of a Run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from weft_exec.executor.executable import Executable
from weft_exec.session.feeds import converter
from weft_exec.session.fetches import FetchPlan
from weft_graph.ir.node import Output

_MAX_NAMES: Final = 3
"""Number of fetches, and of feeds, that a label names."""


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
        "_label",
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
        self._label = ""

    @property
    def label(self) -> str:
        """Its fetches and feeds in short form, as a trace names its steps."""
        if not self._label:
            fetches = [output.name for output in self.plan.outputs]
            fetches += [node.name for node in self.plan.targets]
            self._label = step_label(fetches, [feed.name for feed in self.feeds])
        return self._label

    def slots(self, executable: Executable, values: Any) -> list[Any]:
        """Return the slots of a new step with the fed values in place."""
        slots = executable.template.copy()
        # Callers check the count: `strict` takes as long as a feed.
        for convert, slot, value in zip(self.converters, executable.feed_slots, values):  # noqa: B905
            slots[slot] = convert(value)
        return slots


def step_label(fetches: Sequence[str], feeds: Sequence[str]) -> str:
    """Return the names of fetches and targets, and of feeds, in short form."""
    return _short(fetches) + (f" fed {_short(feeds)}" if feeds else "")


def _short(names: Sequence[str]) -> str:
    """Return the first of some names, and the number of the others."""
    num_omitted = len(names) - _MAX_NAMES
    shown = ", ".join([name.removesuffix(":0") for name in names[:_MAX_NAMES]])
    return f"{shown}, and {num_omitted} more" if num_omitted > 0 else shown

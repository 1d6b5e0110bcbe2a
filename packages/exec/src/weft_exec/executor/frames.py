"""Static plans of the ready queue: the initial state of the iterations of each frame."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from weft_exec.executor.linear import Segment, Slots
from weft_exec.executor.queue_entries import ENTER, EXIT, MERGE, Entry
from weft_graph.passes.flow import Frame


class FramePlan:
    """A loop that is scheduled node by node, or the part of a step outside all loops.

    Attributes:
      name: the name of the frame; "" outside.
      template: the initial slots of an iteration; empty for the step itself, which receives its
        slots.
      pending: the pending count of each entry, by `Entry.local`.
      start: the entries without dependencies.
      uses: the number of users of each slot shared by entries.
      enters: the number of values that enter.
      exits: the Exit entries.
      parallel_iterations: the maximum number of concurrent iterations.
    """

    __slots__ = (
        "enters",
        "exits",
        "name",
        "parallel_iterations",
        "pending",
        "start",
        "template",
        "uses",
    )

    def __init__(self, name: str, template: Slots, parallel_iterations: int) -> None:
        self.name = name
        self.template = template
        self.parallel_iterations = parallel_iterations
        self.pending: list[int] = []
        self.start: list[Entry] = []
        self.uses: dict[int, int] = {}
        self.enters = 0
        self.exits: list[Entry] = []

    def add(self, entry: Entry) -> None:
        """Add an entry to the frame."""
        # Indices are dense within a frame, so the counts of a new iteration are a copy of one list.
        entry.local = len(self.pending)
        self.pending.append(entry.pending)
        if not entry.pending:
            self.start.append(entry)
        if entry.kind == EXIT:
            self.exits.append(entry)


class StepPlan:
    """The schedule of the ready queue for one signature.

    Attributes:
      root: the part outside all loops.
      entries: all entries.
      entered: the frame that each Enter leads to.
    """

    __slots__ = ("entered", "entries", "root")

    def __init__(self, root: FramePlan, entries: Sequence[Entry]) -> None:
        self.root = root
        self.entries = tuple(entries)
        self.entered: dict[Entry, FramePlan] = {}

    @classmethod
    def for_root(cls, entries: Sequence[Entry], uses: Mapping[int, int]) -> StepPlan:
        """Return the plan of a step without loops."""
        root = FramePlan("", [], 1)
        root.uses = dict(uses)
        for entry in entries:
            root.add(entry)
        return cls(root, entries)

    @classmethod
    def for_segment(cls, segment: Segment) -> StepPlan:
        """Return the plan of a step that runs its nodes in a fixed order, as one heavy entry."""
        entry = Entry(0, segment)
        entry.heavy = True
        return cls.for_root([entry], {})

    @classmethod
    def for_frames(
        cls,
        frames: Sequence[Frame],
        entries: Sequence[Entry],
        uses: Mapping[Frame | None, Mapping[int, int]],
        templates: Mapping[Frame, Slots],
        entered: Mapping[Entry, Frame],
    ) -> StepPlan:
        """Return the plan of a step with loops.

        Args:
          frames: the frames; the first one, the outermost, is the step itself.
          templates: the slots of the frames that are scheduled node by node.
          entered: the frame that each Enter leads to.
        """
        plans = {
            frame: FramePlan(frame.name, templates[frame], frame.parallel_iterations)
            for frame in frames
            if frame in templates
        }
        for frame, plan in plans.items():
            plan.uses = dict(uses.get(frame, {}))
        for entry in entries:
            assert entry.frame is not None
            plans[entry.frame].add(entry)
        step = cls(plans[frames[0]], entries)
        for entry in entries:
            if entry.kind == ENTER:
                step.entered[entry] = plan = plans[entered[entry]]
                plan.enters += 1
        return step

    def cancel(self) -> None:
        """Cancel running steps at their next node, and later steps immediately."""
        for entry in self.entries:
            entry.segment.cancel()

    def merges(self) -> Iterator[Entry]:
        """Yield the Merge entries."""
        return (entry for entry in self.entries if entry.kind == MERGE)

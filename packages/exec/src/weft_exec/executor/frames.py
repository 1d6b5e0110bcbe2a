"""The static side of the ready queue: what each frame's iterations begin with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from weft_exec.executor.entries import ENTER, EXIT, MERGE, Entry
from weft_exec.executor.linear import Segment, Slots
from weft_graph.passes.flow import Frame


class FramePlan:
    """One loop that is scheduled node by node, or what is outside of all loops.

    Attributes:
      name: of the frame; "" outside.
      template: the slots that an iteration begins with; the step's own slots come from outside.
      pending: what each of its entries waits for, by `Entry.local`.
      start: entries that wait for nothing.
      uses: for each slot that crosses entries, how many use it.
      enters: how many values come in.
      exits: entries that leave.
      parallel_iterations: how many iterations may run at a time.
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
        """Count an entry among its own."""
        entry.local = len(self.pending)
        self.pending.append(entry.pending)
        if not entry.pending:
            self.start.append(entry)
        if entry.kind == EXIT:
            self.exits.append(entry)


class StepPlan:
    """What the ready queue schedules for one signature.

    Attributes:
      root: what is outside of all loops.
      entries: all entries.
      entered: the frame that each Enter leads to.
    """

    __slots__ = ("entered", "entries", "root")

    def __init__(self, root: FramePlan, entries: Sequence[Entry]) -> None:
        self.root = root
        self.entries = tuple(entries)
        self.entered: dict[Entry, FramePlan] = {}

    @classmethod
    def of_root(cls, entries: Sequence[Entry], uses: Mapping[int, int]) -> StepPlan:
        """The plan of a step without loops."""
        root = FramePlan("", [], 1)
        root.uses = dict(uses)
        for entry in entries:
            root.add(entry)
        return cls(root, entries)

    @classmethod
    def of_segment(cls, segment: Segment) -> StepPlan:
        """The plan of a step that runs in a line, as one entry that is worth a thread."""
        entry = Entry(0, segment)
        entry.heavy = True
        return cls.of_root([entry], {})

    @classmethod
    def of_frames(
        cls,
        frames: Sequence[Frame],
        entries: Sequence[Entry],
        uses: Mapping[Frame | None, Mapping[int, int]],
        templates: Mapping[Frame, Slots],
        entered: Mapping[Entry, Frame],
    ) -> StepPlan:
        """The plan of a step with loops.

        Args:
          frames: the outermost first, which is the step itself.
          templates: the slots of those that are scheduled node by node.
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
        """Let running steps end at the next node, and later ones at once."""
        for entry in self.entries:
            entry.segment.cancel()

    def merges(self) -> Iterator[Entry]:
        """The entries that join values."""
        return (entry for entry in self.entries if entry.kind == MERGE)

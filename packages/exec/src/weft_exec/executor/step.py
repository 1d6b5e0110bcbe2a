"""The ready queue of one step (paper, sections 3.1 and 4.4), driven by events.

It does not depend on threads and kernels, and inspects no values except predicates. An entry is
ready when everything that it waits for has ended. Ready entries are handed out in the order of
construction, older iterations first. Heavy entries come last, because the others take almost no
time and may make more heavy entries ready, which then run in parallel.

A loop is a frame, and each execution of it is an instance, which has iterations. Pending inputs are
counted for each iteration. Values on the untaken side of a Switch are dead, and so are all entries
that need one of them. A Merge selects its first live input. An iteration is released when neither
it nor an earlier one has work left.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft_exec.executor.frames import FramePlan, StepPlan
from weft_exec.executor.linear import Slots, check_predicate
from weft_exec.executor.queue_entries import (
    ENTER,
    MERGE,
    NEXT,
    RECEIVE,
    SEND,
    SWITCH,
    TRIGGER,
    WORK,
    Edges,
    Entry,
)
from weft_exec.kernels.random_counters import iteration_tag
from weft_exec.tracing.step_trace import clock
from weft_tensor import errors

_ALIVE = -1
"""The value that replaces the number of dead inputs of a Merge once it has a live input."""

_EVEN_DEAD = (TRIGGER, SEND)
_ALIVE_ONLY = (WORK, RECEIVE)
"""Kinds that run even after dead inputs, and kinds that run only if no input is dead."""


class Iteration:
    """One iteration of an instance of a frame.

    Attributes:
      frame, index: the instance, and the number of the iteration.
      slots: the values of the iteration.
      pending: the pending count of each entry.
      dead: the number of dead inputs of each entry.
      uses: the number of remaining users of each slot.
      active: number of entries that are ready, running, or being routed.
      children: instances of loops that it has entered.
      serial: a number that increases with each iteration of the step.
    """

    __slots__ = (
        "active",
        "children",
        "dead",
        "frame",
        "index",
        "pending",
        "serial",
        "slots",
        "uses",
    )

    def __init__(
        self, frame: Instance, index: int, slots: Slots, pending: list[int], serial: int
    ) -> None:
        self.frame = frame
        self.index = index
        self.slots = slots
        self.pending = pending
        self.dead = [0] * len(pending)
        self.uses = dict(frame.plan.uses)
        self.active = 0
        self.children: dict[FramePlan, Instance] = {}
        self.serial = serial

    @property
    def tag(self) -> int:
        """A unique tag of the iteration, which selects random numbers."""
        parent = self.frame.parent
        return 0 if parent is None else iteration_tag(parent.tag, self.index)


class Instance:
    """One execution of a loop, with its iterations.

    Attributes:
      plan: the static plan of the frame.
      parent: the iteration that entered it; None for the step itself.
      iterations: unfinished iterations by index.
      oldest: the index of the first of them.
      missing: the number of inputs that have not arrived.
      template, pending: the initial state of a new iteration, which includes the constants that
        have arrived.
      begin: entries that are ready when an iteration begins.
      constants: the constants to signal in each new iteration.
      parked: the values for an iteration that may not begin yet.
      left: the Exits that a live value has passed.
    """

    __slots__ = (
        "begin",
        "constants",
        "iterations",
        "left",
        "missing",
        "oldest",
        "parent",
        "parked",
        "pending",
        "plan",
        "template",
    )

    def __init__(self, plan: FramePlan, parent: Iteration | None) -> None:
        self.plan = plan
        self.parent = parent
        self.iterations: dict[int, Iteration] = {}
        self.oldest = 0
        self.missing = plan.enters
        self.template = plan.template if not plan.enters else plan.template.copy()
        self.pending = plan.pending if not plan.enters else plan.pending.copy()
        self.begin = list(plan.start)
        self.constants: list[tuple[Edges, bool, Mapping[int, Any]]] = []
        self.parked: list[tuple[Entry, Mapping[int, Any]]] = []
        self.left: set[Entry] = set()


Token = tuple[Entry, Iteration]
"""A running entry, with its iteration."""


class StepMachine:
    """State machine of a step: pending counts, frames, iterations, ready entries, slots to clear.

    Attributes:
      running: the number of entries that were handed out and have not finished.
      heavy_ready: the number of ready heavy entries.
      error: the first failure; after it no entry becomes ready.
      root: the iteration that is the step itself.
    """

    __slots__ = (
        "_entered",
        "_interrupted",
        "_ready",
        "_routed",
        "_serial",
        "error",
        "heavy_ready",
        "root",
        "running",
    )

    def __init__(self, plan: StepPlan, slots: Slots) -> None:
        self._entered = plan.entered
        self._interrupted = False
        self._ready: list[tuple[bool, int, int, Entry, Iteration]] = []
        self._routed: list[Token] = []
        self._serial = 0
        self.heavy_ready = 0
        self.running: set[Token] = set()
        self.error: errors.OpError | None = None
        frame = Instance(plan.root, None)
        self.root = Iteration(frame, 0, slots, plan.root.pending.copy(), 0)
        for entry in frame.begin:
            self._make_ready(entry, self.root)
        self._route_all()

    @property
    def done(self) -> bool:
        """True if no entry runs and no further entry will."""
        return not self.running and (self.error is not None or not self._ready)

    def take(self) -> Token | None:
        """Return the first ready entry with its iteration, or None."""
        if not self._ready or self.error is not None:
            return None
        heavy, _, _, entry, iteration = heapq.heappop(self._ready)
        token = (entry, iteration)
        self.running.add(token)
        self.heavy_ready -= heavy
        return token

    def finished(self, token: Token, dead: bool = False) -> None:
        """Record that a running entry has finished, and make its successors ready.

        Args:
          dead: True if it received a dead value.
        Raises: InternalError: the entry was not running.
        """
        self._stop(token)
        entry, iteration = token
        # If the step was interrupted, this entry computed meanwhile. So the step did not only wait,
        # and has to fail.
        if entry.kernel is None:
            self._interrupted = False
        self._signal_waiting(iteration, entry.edges, dead, iteration.slots)
        self._release_slots(entry, iteration)
        if self._routed:
            self._route_all()

    def failed(self, token: Token, error: errors.OpError) -> bool:
        """Record that a running entry has failed; return True if it is the first failure."""
        self._stop(token)
        return self.abort(error)

    def abort(self, error: errors.OpError) -> bool:
        """Prevent further entries from starting; return True if this is the first failure."""
        if self.error is not None:
            self._interrupted = False
            return False
        self.error = error
        return True

    def interrupt(self, error: errors.OpError) -> bool:
        """Abort the step from outside, unless it is only waiting; see `end`.

        `end` clears the interruption if only waiting entries were left. Otherwise a value that such
        an entry has just received, such as a queue element, would be lost.
        """
        if self.error is not None:
            return False
        self._interrupted = True
        self.error = error
        return True

    def end(self) -> None:
        """Clear an interruption after all waiting entries have received their values."""
        if self._interrupted and not self._ready and not self.running:
            self.error = None

    def ready_time(self, token: Token) -> int:
        """Return the clock reading when an entry became ready; 0 if unknown."""
        return 0

    def watch_releases(self, token: Token, slots: Sequence[int], times: list[int]) -> None:
        """Do nothing; see `TracedStepMachine`."""

    def take_error(self) -> errors.OpError:
        """Return the first failure and clear it."""
        error, self.error = self.error, None
        assert error is not None
        return error

    def close(self) -> None:
        """Release all values, including those of unfinished loops after a failure.

        The traceback of a failure keeps the step alive as long as the error itself. Its values must
        be released earlier: one may be a locked mutex.
        """
        if self.error is not None:
            self.root.slots.clear()
        frames = list(self.root.children.values())
        self.root.children.clear()
        while frames:
            frame = frames.pop()
            for iteration in frame.iterations.values():
                frames.extend(iteration.children.values())
                iteration.children.clear()
                if self.error is not None:
                    iteration.slots.clear()
            frame.iterations.clear()
        self._ready.clear()

    def _stop(self, token: Token) -> None:
        if token not in self.running:
            raise errors.InternalError(f"entry {token[0].index} finished without running")
        self.running.remove(token)

    # ------------------------------------------------------------------ ends of entries

    def _make_ready(self, entry: Entry, iteration: Iteration) -> None:
        """Make an entry that waits for nothing ready."""
        iteration.active += 1
        kind = entry.kind
        if kind in _EVEN_DEAD or (kind in _ALIVE_ONLY and not iteration.dead[entry.local]):
            # The first three numbers are unique together, so the heap never compares entries.
            item = (entry.heavy, iteration.serial, entry.index, entry, iteration)
            heapq.heappush(self._ready, item)
            self.heavy_ready += entry.heavy
        else:
            # A work list instead of recursion: a long chain of dead entries would exhaust Python's
            # stack.
            self._routed.append((entry, iteration))

    def _signal_waiting(
        self, iteration: Iteration, edges: Edges, dead: bool, values: Mapping[int, Any] | Slots
    ) -> None:
        """Signal an end to the entries that wait for it in an iteration.

        Merges read from `values`.
        """
        pending = iteration.pending
        for entry in edges.successors:
            local = entry.local
            if dead and entry.kind != MERGE:
                iteration.dead[local] += 1
            pending[local] -= 1
            if not pending[local]:
                self._make_ready(entry, iteration)
        for entry in edges.followers:
            pending[entry.local] -= 1
            if not pending[entry.local]:
                self._make_ready(entry, iteration)
        for entry, port in edges.choices:
            self._choose(iteration, entry, port, dead, values)

    def _choose(
        self,
        iteration: Iteration,
        entry: Entry,
        port: int,
        dead: bool,
        values: Mapping[int, Any] | Slots,
    ) -> None:
        """Process a live or dead input of a Merge."""
        local = entry.local
        if iteration.dead[local] == _ALIVE:
            return
        if dead:
            iteration.dead[local] += 1
            # In iteration 0 the inputs of a loop's Merge come from outside, later from back edges.
            # It is dead when all inputs that can arrive in this iteration are dead.
            if iteration.dead[local] < (
                entry.back if iteration.index and entry.back else entry.ahead
            ):
                return
        else:
            iteration.dead[local] = _ALIVE
            slot = entry.slot
            assert isinstance(slot, int)
            iteration.slots[slot] = values[entry.sources[port]]
            iteration.slots[slot + 1] = np.int32(port)
        iteration.pending[local] -= 1
        if not iteration.pending[local]:
            self._make_ready(entry, iteration)

    def _release_slots(self, entry: Entry, iteration: Iteration) -> None:
        """Release the slots that only an ended entry used, and its iteration if that has ended."""
        uses = iteration.uses
        for slot in entry.shared:
            uses[slot] -= 1
            if not uses[slot]:
                iteration.slots[slot] = None
        iteration.active -= 1
        if not iteration.active and iteration.frame.parent is not None:
            self._settle(iteration)

    # ------------------------------------------------------------------ routing

    def _route_all(self) -> None:
        """Process entries that route values, and dead entries."""
        routed = self._routed
        while routed:
            entry, iteration = routed.pop()
            dead = iteration.dead[entry.local] > 0
            kind = entry.kind
            if kind == SWITCH:
                self._switch(entry, iteration, dead)
            elif kind == MERGE or kind in _ALIVE_ONLY:
                self._signal_waiting(iteration, entry.edges, dead, iteration.slots)
            elif kind == ENTER:
                self._enter(entry, iteration, dead)
            # In each iteration either the back edge or the Exit is dead. Neither is passed on:
            # `_settle` reports the Exits that were dead in all iterations.
            elif not dead:
                if kind == NEXT:
                    self._next(entry, iteration)
                else:
                    self._exit(entry, iteration)
            self._release_slots(entry, iteration)

    def _switch(self, entry: Entry, iteration: Iteration, dead: bool) -> None:
        branch = -1
        slots = iteration.slots
        if not dead:
            pred = slots[entry.pred]
            if pred.shape:
                try:
                    assert entry.node is not None
                    check_predicate(pred, entry.node)
                except errors.OpError as error:
                    self.abort(error)
                    return
            branch = 1 if pred else 0
        for side, edges in enumerate(entry.sides):
            self._signal_waiting(iteration, edges, side != branch, slots)
        self._signal_waiting(iteration, entry.edges, dead, slots)

    def _enter(self, entry: Entry, iteration: Iteration, dead: bool) -> None:
        plan = self._entered[entry]
        frame = iteration.children.get(plan)
        if frame is None:
            frame = iteration.children[plan] = Instance(plan, iteration)
            self._begin(frame, 0)
        values = iteration.slots
        assert entry.node is not None and isinstance(entry.slot, int)
        if not dead:
            value = values[entry.source]
        if entry.node.attrs["is_constant"]:
            if not dead:
                frame.template[entry.slot] = value
            for current in list(frame.iterations.values()):
                if not dead:
                    current.slots[entry.slot] = value
                self._signal_waiting(current, entry.edges, dead, values)
            self._record_constant(frame, entry, dead)
        else:
            first = frame.iterations[0]
            if not dead:
                first.slots[entry.slot] = value
            self._signal_waiting(first, entry.edges, dead, values)
        # The last input may arrive when the first iteration has no work left. No entry would end
        # afterwards, so the iteration is released here.
        frame.missing -= 1
        oldest = frame.iterations[frame.oldest]
        if not frame.missing and not oldest.active:
            self._settle(oldest)

    def _record_constant(self, frame: Instance, entry: Entry, dead: bool) -> None:
        """Record a constant for later iterations of a loop."""
        # A live constant is subtracted once from the counts that new iterations copy. Dead ones,
        # and those that a Merge reads, must be signaled in each iteration.
        if dead or entry.edges.choices:
            value = {} if dead else {entry.source: frame.template[entry.slot]}
            frame.constants.append((entry.edges, dead, value))
            return
        for successor in entry.edges.successors:
            frame.pending[successor.local] -= 1
            if not frame.pending[successor.local]:
                frame.begin.append(successor)

    def _begin(self, frame: Instance, index: int) -> Iteration:
        """Start a new iteration."""
        self._serial += 1
        new = Iteration(frame, index, frame.template.copy(), frame.pending.copy(), self._serial)
        frame.iterations[index] = new
        for entry in frame.begin:
            self._make_ready(entry, new)
        for edges, dead, values in frame.constants:
            self._signal_waiting(new, edges, dead, values)
        return new

    def _next(self, entry: Entry, iteration: Iteration) -> None:
        frame = iteration.frame
        index = iteration.index + 1
        target = frame.iterations.get(index)
        if target is None:
            # This bounds the memory of concurrent iterations. Only the value is kept, because its
            # iteration may be released before the next one begins.
            if index - frame.oldest >= frame.plan.parallel_iterations:
                frame.parked.append((entry, {entry.source: iteration.slots[entry.source]}))
                return
            target = self._begin(frame, index)
        self._signal_waiting(target, entry.edges, False, iteration.slots)

    def _exit(self, entry: Entry, iteration: Iteration) -> None:
        parent = iteration.frame.parent
        assert parent is not None and isinstance(entry.slot, int)
        iteration.frame.left.add(entry)
        parent.slots[entry.slot] = iteration.slots[entry.source]
        self._signal_waiting(parent, entry.edges, False, parent.slots)

    def _settle(self, iteration: Iteration) -> None:
        """Release an ended iteration, and those that end as a consequence."""
        while not iteration.active and not iteration.children:
            frame = iteration.frame
            parent = frame.parent
            if parent is None or frame.missing or iteration.index != frame.oldest:
                return
            del frame.iterations[iteration.index]
            frame.oldest += 1
            if frame.parked:
                parked, frame.parked = frame.parked, []
                new = self._begin(frame, frame.oldest + len(frame.iterations))
                for entry, values in parked:
                    self._signal_waiting(new, entry.edges, False, values)
            following = frame.iterations.get(frame.oldest)
            if following is None:
                del parent.children[frame.plan]
                for entry in frame.plan.exits:
                    if entry not in frame.left:
                        self._signal_waiting(parent, entry.edges, True, parent.slots)
                following = parent
            iteration = following

    # ------------------------------------------------------------------ invariants

    def check(self) -> None:
        """Check the invariants of the step by recomputing its counts.

        Raises: InternalError: a count is wrong.
        """
        if self._routed:
            raise errors.InternalError("some values have not been delivered")
        active: dict[Iteration, int] = {}
        for heavy, _, _, entry, iteration in self._ready:
            active[iteration] = active.get(iteration, 0) + 1
            if iteration.pending[entry.local] or (entry, iteration) in self.running:
                raise errors.InternalError(f"entry {entry.index} is ready too early")
            if heavy != entry.heavy:
                raise errors.InternalError(f"entry {entry.index} is in the wrong queue")
        for _, iteration in self.running:
            active[iteration] = active.get(iteration, 0) + 1
        if self.heavy_ready != sum(heavy for heavy, *_ in self._ready):
            raise errors.InternalError("the ready heavy entries are counted wrongly")
        if self.error is None:
            self._check_iteration(self.root, active)

    def _check_iteration(self, iteration: Iteration, active: Mapping[Iteration, int]) -> None:
        name = f"iteration {iteration.index} of {iteration.frame.plan.name!r}"
        if any(n < 0 for n in iteration.pending) or any(n < 0 for n in iteration.uses.values()):
            raise errors.InternalError(f"a count of {name} fell below zero")
        if iteration.active != active.get(iteration, 0):
            raise errors.InternalError(f"the active entries of {name} are counted wrongly")
        for frame in iteration.children.values():
            if frame.parent is not iteration or frame.oldest not in frame.iterations:
                raise errors.InternalError(
                    f"{frame.plan.name!r} is not registered with its parent iteration"
                )
            if len(frame.iterations) > frame.plan.parallel_iterations:
                raise errors.InternalError(f"{frame.plan.name!r} has too many iterations at once")
            for inner in frame.iterations.values():
                self._check_iteration(inner, active)
        frame = iteration.frame
        if (
            frame.parent is not None
            and not iteration.active
            and not iteration.children
            and not frame.missing
            and iteration.index == frame.oldest
        ):
            raise errors.InternalError(f"{name} has finished but was not released")


class TracedStepMachine(StepMachine):
    """A ready queue that records when entries became ready and when values are released."""

    __slots__ = ("_ready_times", "_watched")

    def __init__(self, plan: StepPlan, slots: Slots) -> None:
        self._ready_times: dict[tuple[int, int], int] = {}
        self._watched: dict[tuple[int, int], tuple[list[int], int]] = {}
        super().__init__(plan, slots)

    def ready_time(self, token: Token) -> int:
        """Return the clock reading when an entry became ready."""
        entry, iteration = token
        return self._ready_times.pop((entry.index, iteration.serial), 0)

    def watch_releases(self, token: Token, slots: Sequence[int], times: list[int]) -> None:
        """Store in the last elements of `times` when each of some slots is released."""
        serial = token[1].serial
        for position, slot in enumerate(slots, len(times) - len(slots)):
            self._watched[serial, slot] = times, position

    def close(self) -> None:
        """Release all values; see the base class."""
        for times, position in self._watched.values():
            times[position] = clock()
        self._watched.clear()
        super().close()

    def _release_slots(self, entry: Entry, iteration: Iteration) -> None:
        for slot in entry.shared:
            if iteration.uses[slot] == 1 and (iteration.serial, slot) in self._watched:
                times, position = self._watched.pop((iteration.serial, slot))
                times[position] = clock()
        super()._release_slots(entry, iteration)

    def _make_ready(self, entry: Entry, iteration: Iteration) -> None:
        self._ready_times[entry.index, iteration.serial] = clock()
        super()._make_ready(entry, iteration)

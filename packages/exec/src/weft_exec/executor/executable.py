"""What runs one signature: slots, instructions in a line or entries of the ready queue, results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from sys import getrefcount
from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.executor.linear import Segment, Slots
from weft_exec.executor.step import StepMachine
from weft_exec.kernels.random_counters import in_new_step
from weft_graph.ir.node import Output
from weft_tensor import errors
from weft_tensor.memory import copied

if TYPE_CHECKING:
    from weft_exec.executor.frames import StepPlan
    from weft_exec.executor.native.warm_up import WarmUp

NOT_COMPUTED = object()
"""Stands in the slot of a fetched value that nothing may compute, until something does."""


class Executable:
    """What runs one signature.

    Attributes:
      template: the slots before a step: constants and variables in place, None elsewhere.
      feed_slots: where fed values go.
      fetches: how to take each result.
      linear: all instructions in one fixed order, when nothing can overlap; else None.
      run_line: runs these for a step of its own.
      plan: what the ready queue schedules, when `linear` is None.
      warm_up: the policy that replaces this executable by one with compiled regions; None if it is
        final.
    """

    __slots__ = (
        "__weakref__", "feed_slots", "fetches", "linear", "plan", "run_line", "template", "warm_up",
    )  # fmt: skip

    def __init__(
        self,
        template: Slots,
        feed_slots: Sequence[int],
        fetches: Sequence[Fetch],
        linear: Segment | None,
        plan: StepPlan | None,
    ) -> None:
        self.template = template
        self.feed_slots = tuple(feed_slots)
        self.fetches = tuple(fetches)
        self.linear = linear
        self.run_line: Callable[[Slots], None] | None = None
        if linear is not None:
            self.run_line = partial(in_new_step, linear.run) if linear.draws else linear.run
        self.plan = plan
        self.warm_up: WarmUp | None = None

    def slots(self, values: Sequence[Any]) -> Slots:
        """The slots of a new step, with the fed values in place."""
        slots = self.template.copy()
        for slot, value in zip(self.feed_slots, values, strict=True):
            slots[slot] = value
        return slots

    def machine(self, slots: Slots) -> Any:
        """The ready queue of a step, where not all of it runs in a line."""
        assert self.plan is not None
        return StepMachine(self.plan, slots)

    def results(self, slots: Slots) -> list[Any]:
        """The fetched values, which belong to the caller from now on.

        Raises: InvalidArgumentError: one was never computed, since a branch was not taken.
        """
        return [fetch.take(slots) for fetch in self.fetches]

    @property
    def segments(self) -> list[Segment]:
        """What runs in a line: all, or what each entry of the ready queue runs."""
        if self.linear is not None:
            return [self.linear]
        return [entry.segment for entry in self.plan.entries] if self.plan is not None else []

    def cancel(self) -> None:
        """Let running steps end at the next node, with a CancelledError, and later ones at once."""
        if self.linear is not None:
            self.linear.cancel()
        if self.plan is not None:
            self.plan.cancel()


def _sole_count() -> int:
    """What `Fetch.take` sees of an array that only a slot holds; it differs between Pythons."""
    slots: Slots = [np.empty(1)]
    value = slots[0]
    return getrefcount(value)


_SOLE = _sole_count()


class Fetch:
    """How to take one result out of the slots so that the caller owns it."""

    __slots__ = ("shared", "slot")

    def __init__(self, slot: int, shared: bool) -> None:
        self.slot = slot
        self.shared = shared

    def take(self, slots: Slots) -> Any:
        """The value; copied where anybody else could hold its memory."""
        value = slots[self.slot]
        if type(value) is not np.ndarray:
            if isinstance(value, np.ndarray):
                return copied(np.asarray(value))
            return value
        if value.ndim == 0:
            return value[()]
        if self.shared or type(value.base) is np.ndarray or getrefcount(value) > _SOLE:
            return copied(value)
        # Over bytes of Python, or an object of a library, there may be what nobody can write to.
        return value if value.flags.writeable else copied(value)


class ReferenceFetch(Fetch):
    """The value that the variable behind a fetched reference has when the step ends."""

    __slots__ = ("device", "output")

    def __init__(self, slot: int, output: Output, device: str) -> None:
        super().__init__(slot, shared=True)
        self.output = output
        self.device = device

    def take(self, slots: Slots) -> Any:
        """The value.

        Raises: FailedPreconditionError: the variable has none.
        """
        try:
            value = slots[self.slot].read()
        except errors.OpError as error:
            node = self.output.node
            raise error.with_context(
                op=node.type, node=node.name, device=self.device, line=node.line or None
            ) from error.__cause__
        if isinstance(value, np.ndarray):
            return copied(value) if value.ndim else value[()]
        return value


class ConditionalFetch(Fetch):
    """A result that may never be computed."""

    __slots__ = ("output",)

    def __init__(self, slot: int, shared: bool, output: Output) -> None:
        super().__init__(slot, shared)
        self.output = output

    def take(self, slots: Slots) -> Any:
        """The value.

        Raises: InvalidArgumentError: it was not computed in this step.
        """
        if slots[self.slot] is NOT_COMPUTED:
            node = self.output.node
            raise errors.InvalidArgumentError(
                f"{self.output.name!r} was fetched, but has no value in this step: it is in a "
                "branch that was not taken, or no input of its Merge was alive",
                op=node.type,
                node=node.name,
                line=node.line or None,
            )
        return super().take(slots)

"""Executables of signatures: slots, instructions or entries of the ready queue, results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from sys import getrefcount
from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.executor.linear import Segment, Slots
from weft_exec.executor.step import StepMachine
from weft_exec.kernels.random_counters import run_in_new_step
from weft_graph.ir.node import Output
from weft_tensor import errors
from weft_tensor.memory import copy_array

if TYPE_CHECKING:
    from weft_exec.executor.frames import StepPlan
    from weft_exec.executor.native.warm_up import WarmUp

NOT_COMPUTED = object()
"""Marks the slot of a fetch that was not computed; its branch may not be taken."""


class Executable:
    """The executable of one signature.

    Attributes:
      template: the slots before a step: constants and variables, None elsewhere.
      feed_slots: the slots of fed values.
      fetches: the reader of each result.
      linear: all instructions in one fixed order if nothing can overlap; else None.
      run_line: runs these instructions as a step.
      plan: the schedule of the ready queue if `linear` is None.
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
            self.run_line = partial(run_in_new_step, linear.run) if linear.uses_rng else linear.run
        self.plan = plan
        self.warm_up: WarmUp | None = None

    def slots(self, values: Sequence[Any]) -> Slots:
        """Return the slots of a new step with the fed values in place."""
        slots = self.template.copy()
        for slot, value in zip(self.feed_slots, values, strict=True):
            slots[slot] = value
        return slots

    def machine(self, slots: Slots, make: type[StepMachine] = StepMachine) -> Any:
        """Return the ready queue of a step whose nodes are not all run in a fixed order."""
        assert self.plan is not None
        return make(self.plan, slots)

    def results(self, slots: Slots) -> list[Any]:
        """Return the fetched values, which belong to the caller.

        Raises: InvalidArgumentError: a fetch was not computed because its branch was not taken.
        """
        return [fetch.take(slots) for fetch in self.fetches]

    @property
    def segments(self) -> list[Segment]:
        """The segments: all instructions, or those of each entry."""
        if self.linear is not None:
            return [self.linear]
        return [entry.segment for entry in self.plan.entries] if self.plan is not None else []

    def cancel(self) -> None:
        """Cancel running steps at their next node, and later ones immediately."""
        if self.linear is not None:
            self.linear.cancel()
        if self.plan is not None:
            self.plan.cancel()


def _sole_count() -> int:
    """Return the reference count of an array that only a slot holds.

    It depends on the Python version.
    """
    slots: Slots = [np.empty(1)]
    value = slots[0]
    return getrefcount(value)


_SOLE = _sole_count()


class Fetch:
    """Reads one result from the slots so that the caller owns it."""

    __slots__ = ("shared", "slot")

    def __init__(self, slot: int, shared: bool) -> None:
        self.slot = slot
        self.shared = shared

    def take(self, slots: Slots) -> Any:
        """Return the value, copied if its memory may have other owners."""
        value = slots[self.slot]
        if type(value) is not np.ndarray:
            if isinstance(value, np.ndarray):
                return copy_array(np.asarray(value))
            return value
        if value.ndim == 0:
            return value[()]
        if self.shared or type(value.base) is np.ndarray or getrefcount(value) > _SOLE:
            return copy_array(value)
        # Memory of Python bytes or of a library's object may be read-only.
        return value if value.flags.writeable else copy_array(value)


class ReferenceFetch(Fetch):
    """Reads the value of a variable at the end of the step, for a fetched reference."""

    __slots__ = ("device", "output")

    def __init__(self, slot: int, output: Output, device: str) -> None:
        super().__init__(slot, shared=True)
        self.output = output
        self.device = device

    def take(self, slots: Slots) -> Any:
        """Return the value.

        Raises: FailedPreconditionError: the variable has no value.
        """
        try:
            value = slots[self.slot].read()
        except errors.OpError as error:
            node = self.output.node
            raise error.with_context(
                op=node.type, node=node.name, device=self.device, line=node.line or None
            ) from error.__cause__
        if isinstance(value, np.ndarray):
            return copy_array(value) if value.ndim else value[()]
        return value


class ConditionalFetch(Fetch):
    """Reads a result that may never be computed."""

    __slots__ = ("output",)

    def __init__(self, slot: int, shared: bool, output: Output) -> None:
        super().__init__(slot, shared)
        self.output = output

    def take(self, slots: Slots) -> Any:
        """Return the value.

        Raises: InvalidArgumentError: it was not computed in this step.
        """
        if slots[self.slot] is NOT_COMPUTED:
            node = self.output.node
            raise errors.InvalidArgumentError(
                f"{self.output.name!r} was fetched, but has no value in this step: it is in a "
                "branch that was not taken, or all inputs of its Merge were dead",
                op=node.type,
                node=node.name,
                line=node.line or None,
            )
        return super().take(slots)

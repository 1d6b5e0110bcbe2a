"""Instructions for conditionals and loops that run in sequence, with nested segments.

They receive the slots and work on them in place. A Switch needs no instruction, since both of its
outputs are its input. An Exit needs none either, since it is the loop variable itself.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from weft_exec.executor.kernel_fallback import ComparisonRequest, KernelFallback
from weft_exec.executor.linear import Compound, Gather, Segment, Slots, check_predicate, gather
from weft_exec.kernels.random_counters import current, iteration_tag
from weft_exec.tracing.step_trace import LoopIteration, clock
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.executor.linear import Check
    from weft_exec.tracing.programs import SharedProgram
    from weft_exec.tracing.step_trace import ThreadLog
    from weft_graph.ir.node import Node


class ConditionalSegment(Compound):
    """One of two segments, selected by a predicate.

    Attributes:
      pred, node: the slot of the predicate, and the node that computes it.
      sides: the segments for False and for True.
    """

    __slots__ = ("node", "pred", "sides")

    def __init__(self, pred: int, node: Node, sides: tuple[Segment, Segment]) -> None:
        self.pred = pred
        self.node = node
        self.sides = sides

    def __call__(self, slots: Slots) -> None:
        """Run the selected segment."""
        pred = slots[self.pred]
        if pred.shape:
            check_predicate(pred, self.node)
        self.sides[1 if pred else 0].run(slots)

    def call_checked(self, check: Check, *inputs: Any) -> None:
        """Run it with `check` around each node."""
        (slots,) = inputs
        self._side(slots).run_checked(slots, check)

    def call_traced(self, log: ThreadLog, check: Check | None, *inputs: Any) -> None:
        """Run it, and record each node."""
        (slots,) = inputs
        self._side(slots).run_traced(slots, log, check)

    def _side(self, slots: Slots) -> Segment:
        pred = slots[self.pred]
        check_predicate(pred, self.node)
        return self.sides[1 if pred else 0]

    @property
    def segments(self) -> Sequence[Segment]:
        """The nested segments."""
        return self.sides


class WhileLoop(Compound):
    """A loop whose iterations run one after the other.

    Attributes:
      name: the name of its frame.
      test, body: the segments before and after the evaluation of the predicate.
      pred, node: the slot of the predicate, and the node that computes it.
      initial, following: read the initial and the next values of the loop variables.
      variables: the slots of the loop variables.
      spent: slots to clear when the next values have been read.
    """

    __slots__ = (
        "_uses_rng",
        "body",
        "following",
        "initial",
        "name",
        "node",
        "pred",
        "spent",
        "test",
        "variables",
    )

    def __init__(
        self,
        name: str,
        test: Segment,
        body: Segment,
        pred: int,
        node: Node,
        initial: Gather,
        following: Gather,
        variables: slice,
        dead_slots: Sequence[int],
    ) -> None:
        self.name = name
        self.test = test
        self.body = body
        self.pred = pred
        self.node = node
        self.initial = initial
        self.following = following
        self.variables = variables
        self.spent = tuple(dead_slots)
        self._uses_rng = test.uses_rng or body.uses_rng

    def __call__(self, slots: Slots) -> int:
        """Run until the predicate is False; return the number of iterations."""
        return self._run(slots, self.test.run, self.body.run)

    def call_checked(self, check: Check, *inputs: Any) -> int:
        """Run it with `check` around each node; return the number of iterations."""
        return self._run(
            inputs[0],
            lambda slots: self.test.run_checked(slots, check),
            lambda slots: self.body.run_checked(slots, check),
        )

    def call_traced(self, log: ThreadLog, check: Check | None, *inputs: Any) -> int:
        """Run it, and record each node in its iteration; return the number of iterations."""
        outer_iteration = log.iteration

        def begin(iteration: int) -> None:
            log.iteration = LoopIteration(self.name, iteration, outer_iteration, current.tag)
            log.trim()

        try:
            return self._run(
                inputs[0],
                lambda slots: self.test.run_traced(slots, log, check),
                lambda slots: self.body.run_traced(slots, log, check),
                begin,
            )
        finally:
            log.iteration = outer_iteration

    def _run(
        self,
        slots: Slots,
        test: Callable[[Slots], Any],
        body: Callable[[Slots], Any],
        begin: Callable[[int], None] | None = None,
    ) -> int:
        variables, following, pred, dead_slots = (
            self.variables,
            self.following,
            self.pred,
            self.spent,
        )
        slots[variables] = self.initial(slots)
        iteration = 0
        # Only random ops and traces read tags, and setting one takes time in each iteration.
        has_tags, outer_tag = self._uses_rng or begin is not None, current.tag
        try:
            while True:
                if has_tags:
                    current.tag = iteration_tag(outer_tag, iteration)
                    if begin is not None:
                        begin(iteration)
                test(slots)
                go_on = slots[pred]
                if go_on.shape:
                    check_predicate(go_on, self.node)
                if not go_on:
                    return iteration
                body(slots)
                # All next values are read before the first is stored, because one may be the old
                # value of another variable.
                slots[variables] = following(slots)
                for i in dead_slots:
                    slots[i] = None
                iteration += 1
        except errors.OpError as error:
            error.in_iteration(self.name, iteration)
            raise
        finally:
            if has_tags:
                current.tag = outer_tag

    @property
    def segments(self) -> Sequence[Segment]:
        """The nested segments."""
        return self.test, self.body


class LoopCall(Compound):
    """A loop that a compiled function computes, with its kernels as the fallback.

    Args:
      loop: runs the loop with kernels.
      function: maps the inputs of the loop to the final values of its variables, or to
        NotImplemented, a `KernelFallback` or a `ComparisonRequest`. Its optional method `stop` is
        called when the session is closed.
      take: reads the inputs of the loop.
      order: for each loop variable, the index of its value in the function's results.
    """

    __slots__ = ("_function", "_in_order", "_loop", "_order", "_program", "_skips", "_take")

    def __init__(
        self, loop: WhileLoop, function: Callable[..., Any], take: Gather, order: Sequence[int]
    ) -> None:
        self._loop = loop
        self._order = order
        self._in_order = gather(order)
        self._function = function
        self._take = take
        self._skips = 0
        self._program: SharedProgram | None = None

    def __call__(self, slots: Slots, run: Callable[[Slots], int] | None = None) -> bool:
        """Run the loop.

        Args:
          run: runs the kernels if they are checked or traced, and returns the iterations.
        Returns: True if the function computed the loop.
        """
        run = run or self._loop
        # Once a region has been timed often enough, most of its runs need no decision and are not
        # timed.
        if self._skips > 0:
            self._skips -= 1
            run(slots)
            return False
        values = self._function(*self._take(slots))
        if isinstance(values, KernelFallback):
            started = time.thread_time()
            iterations = run(slots)
            values.record_time(time.thread_time() - started, iterations)
            self._skips = values.skips
        elif values is NotImplemented:
            run(slots)
        elif isinstance(values, ComparisonRequest):
            run(slots)
            last = dict(zip(self._order, slots[self._loop.variables], strict=True))
            values.compare([last[index] for index in range(len(last))])
        else:
            slots[self._loop.variables] = self._in_order(values)
            return True
        return False

    def call_checked(self, check: Check, *inputs: Any) -> None:
        """Run with `check` around each kernel."""
        (slots,) = inputs
        self(slots, lambda slots: self._loop.call_checked(check, slots))

    def call_traced(self, log: ThreadLog, check: Check | None, *inputs: Any) -> None:
        """Run and record each kernel; the function's nodes share its time."""
        (slots,) = inputs
        started = clock()
        if self(slots, lambda slots: self._loop.call_traced(log, check, slots)):
            readings = array("q", (started, clock()))
            log.runs.append((self._program or self._prepare(), log.iteration, 0, readings, ()))

    def _prepare(self) -> SharedProgram:
        from weft_exec.costs.time_attribution import time_fractions
        from weft_exec.tracing.programs import SharedProgram, loop_event

        test, body = self._loop.segments
        nodes = [*test.all_nodes(), *body.all_nodes()]
        device = (*test.devices, *body.devices, "")[0]
        event = loop_event(self._loop.name, nodes, device)
        program = self._program = SharedProgram(event, time_fractions(nodes).values())
        return program

    def stop(self) -> None:
        """Notify the function that the session is closed, if it has a method `stop`."""
        stop = getattr(self._function, "stop", None)
        if stop is not None:
            stop()

    @property
    def segments(self) -> Sequence[Segment]:
        """The segments of the kernels."""
        return self._loop.segments


def value_of(pred: Any, if_false: Any, if_true: Any) -> Any:
    """Return the value of a Merge of two branches."""
    return if_true if pred else if_false

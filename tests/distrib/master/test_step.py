"""A step over several tasks: each order of replies, failures, cancellation and loss."""

from __future__ import annotations

import random

import pytest

from weft_distrib.master.step import Abort, Finish, StepCoordinator
from weft_tensor import errors


def test_all_reply() -> None:
    step = StepCoordinator("ab")
    assert step.replied("a") == []
    assert step.replied("b") == [Finish(None)]
    assert step.replied("b") == [] and step.cancel(errors.CancelledError("x")) == []


def test_the_first_failure_aborts_the_others_and_is_what_the_client_is_told() -> None:
    step = StepCoordinator("abc")
    first, second = errors.InternalError("1"), errors.CancelledError("2")
    assert step.failed("b", first) == [Abort("a", first), Abort("c", first)]
    assert step.failed("a", second) == []
    assert step.replied("c") == [Finish(first)]


def test_what_only_tells_of_a_failure_gives_way_to_it() -> None:
    step = StepCoordinator("abc")
    derived = errors.CancelledError("failed elsewhere: 1", details={"failed elsewhere": True})
    assert step.failed("a", derived) == [Abort("b", derived), Abort("c", derived)]
    root = errors.InternalError("1")
    assert step.failed("b", root) == []
    assert step.failed("c", errors.CancelledError("2")) == [Finish(root)]


def test_who_does_not_answer_an_abort_is_given_up() -> None:
    step = StepCoordinator("ab")
    error = errors.DeadlineExceededError("late")
    assert step.stop_waiting() == []
    assert step.cancel(error) == [Abort("a", error), Abort("b", error)]
    assert step.stop_waiting() == [Finish(error)]
    assert step.stop_waiting() == [] and step.replied("a") == [] and step.failed("b", error) == []


@pytest.mark.parametrize("seed", range(3))
def test_any_order_of_events(seed: int) -> None:
    """In ten thousand orders, the client is notified once, last; no task is aborted twice."""
    rng = random.Random(seed)
    for _ in range(3_000):
        tasks = range(rng.randint(1, 4))
        step = StepCoordinator(tasks)
        finished, aborted, raised = [], [], []
        for _ in range(12):
            task = rng.choice(tasks)
            error = errors.OpError(str(rng.random()))
            event = rng.choice(["replied", "replied", "failed", "cancel", "give_up"])
            waiting = set(step.waiting)
            if event == "replied":
                told = step.replied(task)
            elif event == "failed":
                told = step.failed(task, error)
            else:
                told = step.cancel(error) if event == "cancel" else step.stop_waiting()
            if (event == "cancel" and not finished) or (event == "failed" and task in waiting):
                raised.append(error)
            assert not (told and finished), "told after the end"
            for each in told:
                if isinstance(each, Abort):
                    assert each.error is raised[0] and each.task in waiting
                    aborted.append(each.task)
                else:
                    finished.append(each)
                    assert each is told[-1] and not step.waiting
                    assert each.error is (raised[0] if raised else None)
        assert len(finished) <= 1 and len(set(aborted)) == len(aborted)
        assert bool(finished) == (not step.waiting)


def test_a_node_that_waited_for_who_is_lost_is_named() -> None:
    step = StepCoordinator(["ps", "worker", "other"])
    lost = errors.UnavailableError("ps is lost")
    lost.details["task"] = "ps"
    step.failed("ps", lost)
    step.failed("worker", errors.UnavailableError("ps is lost", op="_Recv", node="late/recv"))
    (end,) = step.failed("other", errors.UnavailableError("ps is lost", op="_Recv", node="another"))
    assert isinstance(end, Finish) and end.error is not None
    assert (end.error.node, end.error.details["task"]) == ("late/recv", "ps")
    assert end.error.message == "ps is lost"

"""Critical sections: one at a time, without deadlocks of their own making."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from weft_testing.waiting import in_threads

from weft_exec.session.session import Session
from weft_graph import proto
from weft_graph.ir.builder import constant, create
from weft_graph.ir.graph import Graph
from weft_graph.ops.array import placeholder
from weft_graph.variables.reference import Variable
from weft_io.coordination.critical_section import CRITICAL_SECTION_EXECUTIONS, CriticalSection
from weft_io.queues.queue import FIFOQueue
from weft_tensor import dtypes, errors


@pytest.fixture
def session() -> Any:
    with Graph().as_default() as graph, Session(graph=graph) as session:
        yield session


def test_read_and_write_are_one(session: Any) -> None:
    variable = Variable(np.zeros(64), use_resource=True)
    section = CriticalSection(name="guard")
    assert section.name == "guard"

    def increment() -> Any:
        return variable.assign(variable.read_value() + 1.0)

    operation = section.execute(increment)
    session.run(variable.initializer)

    def work() -> None:
        for _ in range(50):
            session.run(operation)

    with in_threads(*[work] * 4):
        pass
    assert session.run(variable)[0] == 200


def test_results_keep_their_structure(session: Any) -> None:
    section = CriticalSection()
    result = section.execute(lambda: {"a": (constant(1), constant(2.0)), "b": None})
    assert result["b"] is None
    assert session.run(result["a"]) == (1, 2.0)
    operation = section.execute(lambda: create("NoOp"))
    assert session.run(operation) is None


def test_effects_alone_can_be_run(session: Any) -> None:
    variable = Variable(0)
    section = CriticalSection()

    def body() -> None:
        variable.assign_add(1)

    operation = section.execute(body)
    session.run(variable.initializer)
    session.run(operation)
    assert session.run(variable) == 1


def test_inputs_are_there_before_the_mutex_is_taken(session: Any) -> None:
    """A section whose input is an outer dequeue does not block the sections that fill the queue."""
    queue = FIFOQueue(3, dtypes.float32, [[]])
    section = CriticalSection()
    outside = queue.dequeue()
    waits = section.execute(lambda: outside * 2.0)
    passes = section.execute(lambda: constant(1.0))
    put = queue.enqueue(4.0)
    with in_threads(lambda: session.run(waits)) as threads:
        for _ in range(20):
            assert session.run(passes) == 1
        session.run(put)
    assert threads[0].outcome == 8


def test_a_step_that_fails_inside_gives_the_mutex_back(session: Any) -> None:
    section = CriticalSection()
    fed = placeholder(dtypes.bool_, [])
    risky = section.execute(lambda: create("Assert", [fed, [constant("no")]]))
    with pytest.raises(errors.InvalidArgumentError, match="assertion failed") as caught:
        session.run(risky, {fed: False})
    session.run(risky, {fed: True}, options=proto.RunOptions(timeout_in_ms=20_000))
    assert caught.tb is not None  # whoever looks at the failure does not hold the mutex


def test_sections_inside_each_other(session: Any) -> None:
    outer, inner = CriticalSection(name="outer"), CriticalSection(name="inner")
    result = outer.execute(lambda: inner.execute(lambda: constant(3)), False)
    assert session.run(result) == 3
    with pytest.raises(errors.InvalidArgumentError, match="would cause deadlocks"):
        outer.execute(lambda: outer.execute(lambda: constant(1)))


def test_resources_belong_to_one_section(session: Any) -> None:
    variable = Variable(1.0, use_resource=True)
    first, second = CriticalSection(), CriticalSection()
    first.execute(lambda: variable.assign_add(1.0))
    with pytest.raises(errors.InvalidArgumentError, match="exclusive_resource_access=False"):
        second.execute(lambda: variable.read_value())
    first.execute(lambda: variable.read_value())
    (execution, _) = session.graph.get_collection(CRITICAL_SECTION_EXECUTIONS)
    assert execution.exclusive and execution.resources == (variable.handle,)
    other = Variable(1.0, use_resource=True)
    first.execute(lambda: other.read_value(), exclusive_resource_access=False)
    second.execute(lambda: other.read_value(), exclusive_resource_access=False)


def test_sections_are_shared_by_name() -> None:
    target = "inproc://critical"
    order: list[int] = []

    def session_of(number: int) -> Any:
        with Graph().as_default() as graph:
            section = CriticalSection(shared_name="shared")
            variable = Variable(0, name="v", use_resource=True)
            operation = section.execute(lambda: variable.assign(variable.read_value() + 1))
            initializer = variable.initializer
        return Session(target, graph=graph), operation, initializer

    first, second = session_of(0), session_of(1)
    first[0].run(first[2])

    def work(which: Any) -> None:
        for _ in range(40):
            order.append(which[0].run(which[1]))

    with in_threads(lambda: work(first), lambda: work(second)):
        pass
    assert sorted(order) == list(range(1, 81))
    for session in (first[0], second[0]):
        session.close()
    Session.reset(target)


def test_wrong_arguments() -> None:
    with Graph().as_default():
        with pytest.raises(errors.InvalidTypeError, match="callable"):
            CriticalSection().execute(constant(1))  # type: ignore[arg-type]
        with pytest.raises(errors.UnimplementedError):
            CriticalSection(critical_section_def=object())

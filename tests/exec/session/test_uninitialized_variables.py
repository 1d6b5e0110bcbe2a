"""Errors of steps that read an uninitialized variable: one table of graphs and texts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import weft as wf
from weft_exec.session.uninitialized_variables import advise
from weft_tensor import errors

GLOBAL = "run global_variables_initializer() first; "
LOCAL = "run local_variables_initializer() first; "


@pytest.fixture(autouse=True)
def _graph() -> Iterator[None]:
    with wf.Graph().as_default():
        yield


def _variable(name: str = "v", *, collections: Any = None, resource: bool = False) -> Any:
    return wf.Variable(1.0, name=name, collections=collections, use_resource=resource)


def _local() -> Any:
    return _variable("count", collections=[wf.GraphKeys.LOCAL_VARIABLES])


def _metric() -> Any:
    return wf.metrics.accuracy([1], [1])[1]


def _many() -> Any:
    return wf.add_n([_variable(f"v{i}") for i in range(5)])


def _in_a_loop() -> Any:
    v = _variable()
    return wf.while_loop(lambda i: i < 3.0, lambda i: i + v, [0.0])


READS: list[tuple[Callable[[], Any], str]] = [
    (lambda: _variable() + 1.0, f"value v: {GLOBAL}1 global variable has no value: v"),
    (lambda: _variable(resource=True) + 1.0, f"value v: {GLOBAL}1 global variable has no value: v"),
    (lambda: _variable().assign_add(1.0), f"value v: {GLOBAL}1 global"),
    (_in_a_loop, f"value v: {GLOBAL}1 global"),
    (_many, f"{GLOBAL}5 global variables have no value: v0, v1, v2, ..."),
    (lambda: _local() + 1.0, f"value count: {LOCAL}1 local variable has no value: count"),
    (_metric, f"{LOCAL}2 local variables have no value: accuracy/total, accuracy/count"),
    (
        lambda: _variable(collections=[]) + 1.0,
        "value v: run its initializer first; it is neither a glob",
    ),
    (
        lambda: wf.data.make_initializable_iterator(wf.data.Dataset.range(3)).get_next(),
        "session.run(iterator.initializer)",
    ),
]


def test_the_initializer_is_named() -> None:
    for build, words in READS:
        with wf.Graph().as_default(), wf.Session() as session:
            result = build()
            for _ in range(2):
                with pytest.raises(errors.FailedPreconditionError, match=re.escape(words)) as found:
                    session.run(result)
                assert found.value.message.count("run") <= 2


def test_those_with_a_value_are_not_counted() -> None:
    first, second = _variable("first"), _variable("second")
    with wf.Session() as session:
        session.run(first.initializer)
        with pytest.raises(errors.FailedPreconditionError) as found:
            session.run(first + second)
        assert found.value.message.endswith("1 global variable has no value: second")


def test_an_initializer_that_reads_what_the_step_initializes() -> None:
    v = _variable()
    group = wf.group(v.initializer)
    for targets in ([v.initializer], [group]):
        error = errors.FailedPreconditionError("read", details={"uninitialized": "v"})
        advise(error, wf.get_default_graph(), wf.Session().resources, targets)
        assert "use its initialized_value()" in error.message
        advise(error, wf.get_default_graph(), wf.Session().resources, targets)
        assert error.message.count("initialized_value") == 1

"""The calls of a monitored session, in order, and its end. The traces are TensorFlow's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from weft_graph import Graph, proto
from weft_graph.ir.builder import constant
from weft_graph.variables.reference import Variable
from weft_io.training import (
    ChiefSessionCreator,
    MonitoredSession,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SingularMonitoredSession,
    StopAtStepHook,
)
from weft_tensor import errors

BEGUN = ["a.begin", "b.begin", "a.create", "b.create"]
STEP = ["a.before", "b.before", "a.after", "b.after"]
ENDED = ["a.end", "b.end"]


def test_the_order_of_calls(model: Any, told: Callable[..., Any], story: list[str]) -> None:
    a, b = told("a", SessionRunArgs({"s": model.step})), told("b")
    with MonitoredSession(hooks=[a, b, StopAtStepHook(num_steps=2)]) as session:
        while not session.should_stop():
            assert session.run([model.train, {"x": model.x}]) == [None, {"x": 1.0}]
    assert story == BEGUN + STEP + STEP + ENDED
    assert a.values == [{"s": 1}, {"s": 2}] and b.values == [None, None]


@pytest.mark.parametrize("kind", [MonitoredSession, SingularMonitoredSession])
def test_no_step_after_the_stop_and_nothing_after_the_end(model: Any, kind: Any) -> None:
    with kind(hooks=[StopAtStepHook(last_step=1)]) as session:
        assert session.graph is model.w.graph
        session.run(model.train)
        assert session.should_stop()
        with pytest.raises(errors.FailedPreconditionError, match="after should_stop requested"):
            session.run(model.train)
    assert session.should_stop() and session.graph is None
    for use in (lambda: session.run(model.train), session.close):
        with pytest.raises(errors.FailedPreconditionError, match="already closed"):
            use()


@pytest.mark.parametrize("error", [errors.OutOfRangeError("no more data"), StopIteration()])
def test_the_end_of_the_data_ends_the_block(
    model: Any, told: Callable[..., Any], story: list[str], error: Exception
) -> None:
    with MonitoredSession(hooks=[told("a"), told("b")]) as session:
        session.run(model.train)
        raise error
    assert story == BEGUN + STEP + ENDED


@pytest.mark.parametrize(
    "error",
    [KeyError("x"), KeyboardInterrupt(), errors.DataLossError("x"), errors.AbortedError("x")],
)
def test_other_errors_leave_the_block_without_the_end_of_hooks(
    model: Any, told: Callable[..., Any], story: list[str], error: BaseException
) -> None:
    with (
        pytest.raises(type(error)) as raised,
        MonitoredSession(hooks=[told("a"), told("b")]) as session,
    ):
        raise error
    assert raised.value is error
    assert story == BEGUN and session.should_stop()


def test_the_program_goes_on_after_an_interrupt(model: Any) -> None:
    with pytest.raises(KeyboardInterrupt), MonitoredSession() as session:
        session.run(model.train)
        raise KeyboardInterrupt
    twice = model.w + model.w
    with MonitoredSession() as session:
        assert session.run([model.train, twice])[1] == 0.0


def test_an_error_in_a_hooks_end_still_closes(model: Any, told: Callable[..., Any]) -> None:
    class Bad(SessionRunHook):
        def end(self, session: Any) -> None:
            raise ValueError("in end")

    session = MonitoredSession(hooks=[Bad()])
    raw = session._tf_sess()
    with pytest.raises(ValueError, match="in end"):
        session.close()
    with pytest.raises(errors.FailedPreconditionError, match="has been closed"):
        raw.run(model.w)
    assert session.should_stop()


def test_an_error_while_the_session_is_made_closes_it(
    model: Any, told: Callable[..., Any], story: list[str]
) -> None:
    found: list[Any] = []

    class Bad(SessionRunHook):
        def after_create_session(self, session: Any, coord: Any) -> None:
            found.append(session)
            raise ValueError("in create")

    with pytest.raises(ValueError, match="in create"):
        MonitoredSession(hooks=[told("a"), Bad()])
    assert story == ["a.begin", "a.create"]
    with pytest.raises(errors.FailedPreconditionError, match="has been closed"):
        found[0].run(model.w)
    Variable(1.0)  # the graph is the program's again


def test_the_graph_is_finalized_meanwhile_and_hooks_may_add_to_it_before(
    graph: Graph, model: Any
) -> None:
    class Six(SessionRunHook):
        def begin(self) -> None:
            self.six = constant(3.0) * 2.0

        def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
            return SessionRunArgs(self.six)

        def after_run(self, run_context: SessionRunContext, run_values: Any) -> None:
            self.found = run_values.results

    hook = Six()
    with MonitoredSession(hooks=[hook]) as session:
        assert graph.finalized
        session.run(model.train)
        with pytest.raises(RuntimeError, match="finalized"):
            constant(1.0)
    assert hook.found == 6.0 and not graph.finalized


def test_a_graph_that_was_finalized_stays_so(graph: Graph, model: Any) -> None:
    with MonitoredSession():
        pass  # what the session needs is made now
    graph.finalize()
    with MonitoredSession() as session:
        session.run(model.train)
    assert graph.finalized


def test_sessions_one_after_another(model: Any) -> None:
    for _ in range(2):
        with MonitoredSession() as session:
            session.run(model.train)
            assert session.run(model.w) == 1.0
        constant(1.0)


def test_the_end_of_the_data_may_come_from_a_hook(
    model: Any, told: Callable[..., Any], story: list[str]
) -> None:
    def end(place: str) -> None:
        if place == "after":
            raise errors.OutOfRangeError("the hook has no more data")

    with MonitoredSession(hooks=[told("a", fail=end), told("b")]) as session:
        session.run(model.train)
        raise AssertionError("never reached")
    assert story == [*BEGUN, "a.before", "b.before", "a.after", *ENDED]


def test_a_stop_before_a_step_is_one_after_it(model: Any) -> None:
    class Last(SessionRunHook):
        def before_run(self, run_context: SessionRunContext) -> None:
            run_context.request_stop()

    with MonitoredSession(hooks=[Last()]) as session:
        session.run(model.train)
        assert session.should_stop() and session._tf_sess().run(model.w) == 1.0


def test_a_session_outside_its_graph(make_model: Any) -> None:
    with Graph().as_default() as graph:
        model = make_model()
        session = MonitoredSession(hooks=[StopAtStepHook(num_steps=1)])
    session.run(model.train)
    assert session.should_stop() and graph.finalized
    session.close()
    assert not graph.finalized


# ------------------------------------------------------------------------- what hooks ask for


@pytest.mark.parametrize("by_name", [False, True])
def test_a_tensor_is_fed_once(model: Any, told: Callable[..., Any], by_name: bool) -> None:
    key = "x:0" if by_name else model.x
    first, second = (told(name, SessionRunArgs(None, {k: 2.0})) for name, k in
                     (("a", model.x), ("b", key)))  # fmt: skip
    with (
        pytest.raises(RuntimeError, match=r"fed by two hooks. Conflict\(s\): x:0"),
        MonitoredSession(hooks=[first, second]) as session,
    ):
        session.run(model.train)
    with (
        pytest.raises(RuntimeError, match=r"by a SessionRunHook and user. Conflict\(s\): x:0"),
        MonitoredSession(hooks=[first]) as session,
    ):
        session.run(model.train, feed_dict={key: 3.0})


def test_feeds_of_hooks_and_of_the_program_together(model: Any, told: Callable[..., Any]) -> None:
    y = constant(0.0, name="y")
    hook = told("a", SessionRunArgs([y, model.x], {y: 5.0}))
    with MonitoredSession(hooks=[hook]) as session:
        assert session.run(model.x, feed_dict={model.x: 3.0}) == 3.0
        assert session.run(model.x) == 1.0
    assert hook.values == [[5.0, 3.0], [5.0, 1.0]]


def test_options_are_merged_and_the_programs_stay_as_they_are(
    model: Any, told: Callable[..., Any]
) -> None:
    seen: list[Any] = []

    class Seeing(SessionRunHook):
        def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
            return SessionRunArgs(None, None, proto.RunOptions(trace_level=3))

        def after_run(self, run_context: SessionRunContext, run_values: Any) -> None:
            seen.append(run_values)

    more = told("b", SessionRunArgs(None, None, proto.RunOptions(timeout_in_ms=50_000)))
    options, metadata = proto.RunOptions(timeout_in_ms=60_000), proto.RunMetadata()
    with MonitoredSession(hooks=[Seeing(), more]) as session:
        session.run(model.train, options=options, run_metadata=metadata)
    (values,) = seen
    assert (values.options.trace_level, values.options.timeout_in_ms) == (3, 60_000)
    assert metadata.step_stats.dev_stats and values.run_metadata is metadata
    assert options == proto.RunOptions(timeout_in_ms=60_000)


def test_a_hook_sees_the_step_and_may_run_others(model: Any) -> None:
    seen: list[Any] = []

    class Looking(SessionRunHook):
        def before_run(self, run_context: SessionRunContext) -> None:
            seen.append(run_context.original_args)
            seen.append(run_context.session.run(model.w))

        def after_run(self, run_context: SessionRunContext, run_values: Any) -> None:
            assert not run_context.stop_requested
            run_context.request_stop()
            assert run_context.stop_requested and run_values.options == proto.RunOptions()

    with MonitoredSession(hooks=[Looking()]) as session:
        session.run(model.train, feed_dict={model.x: 4.0})
        assert session.should_stop()
    assert seen == [(model.train, {model.x: 4.0}, None), 0.0]


def test_a_hook_that_asks_for_something_else(model: Any, told: Callable[..., Any]) -> None:
    with (
        pytest.raises(TypeError, match="before_run of Told must return a SessionRunArgs"),
        MonitoredSession(hooks=[told("a", {"w": model.w})]) as session,
    ):
        session.run(model.train)


# ------------------------------------------------------------------------- step functions


def test_step_functions(model: Any, told: Callable[..., Any], story: list[str]) -> None:
    def step(step_context: Any) -> Any:
        step_context.session.run(model.train)
        return step_context.run_with_hooks(model.w, feed_dict={model.x: 0.0})

    class Trainer:
        def step(self, step_context: Any) -> None:
            step_context.request_stop()

    with MonitoredSession(hooks=[told("a"), told("b")]) as session:
        assert session.run_step_fn(step) == 1.0
        session.run_step_fn(Trainer().step)
        raise AssertionError("never reached")
    assert story == BEGUN + STEP + ENDED


def test_a_step_function_takes_a_step_context(model: Any) -> None:
    with MonitoredSession() as session:
        for wrong in (lambda: 1, lambda x: 1, lambda step_context, x: 1):
            with pytest.raises(ValueError, match="one `step_context` argument"):
                session.run_step_fn(wrong)
        with pytest.raises(TypeError, match="step_fn"):
            session.run_step_fn(3)  # type: ignore[arg-type]


# ------------------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"hooks": [3]}, "hooks must be SessionRunHooks, got 3"),
        ({"hooks": SessionRunHook()}, "hooks must be a list"),
        ({"session_creator": 3}, "session_creator must be a SessionCreator, got 3"),
        ({"stop_grace_period_secs": "x"}, "stop_grace_period_secs must be a number"),
        ({"stop_grace_period_secs": -1}, "stop_grace_period_secs must be a number >= 0"),
    ],
)
def test_arguments(graph: Graph, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=message):
        MonitoredSession(**arguments)
    assert not graph.finalized


def test_the_singular_session_has_its_raw_one(model: Any) -> None:
    with SingularMonitoredSession() as session:
        assert session.raw_session().run(model.w) == 0.0
    assert session.raw_session() is None


def test_several_checkpoints_to_restore_are_an_error(model: Any) -> None:
    for make in (ChiefSessionCreator, SingularMonitoredSession):
        with pytest.raises(ValueError, match="both checkpoint_dir and checkpoint_filename"):
            make(checkpoint_dir="a", checkpoint_filename_with_path="b")

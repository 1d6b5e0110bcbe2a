"""The nodes that make a session ready: found, made, or given."""

from __future__ import annotations

from typing import Any

import pytest

from weft_exec import Session
from weft_graph import Graph
from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ops.array import placeholder
from weft_graph.ops.control import no_op
from weft_graph.variables.reference import Variable
from weft_io import summary
from weft_io.saving.saver import Saver
from weft_io.training import ChiefSessionCreator, MonitoredSession, Scaffold
from weft_tensor import dtypes, errors

KEYS = {
    "init_op": GraphKeys.INIT_OP,
    "ready_op": GraphKeys.READY_OP,
    "ready_for_local_init_op": GraphKeys.READY_FOR_LOCAL_INIT_OP,
    "local_init_op": GraphKeys.LOCAL_INIT_OP,
    "summary_op": GraphKeys.SUMMARY_OP,
    "saver": GraphKeys.SAVERS,
}


def test_what_is_not_given_is_made_and_collected(graph: Graph, model: Any) -> None:
    Variable(1.0, collections=[GraphKeys.LOCAL_VARIABLES], name="local")
    summary.scalar("w_now", model.w)
    scaffold = Scaffold()
    assert all(getattr(scaffold, part) is None for part in KEYS)
    assert scaffold.finalize() is scaffold and graph.finalized
    for part, key in KEYS.items():
        assert graph.get_collection(key) == [getattr(scaffold, part)] != [None]
    with Session() as session:
        assert set(session.run(scaffold.ready_op)) == {b"global_step", b"w", b"local"}
        assert set(session.run(scaffold.ready_for_local_init_op)) == {b"global_step", b"w"}
        session.run(scaffold.init_op)
        assert set(session.run(scaffold.ready_op)) == {b"local"}
        session.run(scaffold.local_init_op)
        assert session.run(scaffold.ready_op).size == 0
    assert scaffold.finalize() is scaffold  # again, as for a session that is made again


def test_what_is_in_the_collections_is_found(graph: Graph, model: Any) -> None:
    found = {part: no_op() for part in KEYS}
    found["saver"] = Saver()
    for part, key in KEYS.items():
        graph.add_to_collection(key, found[part])
    scaffold = Scaffold().finalize()
    assert {part: getattr(scaffold, part) for part in KEYS} == found


def test_what_is_given_is_kept_and_copied(graph: Graph, model: Any) -> None:
    given: dict[str, Any] = {part: no_op() for part in KEYS}
    given["saver"] = Saver()
    feeds = {model.x: 3.0}
    first = Scaffold(**given, init_feed_dict=feeds, local_init_feed_dict=feeds)
    other = no_op()
    second = Scaffold(copy_from_scaffold=first, init_op=other).finalize()
    assert {part: getattr(second, part) for part in KEYS} == {**given, "init_op": other}
    assert second.init_feed_dict is feeds and second.local_init_feed_dict is feeds
    assert not any(graph.get_collection(key) for key in KEYS.values())


def test_no_summaries(graph: Graph, model: Any) -> None:
    assert Scaffold().finalize().summary_op is None
    assert graph.get_collection(GraphKeys.SUMMARY_OP) == []


def test_a_graph_without_variables(graph: Graph) -> None:
    with MonitoredSession() as session:
        session.run(no_op_of(graph))


def no_op_of(graph: Graph) -> Any:
    return graph.get_collection(GraphKeys.LOCAL_INIT_OP)[0]


def test_functions_and_feeds_that_initialize(graph: Graph, model: Any) -> None:
    start = placeholder(dtypes.float32, [])
    other = Variable(start, name="other")
    local = Variable(start, name="local", collections=[GraphKeys.LOCAL_VARIABLES])
    calls: list[Any] = []

    def init_fn(scaffold: Any, session: Any) -> None:
        calls.append((scaffold, session.run(other)))

    scaffold = Scaffold(
        init_feed_dict={start: 4.0}, init_fn=init_fn, local_init_feed_dict={start: 5.0}
    )
    with MonitoredSession(ChiefSessionCreator(scaffold)) as session:
        assert session.run([other, local]) == [4.0, 5.0]
    assert calls == [(scaffold, 4.0)]


@pytest.mark.parametrize("part", KEYS)
def test_a_collection_with_a_choice(graph: Graph, model: Any, part: str) -> None:
    for _ in range(2):
        graph.add_to_collection(KEYS[part], Saver() if part == "saver" else no_op())
    with pytest.raises(RuntimeError, match=rf"More than one item .* tf.Scaffold\({part}=item"):
        Scaffold().finalize()
    assert not graph.finalized


def test_get_or_default(graph: Graph) -> None:
    calls: list[int] = []

    def made() -> int:
        calls.append(1)
        return 7

    assert Scaffold.get_or_default("a", "key", made) == 7
    assert Scaffold.get_or_default("a", "key", made) == 7 and len(calls) == 1
    assert Scaffold.get_or_default("a", "other", lambda: None) is None
    assert graph.get_collection("other") == []


def test_arguments() -> None:
    with pytest.raises(TypeError, match="copy_from_scaffold is not a Scaffold: 3"):
        Scaffold(copy_from_scaffold=3)  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidTypeError, match="init_fn"):
        Scaffold(init_fn=lambda session: None)  # type: ignore[misc, arg-type]

"""Saver in a session."""

from __future__ import annotations

import itertools
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weft_exec import Session
from weft_graph import Graph, proto
from weft_graph.ops import state as state_ops
from weft_graph.variables.partitioning import fixed_size_partitioner
from weft_graph.variables.reference import Variable, global_variables_initializer
from weft_graph.variables.scope import get_variable
from weft_io import (
    SaveableObject,
    Saver,
    SaveSpec,
    get_checkpoint_state,
    latest_checkpoint,
    list_variables,
    load_variable,
)
from weft_io.checkpoint.index import Index
from weft_io.checkpoint.reader import CheckpointReader
from weft_io.saving.bundle_saver_builder import BundleSaverBuilder
from weft_io.saving.meta_graph import import_meta_graph
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import ALL_DTYPES

SAVEABLE = [dtype for dtype in ALL_DTYPES if dtype.is_numpy_compatible]
FAMILIES = {"reference": False, "resource": True}


@pytest.fixture(autouse=True)
def graph() -> Iterator[Graph]:
    with Graph().as_default() as made:
        yield made


@pytest.fixture(params=FAMILIES.values(), ids=FAMILIES.keys())
def use_resource(request: pytest.FixtureRequest) -> bool:
    return request.param


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def sample(dtype: dtypes.DType, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    if dtype is dtypes.string:
        made = np.empty((2, 3), object)
        for i in np.ndindex(2, 3):
            made[i] = rng.bytes(5)
        return made
    if dtype.is_bool:
        return rng.integers(0, 2, (2, 3)).astype(bool)
    if dtype.is_complex:
        return (rng.normal(size=(2, 3)) + 1j).astype(dtype.numpy)
    if dtype.is_floating:
        return rng.normal(size=(2, 3)).astype(dtype.numpy)
    return rng.integers(0, 100, (2, 3)).astype(dtype.numpy)


class TestRoundTrip:
    @pytest.mark.parametrize("dtype", SAVEABLE, ids=lambda d: d.name)
    def test_every_type(self, tmp_path: Path, dtype: dtypes.DType, use_resource: bool) -> None:
        first, second = sample(dtype, 1), sample(dtype, 2)
        v = Variable(first, name="v", dtype=dtype, use_resource=use_resource)
        saver = Saver()
        with Session() as session:
            session.run(v.initializer)
            path = saver.save(session, str(tmp_path / "m"))
            v.load(second, session)
            assert np.array_equal(session.run(v), second)
            saver.restore(session, path)
            found = session.run(v)
        assert found.dtype == dtype.numpy and np.array_equal(found, first)

    def test_both_families_in_one(self, tmp_path: Path) -> None:
        variables = {
            name: Variable(np.full(shape, i, np.float32), name=name, use_resource=resource)
            for i, (name, shape, resource) in enumerate(
                [("a", (), False), ("b", (3,), True), ("c", (0, 2), False), ("d", (), True)]
            )
        }
        saver = Saver()
        with Session() as session:
            session.run(global_variables_initializer())
            path = saver.save(session, str(tmp_path / "m"), global_step=7)
            before = session.run(variables)
        assert path == str(tmp_path / "m-7")
        with Session() as session:
            saver.restore(session, path)
            after = session.run(variables)
        assert {k: v.tolist() for k, v in after.items()} == {
            k: v.tolist() for k, v in before.items()
        }

    def test_a_finalized_graph(self, tmp_path: Path, graph: Graph) -> None:
        v = Variable(1.0, name="v")
        saver = Saver()
        graph.finalize()
        with Session() as session:
            session.run(v.initializer)
            saver.restore(session, saver.save(session, str(tmp_path / "m")))

    def test_large_values_and_updates_in_between(self, tmp_path: Path, use_resource: bool) -> None:
        v = Variable(np.zeros((500, 500), np.float32), use_resource=use_resource)
        add = v.assign_add(np.ones((500, 500), np.float32), read_value=False)
        saver = Saver()
        with Session() as session:
            session.run(v.initializer)
            for step in range(3):
                session.run(add)
                saver.save(session, str(tmp_path / "m"), step)
            for step in range(3):
                saver.restore(session, str(tmp_path / f"m-{step}"))
                assert (session.run(v) == step + 1).all()
                session.run(add)
                assert (session.run(v) == step + 2).all()

    def test_a_variable_of_any_shape(self, tmp_path: Path) -> None:
        v = Variable(np.zeros(3, np.float32), validate_shape=False, name="v")
        saver = Saver()
        with Session() as session:
            session.run(v.initializer)
            path = saver.save(session, str(tmp_path / "m"))
            session.run(state_ops.assign(v, np.ones((2, 2), np.float32), validate_shape=False))
            saver.restore(session, path)
            assert session.run(v).shape == (3,)

    def test_node_names(self, graph: Graph) -> None:
        Variable(1.0, name="v")
        saver = Saver()
        found = saver.as_saver_def()
        assert found.filename_tensor_name == "save/Const:0"
        assert found.save_tensor_name == "save/control_dependency:0"
        assert found.restore_op_name == "save/restore_all"
        for name in ("save/SaveV2", "save/RestoreV2", "save/Assign"):
            graph.get_operation_by_name(name)

    def test_many_sessions_at_once(self, tmp_path: Path) -> None:
        import threading

        v = Variable(np.zeros(1000), name="v")
        saver = Saver(max_to_keep=None)
        failures: list[BaseException] = []

        def work(number: int) -> None:
            try:
                with Session(graph=v.graph) as session:
                    v.load(np.full(1000, float(number)), session)
                    for _ in range(5):
                        saver.save(session, str(tmp_path / f"m{number % 2}"), write_state=False)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        with Session() as session:
            for number in range(2):
                saver.restore(session, str(tmp_path / f"m{number}"))
                assert set(session.run(v)) <= {float(number), number + 2.0}
        assert len(names(tmp_path)) == 6, names(tmp_path)


class TestWhatIsSaved:
    def test_a_part_of_the_variables(self, tmp_path: Path) -> None:
        a, b = Variable(1.0, name="a"), Variable(2.0, name="b")
        saver = Saver([a])
        with Session() as session:
            session.run([a.initializer])
            path = saver.save(session, str(tmp_path / "m"))
            assert list_variables(path) == [("a", [])]
            session.run([a.assign(5.0), b.initializer])
            saver.restore(session, path)
            assert session.run([a, b]) == [1.0, 2.0]

    def test_other_names(self, tmp_path: Path) -> None:
        a, b = Variable(1.0, name="a"), Variable(2.0, name="b", use_resource=True)
        with Session() as session:
            session.run([a.initializer, b.initializer])
            path = Saver({"x": a, "y/z": b}).save(session, str(tmp_path / "m"))
            assert list_variables(path) == [("x", []), ("y/z", [])]
            Saver({"x": b, "y/z": a}).restore(session, path)
            assert session.run([a, b]) == [2.0, 1.0]

    def test_partitioned_variables_are_one_tensor(self, tmp_path: Path, use_resource: bool) -> None:
        def build(parts: int) -> Any:
            return get_variable(
                "w",
                shape=[10, 3],
                initializer=lambda shape, dtype=None, partition_info=None: np.ones(shape),
                partitioner=fixed_size_partitioner(parts),
                use_resource=use_resource,
                dtype=dtypes.float64,
            )

        value = np.arange(30.0).reshape(10, 3)
        w = build(3)
        saver = Saver()
        with Session() as session:
            for part in w:
                offset = part._get_save_slice_info().var_offset[0]
                part.load(value[offset : offset + part.shape[0].value], session)
            path = saver.save(session, str(tmp_path / "m"))
        assert list_variables(path) == [("w", [10, 3])]
        np.testing.assert_array_equal(load_variable(path, "w"), value)
        for parts in (1, 2, 4):
            with Graph().as_default(), Session() as session:
                w = build(parts)
                Saver().restore(session, path)
                np.testing.assert_array_equal(session.run(w.as_tensor()), value)

    def test_other_state(self, tmp_path: Path, graph: Graph) -> None:
        class Pair(SaveableObject):
            def __init__(self, one: Variable, two: Variable) -> None:
                specs = [SaveSpec(v._ref(), "", n) for v, n in ((one, "p/one"), (two, "p/two"))]
                self.both = (one, two)
                super().__init__(self, specs, "p")

            def restore(self, restored_tensors: Any, restored_shapes: Any) -> Any:
                from weft_graph.ops.control import group

                pairs = zip(self.both, restored_tensors, strict=True)
                return group(*[v.assign(t).op for v, t in pairs])

        one, two = (Variable(float(i), collections=[]) for i in range(2))
        plain = Variable(7.0, name="plain")
        graph.add_to_collection("saveable_objects", Pair(one, two))
        saver = Saver()
        with Session() as session:
            session.run([v.initializer for v in (one, two, plain)])
            path = saver.save(session, str(tmp_path / "m"))
            assert [name for name, _ in list_variables(path)] == ["p/one", "p/two", "plain"]
            session.run([one.assign(8.0), two.assign(9.0)])
            saver.restore(session, path)
            assert session.run([one, two, plain]) == [0.0, 1.0, 7.0]

    def test_outputs_of_variable_nodes(self, tmp_path: Path) -> None:
        ref = state_ops.variable_op_v2([2], dtypes.float32, name="bare")
        fill = state_ops.assign(ref, [1.0, 2.0])
        with Session() as session:
            session.run(fill.op)
            path = Saver([ref]).save(session, str(tmp_path / "m"))
        assert list_variables(path) == [("bare", [2])]

    def test_wrong_lists(self) -> None:
        with pytest.raises(ValueError, match="no variables"):
            Saver()
        a, b = Variable(1.0, name="a"), Variable(2.0, name="b")
        with pytest.raises(ValueError, match="have the name 'a'"):
            Saver([a, a])
        with pytest.raises(ValueError, match="'x' and as 'y'"):
            Saver({"x": a, "y": a})
        for wrong in ([a, 3], [a + b], {"x": 3}, {1: a}, 5, "a", {"x": [a, b]}):
            with pytest.raises(TypeError):
                Saver(wrong)

    def test_nothing_on_request(self, tmp_path: Path) -> None:
        saver = Saver(allow_empty=True)
        with Session() as session:
            assert saver.save(session, str(tmp_path / "m"), write_meta_graph=False) is None
            saver.restore(session, str(tmp_path / "m"))
            assert not names(tmp_path)
            assert saver.save(session, str(tmp_path / "m")) is None
        assert names(tmp_path) == ["m.meta"]
        assert import_meta_graph(str(tmp_path / "m.meta")) is None

    def test_built_later(self, tmp_path: Path) -> None:
        saver = Saver(defer_build=True)
        v = Variable(1.0)
        saver.build()
        with Session() as session:
            session.run(v.initializer)
            saver.restore(session, saver.save(session, str(tmp_path / "m")))
        with pytest.raises(ValueError, match="defer_build"):
            Saver([v], defer_build=True)

    def test_one_file_per_device(self, tmp_path: Path, graph: Graph) -> None:
        with graph.device("/cpu:0"):
            a = Variable(1.0, name="a")
        with graph.device("/cpu:1"):
            b = Variable(2.0, name="b", use_resource=True)
        config = proto.ConfigProto(device_count={"CPU": 2})
        saver = Saver(sharded=True)
        assert saver.as_saver_def().sharded
        with Session(config=config) as session:
            session.run([a.initializer, b.initializer])
            path = saver.save(session, str(tmp_path / "m"))
            session.run([a.assign(0.0), b.assign(0.0)])
            saver.restore(session, path)
            assert session.run([a, b]) == [1.0, 2.0]
        shards = [name for name in names(tmp_path) if name.endswith(".safetensors")]
        assert [name.split("-")[1:4] for name in shards] == [
            ["00000", "of", "00002"],
            ["00001", "of", "00002"],
        ]


class TestRestoring:
    def test_uninitialized_variables_cannot_be_saved(self, tmp_path: Path) -> None:
        Variable(1.0, name="weights")
        with Session() as session, pytest.raises(errors.FailedPreconditionError, match="weights"):
            Saver().save(session, str(tmp_path / "m"))
        assert not names(tmp_path)

    def test_another_model(self, tmp_path: Path, use_resource: bool) -> None:
        with Graph().as_default(), Session() as session:
            a = Variable([1.0, 2.0], name="a")
            session.run(a.initializer)
            path = Saver().save(session, str(tmp_path / "m"))
        a = Variable([3.0, 4.0], name="a", use_resource=use_resource)
        others = [
            (
                Variable(5.0, name="ab", use_resource=use_resource),
                errors.NotFoundError,
                "ab .similar",
            ),
            (Variable([5.0], name="a2", use_resource=use_resource), ValueError, r"\[1\].*\[2\]"),
            (
                Variable(np.zeros(2), name="a3", use_resource=use_resource),
                ValueError,
                "float64.*float32",
            ),
        ]
        with Session() as session:
            session.run(global_variables_initializer())
            for other, kind, text in others:
                name = other.op.name if kind is errors.NotFoundError else "a"
                extra = {} if kind is errors.NotFoundError else {"a": other}
                saver = Saver({"a": a, name: other}) if not extra else Saver(extra)
                with pytest.raises(kind, match=text) as caught:
                    saver.restore(session, path)
                assert caught.value.op_type == "RestoreV2"
                assert session.run(a).tolist() == [3.0, 4.0]

    def test_no_checkpoint(self, tmp_path: Path) -> None:
        v = Variable(1.0)
        saver = Saver()
        with Session() as session:
            session.run(v.initializer)
            for kind in (ValueError, errors.NotFoundError):
                with pytest.raises(kind, match="no valid checkpoint"):
                    saver.restore(session, str(tmp_path / "m"))
            with pytest.raises(ValueError, match="None"):
                saver.restore(session, latest_checkpoint(str(tmp_path)))
            assert session.run(v) == 1.0
        with pytest.raises(TypeError, match="session"):
            saver.restore(None, "m")

    def test_reshape(self, tmp_path: Path) -> None:
        with Graph().as_default(), Session() as session:
            a, b = Variable(np.arange(6.0), name="a"), Variable([1.0, 2.0], name="b")
            session.run([a.initializer, b.initializer])
            path = Saver().save(session, str(tmp_path / "m"))
        a = Variable(np.zeros((2, 3)), name="a")
        b = Variable([0.0, 0.0, 0.0], name="b")
        with Session() as session:
            session.run(global_variables_initializer())
            with pytest.raises(ValueError):
                Saver([a]).restore(session, path)
            Saver([a], reshape=True).restore(session, path)
            assert session.run(a).tolist() == [[0, 1, 2], [3, 4, 5]]
            session.run(a.assign(np.ones((2, 3))))
            with pytest.raises(ValueError):
                Saver([a, b], reshape=True).restore(session, path)
            assert (session.run(a) == 1).all(), "nothing is half restored"

    def test_sequentially(self, tmp_path: Path, graph: Graph) -> None:
        variables = [Variable(float(i)) for i in range(4)]
        saver = Saver(restore_sequentially=True)
        assigns = [node for node in graph.nodes if node.name.startswith("save/Assign")]
        for before, after in itertools.pairwise(assigns):
            assert before in after.control_inputs
        with Session() as session:
            session.run(global_variables_initializer())
            saver.restore(session, saver.save(session, str(tmp_path / "m")))
            assert session.run(variables) == [0.0, 1.0, 2.0, 3.0]

    def test_the_nodes_alone_check_shapes_too(self, tmp_path: Path) -> None:
        with Graph().as_default(), Session() as session:
            one, two = Variable([1.0], name="a"), Variable([1.0, 2.0], name="b")
            session.run([one.initializer, two.initializer])
            path = Saver().save(session, str(tmp_path / "m"))
        one = Variable([5.0], name="a")
        Variable([5.0], name="b")
        saver = Saver()
        with Session() as session:
            session.run(global_variables_initializer())
            with pytest.raises(errors.InvalidArgumentError, match="'b'"):
                session.run("save/restore_all", {"save/Const:0": path})
            assert session.run(one) == [5.0]
        del saver

    def test_from_a_message(self, tmp_path: Path) -> None:
        v = Variable(1.0, name="v")
        message = Saver(max_to_keep=3).to_proto()
        assert message is not None and message.max_to_keep == 3
        for saver in (Saver(saver_def=message), Saver.from_proto(message)):
            with Session() as session:
                session.run(v.initializer)
                saver.restore(session, saver.save(session, str(tmp_path / "m")))
        with pytest.raises(TypeError, match="SaverDef"):
            Saver(saver_def=3)
        with pytest.raises(ValueError, match="save_tensor_name"):
            Saver(saver_def=proto.SaverDef())

    def test_name_scopes_of_messages(self) -> None:
        Variable(1.0)
        saver = Saver()
        assert saver.to_proto("other") is None
        short = saver.to_proto("save")
        assert short is not None and short.filename_tensor_name == "Const:0"
        again = Saver.from_proto(short, "save").as_saver_def()
        assert again.filename_tensor_name == "save/Const:0"


class TestRetention:
    def run(self, saver: Saver, directory: Path, steps: int, **options: Any) -> None:
        with Session() as session:
            session.run(global_variables_initializer())
            for step in range(steps):
                saver.save(session, str(directory / "m"), global_step=step, **options)

    def test_the_last_n(self, tmp_path: Path) -> None:
        Variable(1.0)
        saver = Saver(max_to_keep=2)
        self.run(saver, tmp_path, 5)
        expected = [str(tmp_path / "m-3"), str(tmp_path / "m-4")]
        assert saver.last_checkpoints == expected
        found = get_checkpoint_state(str(tmp_path))
        assert found is not None and list(found.all_model_checkpoint_paths) == expected
        assert latest_checkpoint(str(tmp_path)) == expected[1]
        assert [n for n in names(tmp_path) if n.endswith(".index")] == ["m-3.index", "m-4.index"]
        assert len(names(tmp_path)) == 7

    @pytest.mark.parametrize("number", [0, None])
    def test_all(self, tmp_path: Path, number: int | None) -> None:
        Variable(1.0)
        self.run(Saver(max_to_keep=number), tmp_path, 7, write_meta_graph=False)
        assert len(names(tmp_path)) == 15

    def test_every_n_hours(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        import time

        now, real, own = itertools.count(1_000_000, 600), time.time, threading.get_ident()
        # Other threads may look at the clock too, such as one that another test has left.
        monkeypatch.setattr(
            time, "time", lambda: next(now) if threading.get_ident() == own else real()
        )
        Variable(1.0)
        self.run(Saver(max_to_keep=1, keep_checkpoint_every_n_hours=1), tmp_path, 14)
        kept = sorted(int(n[2:-6]) for n in names(tmp_path) if n.endswith(".index"))
        assert kept == [6, 12, 13]

    def test_a_later_process_takes_the_list_over(self, tmp_path: Path) -> None:
        Variable(1.0)
        self.run(Saver(), tmp_path, 4)
        found = get_checkpoint_state(str(tmp_path))
        assert found is not None
        saver = Saver(max_to_keep=2)
        saver.recover_last_checkpoints([*found.all_model_checkpoint_paths, "gone"])
        assert len(saver.last_checkpoints) == 4
        with Session() as session:
            session.run(global_variables_initializer())
            saver.save(session, str(tmp_path / "m"), 9)
        assert [n for n in names(tmp_path) if n.endswith(".index")] == ["m-3.index", "m-9.index"]

    def test_set_last_checkpoints(self) -> None:
        Variable(1.0)
        saver = Saver()
        saver.set_last_checkpoints(["a", "b"])
        assert saver.last_checkpoints == ["a", "b"]
        saver.set_last_checkpoints_with_time([("c", 1.0)])
        assert saver.last_checkpoints == ["c"]
        with pytest.raises(TypeError):
            saver.set_last_checkpoints_with_time(["c"])

    def test_without_state(self, tmp_path: Path) -> None:
        Variable(1.0)
        saver = Saver(max_to_keep=1)
        self.run(saver, tmp_path, 3, write_state=False, write_meta_graph=False)
        assert latest_checkpoint(str(tmp_path)) is None and saver.last_checkpoints == []
        assert len(names(tmp_path)) == 6

    def test_paths(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        step = Variable(12, name="step")
        with Session() as session:
            session.run(step.initializer)
            saver = Saver(pad_step_number=True, save_relative_paths=True)
            assert saver.save(session, str(tmp_path / "m"), step) == str(tmp_path / "m-00000012")
            assert str(tmp_path) not in (tmp_path / "checkpoint").read_text()
            os.rename(tmp_path, tmp_path.with_name("moved"))
            moved = tmp_path.with_name("moved")
            saver.restore(session, latest_checkpoint(str(moved)))
            monkeypatch.chdir(moved)
            assert saver.save(session, "n") == "n"
            assert latest_checkpoint(".") == "./n"
            with pytest.raises(ValueError, match="latest_filename"):
                saver.save(session, "n", latest_filename="a/b")


class TestGraphFile:
    def test_it_holds_graph_saver_and_collections(self, tmp_path: Path, graph: Graph) -> None:
        v = Variable(1.0, name="v")
        graph.add_to_collection("numbers", 3)
        graph.add_to_collection("texts", "a")
        graph.add_to_collection("nodes", v.op)
        graph.add_to_collection("odd", object())
        saver = Saver()
        with Session() as session:
            session.run(v.initializer)
            saver.save(session, str(tmp_path / "m"), strip_default_attrs=True)
        message = proto.MetaGraphDef.FromString((tmp_path / "m.meta").read_bytes())
        assert [node.name for node in message.graph_def.node] == [n.name for n in graph.nodes]
        assert message.saver_def.restore_op_name == "save/restore_all"
        collections = message.collection_def
        assert list(collections["numbers"].int64_list.value) == [3]
        assert list(collections["texts"].bytes_list.value) == [b"a"]
        assert list(collections["nodes"].node_list.value) == ["v"]
        assert "odd" not in collections
        again = proto.VariableDef.FromString(collections["variables"].bytes_list.value[0])
        assert again.variable_name == "v:0"

    def test_as_text(self, tmp_path: Path) -> None:
        Variable(1.0, name="v")
        Saver().export_meta_graph(str(tmp_path / "m.txt"), as_text=True, clear_devices=True)
        assert 'name: "v"' in (tmp_path / "m.txt").read_text()

    def test_a_graph_without_a_form_does_not_stop_a_save(
        self, tmp_path: Path, graph: Graph, caplog: pytest.LogCaptureFixture
    ) -> None:
        v = Variable(1.0, name="v")
        v.op.attrs["_odd"] = object()
        saver = Saver()
        with Session() as session, caplog.at_level(logging.WARNING, "weft"):
            session.run(v.initializer)
            saver.restore(session, saver.save(session, str(tmp_path / "m")))
        assert "m.meta failed" in caplog.text and "_odd" in caplog.text
        assert names(tmp_path)[0] == "checkpoint" and "m.meta" not in names(tmp_path)

    def test_not_on_request(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        v = Variable(1.0, name="v")
        with Session() as session, caplog.at_level(logging.WARNING):
            session.run(v.initializer)
            Saver().save(session, str(tmp_path / "m"), write_meta_graph=False)
        assert not [name for name in names(tmp_path) if name.endswith(".meta")]


def test_the_index_is_readable(tmp_path: Path) -> None:
    v = Variable([1.0, 2.0], name="v")
    with Session() as session:
        session.run(v.initializer)
        Saver().save(session, str(tmp_path / "m"))
    found = Index.from_bytes((tmp_path / "m.index").read_bytes(), "m.index")
    assert found.tensors["v"].shape == (2,) and len(found.shards) == 1


TYPE, VALUE = errors.InvalidTypeError, errors.InvalidArgumentError


class TestWrongArguments:
    @pytest.mark.parametrize(
        ("options", "error", "text"),
        [
            ({"keep_checkpoint_every_n_hours": None}, TYPE, "hours must be a number, got None"),
            ({"keep_checkpoint_every_n_hours": "a"}, TYPE, "hours must be a number, got 'a'"),
            ({"keep_checkpoint_every_n_hours": -1}, VALUE, "hours must be a number >= 0, got -1"),
            ({"keep_checkpoint_every_n_hours": float("nan")}, VALUE, "number >= 0, got nan"),
            ({"max_to_keep": "a"}, TYPE, "max_to_keep must be an integer, got 'a'"),
            ({"max_to_keep": 1.5}, TYPE, "max_to_keep must be an integer, got 1.5"),
            ({"max_to_keep": True}, TYPE, "max_to_keep must be an integer, got True"),
            ({"max_to_keep": -1}, VALUE, "max_to_keep must be at least 0, got -1"),
            ({"max_to_keep": 2**70}, VALUE, "max_to_keep must be at most"),
            ({"write_version": "x"}, TYPE, "write_version must be an integer, got 'x'"),
            ({"write_version": 7}, VALUE, "write_version must be at most 2, got 7"),
            ({"name": 3}, TYPE, "name must be text, got 3"),
            ({"filename": 3}, TYPE, "filename must be text, got 3"),
            ({"builder": 3}, TYPE, "builder must be a SaverBuilder, got 3"),
        ],
    )
    def test_of_the_saver(self, options: Any, error: Any, text: str) -> None:
        Variable(1.0, name="v")
        with pytest.raises(error, match=text):
            Saver(**options)

    @pytest.mark.parametrize(
        ("call", "text"),
        [
            (lambda saver: saver.set_last_checkpoints(3), "last_checkpoints must be a list, got 3"),
            (lambda saver: saver.set_last_checkpoints("abc"), "must be a list, got 'abc'"),
            (lambda saver: saver.set_last_checkpoints([3]), r"\(prefix, time\) pairs are required"),
            (lambda saver: saver.set_last_checkpoints_with_time(3), "must be a list, got 3"),
            (lambda saver: saver.set_last_checkpoints_with_time([("a", None)]), "must be a number"),
            (lambda saver: saver.recover_last_checkpoints("abc"), "must be a list, got 'abc'"),
            (lambda saver: saver.to_proto(3), "export_scope must be text, got 3"),
            (lambda saver: Saver.from_proto(None), "must be a SaverDef, got None"),  # type: ignore[arg-type]
            (lambda saver: Saver.from_proto(3, "a"), "must be a SaverDef, got 3"),  # type: ignore[arg-type]
        ],
    )
    def test_of_its_methods(self, call: Any, text: str) -> None:
        Variable(1.0, name="v")
        with pytest.raises(errors.InvalidTypeError, match=text):
            call(Saver())

    @pytest.mark.parametrize(
        ("options", "text"),
        [
            ({"global_step": []}, r"global_step must be an integer, got \[\]"),
            ({"global_step": [3]}, r"global_step must be an integer, got \[3\]"),
            ({"global_step": 1.5}, "global_step must be an integer, got 1.5"),
            ({"global_step": float("nan")}, "global_step must be an integer, got nan"),
            ({"global_step": b"3"}, "global_step must be an integer, got b'3'"),
            ({"global_step": object()}, "global_step must be an integer, got <object"),
            ({"latest_filename": 3}, "latest_filename must be text, got 3"),
            ({"latest_filename": b"a"}, "latest_filename must be text, got b'a'"),
            ({"meta_graph_suffix": None}, "meta_graph_suffix must be text, got None"),
        ],
    )
    def test_of_save(self, tmp_path: Path, options: Any, text: str) -> None:
        v = Variable(1.0, name="v")
        with Session() as session:
            session.run(v.initializer)
            with pytest.raises(errors.InvalidTypeError, match=text):
                Saver().save(session, str(tmp_path / "m"), **options)
        assert not os.listdir(tmp_path)

    def test_steps_that_are_whole(self, tmp_path: Path) -> None:
        v = Variable(4.0, name="v")
        with Session() as session:
            session.run(v.initializer)
            for step in (4, np.int64(4), np.array(4), v, 4.0):
                prefix = Saver().save(session, str(tmp_path / "m"), global_step=step)
                assert prefix == str(tmp_path / "m-4")

    @pytest.mark.parametrize("name", [None, 3])
    def test_of_a_reader(self, tmp_path: Path, name: Any) -> None:
        v = Variable(1.0, name="v")
        with Session() as session:
            session.run(v.initializer)
            reader = CheckpointReader(Saver().save(session, str(tmp_path / "m")) or "")
        for method in (reader.get_tensor, reader.has_tensor, reader.shape):
            with pytest.raises(errors.InvalidTypeError, match=f"must be text, got {name}"):
                method(name)
        assert reader.get_tensor(b"v") == 1.0
        assert reader.has_tensor(b"v") and not reader.has_tensor(b"\xff")
        assert reader.shape(b"v") == ()


@pytest.mark.parametrize("options", [{}, {"builder": BundleSaverBuilder}, {"asynchronous": True}])
@pytest.mark.parametrize("absolute", [False, True])
def test_a_path_may_end_in_no_name(
    options: dict[str, Any], absolute: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = {key: value() if callable(value) else value for key, value in options.items()}
    v = Variable(1.0)
    saver, above = Saver(max_to_keep=2, **given), f"{tmp_path}/" if absolute else ""
    with Session() as session:
        session.run(v.initializer)
        for step, value in ((None, 2.0), (7, 3.0), (None, 4.0), (8, 5.0), (None, 6.0)):
            session.run(state_ops.assign(v, value))
            prefix = saver.save(session, f"{above}kept/", step)
        if options.get("asynchronous"):
            saver.wait_until_finished()
            assert prefix == f"{tmp_path}/kept/"
        else:
            assert prefix == f"{above}kept/"
        session.run(v.initializer)
        latest = latest_checkpoint(f"{above}kept")
        assert latest is not None and latest.endswith("/")
        saver.restore(session, latest)
        assert session.run(v) == 6.0
        saver.restore(session, f"{above}kept/-8")
        assert session.run(v) == 5.0
    assert [name for name in names(tmp_path / "kept") if "index" in name] == ["-8.index", ".index"]
    assert len([name for name in names(tmp_path / "kept") if ".data-" in name]) == 2


def test_a_finalized_graph_is_serialized_once(tmp_path: Path) -> None:
    class Counting(Saver):
        num_exports = 0

        def export_meta_graph(self, *args: Any, **kwargs: Any) -> proto.MetaGraphDef:
            self.num_exports += 1
            return super().export_meta_graph(*args, **kwargs)

    with Graph().as_default() as graph, Session() as session:
        v = Variable(1.0)
        saver = Counting()
        session.run(v.initializer)
        for expected in (1, 2):  # nodes may be added between the saves
            saver.save(session, str(tmp_path / "open"), expected)
            assert saver.num_exports == expected
        graph.finalize()
        for step in (1, 2):
            saver.save(session, str(tmp_path / "final"), step)
        assert saver.num_exports == 3
    contents = [(tmp_path / f"final-{step}.meta").read_bytes() for step in (1, 2)]
    assert contents[0] == contents[1] == (tmp_path / "open-2.meta").read_bytes()

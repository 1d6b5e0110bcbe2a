"""Checkpoints of objects: tracked attributes, names and restored values."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_tensor import errors


@pytest.fixture(autouse=True)
def graph() -> wf.Graph:
    with wf.Graph().as_default() as made:
        yield made


@pytest.fixture
def session(graph: wf.Graph) -> wf.Session:
    with wf.Session(graph=graph) as made:
        yield made


def _variable(name: str, value: float, **more: Any) -> Any:
    return wf.get_variable(name, [], initializer=wf.constant_initializer(value), **more)


def _model(scale: float = 1.0) -> dict[str, Any]:
    """Objects of all kinds; `scale` is the initial value of the variables."""
    v = _variable("v", scale)
    w = _variable("w", scale, use_resource=True)
    layer = wf.layers.Dense(2, kernel_initializer=wf.constant_initializer(scale))
    layer(wf.ones([1, 3]))
    optimizer = wf.train.AdamOptimizer(0.5)
    train = optimizer.minimize(v * v + w * w, var_list=[v, w])
    inner = wf.train.Checkpoint(w=w, layer=layer)
    root = wf.train.Checkpoint(v=v, optimizer=optimizer, parts=[inner, {"a.b/c": w}])
    return {"v": v, "w": w, "layer": layer, "train": train, "root": root}


NAMES = [
    "_CHECKPOINTABLE_OBJECT_GRAPH",
    *(
        f"{path}/.ATTRIBUTES/VARIABLE_VALUE"
        for path in (
            "optimizer/beta1_power",
            "optimizer/beta2_power",
            "parts/0/layer/bias",
            "parts/0/layer/kernel",
            "parts/0/w",
            "parts/0/w/.OPTIMIZER_SLOT/optimizer/m",
            "parts/0/w/.OPTIMIZER_SLOT/optimizer/v",
            "save_counter",
            "v",
            "v/.OPTIMIZER_SLOT/optimizer/m",
            "v/.OPTIMIZER_SLOT/optimizer/v",
        )
    ),
]


class TestRoundTrip:
    def test_everything_comes_back_in_another_graph(
        self, session: wf.Session, tmp_path: Path
    ) -> None:
        model = _model()
        session.run(wf.global_variables_initializer())
        session.run(model["train"])
        names = [v.name for v in wf.global_variables()]
        wanted = session.run(wf.global_variables())
        prefix = model["root"].save(str(tmp_path / "ckpt"))
        assert prefix == str(tmp_path / "ckpt-1") == wf.train.latest_checkpoint(str(tmp_path))
        assert [name for name, _ in wf.train.list_variables(prefix)] == NAMES
        assert model["root"].save(str(tmp_path / "ckpt")).endswith("-2")
        with wf.Graph().as_default(), wf.Session() as other:
            model = _model(scale=7.0)
            assert [v.name for v in wf.global_variables()] == names
            status = model["root"].restore(prefix)
            status.assert_consumed().assert_nontrivial_match().expect_partial()
            status.run_restore_ops()
            np.testing.assert_array_equal(other.run(model["layer"].kernel), np.ones((3, 2)))
            for got, want in zip(other.run(wf.global_variables()), wanted, strict=True):
                np.testing.assert_array_equal(got, want)
            assert other.run(model["root"].save_counter) == 1

    def test_saving_again_adds_no_nodes(self, session: wf.Session, tmp_path: Path) -> None:
        root = wf.train.Checkpoint(v=_variable("v", 1.0))
        session.run(wf.global_variables_initializer())
        for k in range(3):
            path = root.write(str(tmp_path / f"c{k}"))
            size = size if k else len(session.graph.nodes)  # noqa: F821 - of the first round
        assert len(session.graph.nodes) == size
        root.u = _variable("u", 2.0)
        session.run(root.u.initializer)
        path = root.write(str(tmp_path / "more"))
        assert wf.train.load_variable(path, "u/.ATTRIBUTES/VARIABLE_VALUE") == 2.0
        assert wf.train.latest_checkpoint(str(tmp_path)) is None

    def test_state_of_python(self, session: wf.Session, tmp_path: Path) -> None:
        class Count(wf.train.experimental.PythonState):
            def __init__(self) -> None:
                self.number = 0

            def serialize(self) -> str:
                return str(self.number)

            def deserialize(self, string_value: bytes) -> None:
                self.number = int(string_value)

        count = Count()
        root = wf.train.Checkpoint(count=count)
        paths = []
        for number in (3, 4):
            count.number = number
            paths.append(root.save(str(tmp_path / "c")))
        root.restore(paths[0])
        assert count.number == 3
        late = wf.train.Checkpoint()
        late.restore(paths[1])
        late.count = other = Count()
        assert other.number == 4

    def test_partitioned_variables_and_iterators(self, session: wf.Session, tmp_path: Path) -> None:
        parts = wf.get_variable(
            "p", [4, 2], initializer=wf.ones_initializer(), partitioner=wf.fixed_size_partitioner(2)
        )
        iterator = wf.data.Dataset.range(5).make_initializable_iterator()
        element = iterator.get_next()
        place = wf.data.experimental.make_saveable_from_iterator(iterator)
        root = wf.train.Checkpoint(p=parts, place=place)
        session.run([wf.global_variables_initializer(), iterator.initializer])
        session.run(element)
        path = root.save(str(tmp_path / "c"))
        session.run([part.assign(part * 0.0) for part in parts])
        session.run(element)
        root.restore(path).assert_consumed().run_restore_ops()
        np.testing.assert_array_equal(session.run(parts.as_tensor()), np.ones((4, 2)))
        assert session.run(element) == 1


class Doubling(wf.layers.Layer):
    """Its weight and its inner layer are attributes that begin with "_"."""

    def build(self, input_shape: Any) -> None:
        self._scale = self.add_weight("scale", [], initializer=wf.zeros_initializer())
        self._inner = wf.layers.Dense(1, use_bias=False)

    def call(self, inputs: Any) -> Any:
        return self._inner(inputs * self._scale)


class TestLayers:
    @pytest.mark.parametrize(
        ("make", "names"),
        [
            (lambda: wf.nn.rnn_cell.BasicRNNCell(1), ["bias", "kernel"]),
            (
                lambda: wf.nn.rnn_cell.DropoutWrapper(wf.nn.rnn_cell.BasicRNNCell(1)),
                ["cell/bias", "cell/kernel"],
            ),
            (
                lambda: wf.nn.rnn_cell.MultiRNNCell([wf.nn.rnn_cell.LSTMCell(1, num_proj=1)]),
                ["cell-0/bias", "cell-0/kernel", "cell-0/projection.Skernel"],
            ),
        ],
    )
    def test_the_weights_of_cells(
        self, make: Any, names: list[str], session: wf.Session, tmp_path: Path
    ) -> None:
        cell = make()
        cell(wf.ones([1, 1]), cell.zero_state(1, wf.float32))
        checkpoint = wf.train.Checkpoint(cell=cell)
        session.run([v.assign(wf.fill(v.shape, 4.0)) for v in cell.variables])
        prefix = checkpoint.save(str(tmp_path / "ckpt"))
        kept = [name for name, _ in wf.train.list_variables(prefix) if name.startswith("cell/")]
        assert kept == [f"cell/{name}/.ATTRIBUTES/VARIABLE_VALUE" for name in names]
        session.run([v.assign(wf.zeros(v.shape)) for v in cell.variables])
        checkpoint.restore(prefix).assert_consumed().run_restore_ops()
        assert all((session.run(v) == 4).all() for v in cell.variables)

    def test_what_a_layer_of_a_program_keeps_to_itself(
        self, session: wf.Session, tmp_path: Path
    ) -> None:
        layer = Doubling()
        layer(wf.ones([1, 2]))
        session.run(wf.global_variables_initializer())
        prefix = wf.train.Checkpoint(layer=layer).save(str(tmp_path / "ckpt"))
        assert [name.split("/.A")[0] for name, _ in wf.train.list_variables(prefix)][1:] == [
            "layer/_inner/kernel",
            "layer/scale",
            "save_counter",
        ]


class TestMatching:
    def test_differences_are_named(self, session: wf.Session, tmp_path: Path) -> None:
        v, w = _variable("v", 1.0), _variable("w", 2.0)
        session.run([v.initializer, w.initializer])
        path = wf.train.Checkpoint(v=v, extra={"w": w}).save(str(tmp_path / "c"))
        status = wf.train.Checkpoint(v=v, new=w).restore(path)
        with pytest.raises(
            AssertionError, match=r"does not use .*: \(root\)\.extra, \(root\)\.extra\.w"
        ):
            status.assert_consumed()
        with pytest.raises(errors.NotFoundError, match="lacks variables of the program: new"):
            status.assert_existing_objects_matched()
        session.run([v.assign(9.0), w.assign(9.0)])
        status.initialize_or_restore()
        assert session.run([v, w]) == [1.0, 2.0]
        nothing = wf.train.Checkpoint(other=w).restore(path)
        wf.train.Checkpoint().restore(path).assert_existing_objects_matched()
        with pytest.raises(AssertionError, match="lacks"):
            nothing.assert_existing_objects_matched()

    def test_nothing_of_it(self, session: wf.Session, tmp_path: Path) -> None:
        v = _variable("v", 1.0)
        session.run(v.initializer)
        path = wf.train.Checkpoint(v=v).write(str(tmp_path / "c"))
        other = wf.train.Checkpoint(w=v).restore(path)
        with pytest.raises(AssertionError, match="none of the program's objects"):
            other.assert_nontrivial_match()

    def test_what_comes_later_begins_with_the_checkpoint(
        self, session: wf.Session, tmp_path: Path
    ) -> None:
        v = _variable("v", 5.0)
        session.run(v.initializer)
        path = wf.train.Checkpoint(inner=[v]).write(str(tmp_path / "c"))
        root = wf.train.Checkpoint()
        status = root.restore(path)
        late = _variable("late", 0.0)
        root.inner = [late]
        session.run(late.initializer)
        assert session.run(late) == 5.0
        session.run(late.assign(1.0))
        status.assert_consumed().run_restore_ops()
        assert session.run(late) == 5.0

    def test_without_a_checkpoint_variables_are_initialized(self, session: wf.Session) -> None:
        v = _variable("v", 5.0)
        status = wf.train.Checkpoint(v=v).restore(None)
        status.initialize_or_restore()
        assert session.run(v) == 5.0
        with pytest.raises(AssertionError, match="without a checkpoint"):
            status.assert_consumed()

    def test_what_cannot_be_followed(self) -> None:
        with pytest.raises(errors.InvalidTypeError, match="x must be a variable"):
            wf.train.Checkpoint(x=3)
        with pytest.raises(errors.FailedPreconditionError, match="needs a session"):
            wf.train.Checkpoint(v=_variable("v", 1.0)).save("./never")
        with pytest.raises(errors.NotFoundError, match="no valid checkpoint"):
            wf.train.Checkpoint().restore("./nowhere")


class TestNames:
    def test_of_a_saver_are_found(self, session: wf.Session, tmp_path: Path) -> None:
        v, w = _variable("v", 1.0), _variable("w", 2.0)
        session.run(wf.global_variables_initializer())
        path = wf.train.Saver([v]).save(session, str(tmp_path / "s"))
        root = wf.train.Checkpoint(a=v)
        session.run(v.assign(9.0))
        status = root.restore(path)
        status.initialize_or_restore()
        assert session.run([v, root.save_counter]) == [1.0, 0]
        with pytest.raises(AssertionError, match="lacks variables of the program: w"):
            wf.train.Checkpoint(w=w).restore(path).assert_existing_objects_matched()

    def test_of_objects_are_found_by_a_saver(self, session: wf.Session, tmp_path: Path) -> None:
        v, w = _variable("v", 1.0), _variable("w", 2.0)
        session.run([v.initializer, w.initializer])
        saver = wf.train.Saver([v, w])
        path = wf.train.Checkpoint(a=v, b=[w]).save(str(tmp_path / "c"))
        session.run([v.assign(9.0), w.assign(9.0)])
        saver.restore(session, path)
        assert session.run([v, w]) == [1.0, 2.0]
        other = wf.train.Saver([_variable("u", 0.0)])
        with pytest.raises(errors.NotFoundError, match="lacks 1 of the requested tensors"):
            other.restore(session, path)


class TestManager:
    def test_keeps_the_last_ones(self, session: wf.Session, tmp_path: Path) -> None:
        here = tmp_path / "here"
        here.mkdir()
        root = wf.train.Checkpoint(v=_variable("v", 1.0))
        session.run(root.v.initializer)
        other = root.save(str(here / "other"))
        manager = wf.train.CheckpointManager(root, str(here), max_to_keep=2)
        assert manager.latest_checkpoint is None and manager.checkpoints == []
        made = [manager.save() for _ in range(3)] + [manager.save(checkpoint_number=9)]
        assert [Path(path).name for path in made] == ["ckpt-2", "ckpt-3", "ckpt-4", "ckpt-9"]
        assert manager.checkpoints == made[2:] and manager.latest_checkpoint == made[3]
        assert [wf.train.checkpoint_exists(path) for path in made] == [False, False, True, True]
        assert wf.train.checkpoint_exists(other)
        again = wf.train.CheckpointManager(root, str(here), max_to_keep=2)
        assert again.checkpoints == made[2:]
        moved = tmp_path / "moved"
        shutil.move(here, moved)
        there = wf.train.CheckpointManager(root, str(moved), max_to_keep=1)
        assert [Path(path).name for path in there.checkpoints] == ["ckpt-4", "ckpt-9"]
        there.save()
        assert len(there.checkpoints) == 1

    def test_restores_or_initializes(self, session: wf.Session, tmp_path: Path) -> None:
        root = wf.train.Checkpoint(v=_variable("v", 1.0))
        manager = wf.train.CheckpointManager(root, str(tmp_path), max_to_keep=None)
        assert manager.restore_or_initialize() is None
        session.run(root.v.assign(3.0))
        path = manager.save()
        session.run(root.v.assign(4.0))
        assert manager.restore_or_initialize() == path and session.run(root.v) == 3.0

    def test_wrong_arguments(self, tmp_path: Path) -> None:
        root = wf.train.Checkpoint()
        with pytest.raises(errors.InvalidTypeError, match="must be a Checkpoint"):
            wf.train.CheckpointManager("x", str(tmp_path), 1)  # type: ignore[arg-type]
        with pytest.raises(errors.InvalidArgumentError, match="max_to_keep"):
            wf.train.CheckpointManager(root, str(tmp_path), 0)


def test_new_checkpoints_are_iterated_over(session: wf.Session, tmp_path: Path) -> None:
    root = wf.train.Checkpoint(v=_variable("v", 1.0))
    session.run(root.v.initializer)
    prefix = str(tmp_path / "c")
    calls: list[int] = []

    def more() -> bool:
        calls.append(len(calls))
        root.save(prefix)
        return len(calls) == 3

    seen = list(wf.train.checkpoints_iterator(str(tmp_path), timeout=0.0, timeout_fn=more))
    assert seen == [f"{prefix}-1", f"{prefix}-2"]


def test_progress_is_seen_unless_a_program_says_otherwise(
    session: wf.Session, tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    v = _variable("v", 1.0)
    session.run(v.initializer)
    saver = wf.train.Saver()
    path = saver.save(session, str(tmp_path / "model.ckpt"), global_step=300)
    root, own = logging.getLogger(), logging.getLogger("weft")
    saver.restore(session, path)
    assert capsys.readouterr().err == ""  # here pytest has set up logging
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(own, "handlers", [])
    saver.restore(session, path)
    assert capsys.readouterr().err == f"Restored parameters from {path}\n"
    monkeypatch.setattr(own, "level", logging.WARNING)
    saver.restore(session, path)
    assert capsys.readouterr().err == ""

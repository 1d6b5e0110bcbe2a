"""Slots and averages of partitioned variables: TensorFlow's keys, restored into any partition."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import weft as wf

TRAINERS: dict[str, Callable[[], Any]] = {
    "Adadelta": lambda: wf.train.AdadeltaOptimizer(0.1),
    "Adagrad": lambda: wf.train.AdagradOptimizer(0.1),
    "AdagradDA": lambda: wf.train.AdagradDAOptimizer(0.1, wf.train.get_or_create_global_step()),
    "Adam": lambda: wf.train.AdamOptimizer(0.1),
    "Ftrl": lambda: wf.train.FtrlOptimizer(0.1),
    "Momentum": lambda: wf.train.MomentumOptimizer(0.1, 0.9),
    "ProximalAdagrad": lambda: wf.train.ProximalAdagradOptimizer(0.1),
    "RMSProp": lambda: wf.train.RMSPropOptimizer(0.1),
    "RMSPropCentered": lambda: wf.train.RMSPropOptimizer(0.1, centered=True),
    "AdaMax": lambda: wf.contrib.opt.AdaMaxOptimizer(0.1),
    "AdamW": lambda: wf.contrib.opt.AdamWOptimizer(0.01, 0.1),
    "LazyAdam": lambda: wf.contrib.opt.LazyAdamOptimizer(0.1),
    "MomentumW": lambda: wf.contrib.opt.MomentumWOptimizer(0.01, 0.1, 0.9),
    "Nadam": lambda: wf.contrib.opt.NadamOptimizer(0.1),
    "Averaged": lambda: wf.contrib.opt.MovingAverageOptimizer(wf.train.AdamOptimizer(0.1)),
}
PARTS = (4, 2, 1)


@pytest.fixture(autouse=True)
def graph() -> Iterator[wf.Graph]:
    with wf.Graph().as_default() as graph:
        yield graph


@pytest.fixture(params=[False, True], ids=["reference", "resource"])
def use_resource(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


class Model(NamedTuple):
    weights: Any
    optimizer: Any
    step: Any
    average: wf.train.ExponentialMovingAverage

    @property
    def parts(self) -> list[Any]:
        return list(self.weights) if hasattr(self.weights, "_get_partitions") else [self.weights]

    def slot(self, session: wf.Session, name: str) -> Any:
        """The slot of the whole variable."""
        slots = [self.optimizer.get_slot(part, name) for part in self.parts]
        return np.concatenate(session.run(slots))

    def averages(self, session: wf.Session) -> Any:
        return np.concatenate(session.run([self.average.average(part) for part in self.parts]))


def build(parts: int, trainer: str = "Adagrad", use_resource: bool = False) -> Model:
    with wf.variable_scope("layer"):
        weights = wf.get_variable(
            "w",
            [10, 3],
            initializer=wf.ones_initializer(),
            partitioner=wf.fixed_size_partitioner(parts) if parts > 1 else None,
            use_resource=use_resource,
        )
    scale = wf.constant(np.arange(1.0, 31.0).reshape(10, 3), wf.float32)
    loss = wf.reduce_sum(scale * wf.square(wf.convert_to_tensor(weights)))
    optimizer = TRAINERS[trainer]()
    step = optimizer.minimize(loss, wf.train.get_or_create_global_step())
    average = wf.train.ExponentialMovingAverage(0.5)
    with wf.control_dependencies([step]):
        model = Model(weights, optimizer, step, average)
        return model._replace(step=average.apply(model.parts))


def train_and_save(path: Path, *arguments: Any) -> str:
    with wf.Graph().as_default(), wf.Session() as session:
        model = build(*arguments)
        session.run(wf.global_variables_initializer())
        session.run(model.step)
        return str(wf.train.Saver().save(session, str(path)))


def after_another_step(path: str, *arguments: Any) -> Any:
    with wf.Graph().as_default(), wf.Session() as session:
        model = build(*arguments)
        wf.train.Saver().restore(session, path)
        session.run(model.step)
        return session.run(wf.convert_to_tensor(model.weights)), model.averages(session)


def shapes(path: str) -> dict[str, list[int]]:
    return dict(wf.train.NewCheckpointReader(path).get_variable_to_shape_map())


def build_all(parts: int, use_resource: bool) -> dict[str, Model]:
    models = {}
    for trainer in TRAINERS:
        with wf.variable_scope(trainer):
            models[trainer] = build(parts, trainer, use_resource)
    return models


def test_any_partition_writes_and_reads_the_same_tensors(
    use_resource: bool, tmp_path: Path
) -> None:
    saved = {}
    for parts in (1, 4):
        with wf.Graph().as_default(), wf.Session() as session:
            models = build_all(parts, use_resource)
            session.run(wf.global_variables_initializer())
            session.run([model.step for model in models.values()])
            saved[parts] = wf.train.Saver().save(session, str(tmp_path / f"m{parts}"))
    assert shapes(saved[1]) == shapes(saved[4])
    results = []
    for path, parts in ((saved[1], 1), (saved[1], 4), (saved[4], 2)):
        with wf.Graph().as_default(), wf.Session() as session:
            models = build_all(parts, use_resource)
            wf.train.Saver().restore(session, path)
            session.run([model.step for model in models.values()])
            names = {name: wf.convert_to_tensor(m.weights) for name, m in models.items()}
            results.append(
                (session.run(names), {k: m.averages(session) for k, m in models.items()})
            )
    for weights, averages in results[1:]:
        for trainer in TRAINERS:
            np.testing.assert_allclose(
                weights[trainer], results[0][0][trainer], 1e-6, err_msg=trainer
            )
            np.testing.assert_allclose(
                averages[trainer], results[0][1][trainer], 1e-6, err_msg=trainer
            )


def test_names_and_shapes_are_those_of_tensorflow(tmp_path: Path) -> None:
    found = shapes(train_and_save(tmp_path / "m", 4, "Adam"))
    assert found == {
        "beta1_power": [],
        "beta2_power": [],
        "global_step": [],
        "layer/w": [10, 3],
        "layer/w/Adam": [10, 3],
        "layer/w/Adam_1": [10, 3],
        "layer/w/ExponentialMovingAverage": [10, 3],
    }


def test_slots_of_an_optimizer_in_a_scope_are_one_tensor(tmp_path: Path) -> None:
    weights = wf.get_variable("w", [4, 2], partitioner=wf.fixed_size_partitioner(2))
    with wf.variable_scope("training"):
        wf.train.AdagradOptimizer(0.1).minimize(wf.reduce_sum(wf.convert_to_tensor(weights)))
    with wf.Session() as session:
        session.run(wf.global_variables_initializer())
        path = wf.train.Saver().save(session, str(tmp_path / "m"))
    assert shapes(path) == {"w": [4, 2], "training/w/Adagrad": [4, 2]}


def test_slots_of_other_shapes_follow_the_leading_axes() -> None:
    from weft_autodiff.optimizers import slot_creator

    _, part = wf.get_variable("w", [4, 2], partitioner=wf.fixed_size_partitioner(2))
    ones = wf.ones_initializer()
    row, count = (
        slot_creator.create_slot_with_initializer(part, ones, shape, wf.float32, name)
        for shape, name in (([2], "row"), ([], "count"))
    )
    info = row._get_save_slice_info()
    assert (info.full_name, info.spec) == ("w/row", "4 2,2")
    assert count._get_save_slice_info() is None


# ------------------------------------------------------------------------ earlier checkpoints


def save_as_before(path: Path, parts: int) -> str:
    """Write a checkpoint like earlier versions: the slot of each part is a separate tensor."""
    with wf.Graph().as_default(), wf.Session() as session:
        model = build(parts)
        session.run(wf.global_variables_initializer())
        session.run(model.step)
        named = {"layer/w": model.parts, "global_step": wf.train.get_global_step()}
        slots = [model.optimizer.get_slot(part, "accumulator") for part in model.parts]
        averages = [model.average.average(part) for part in model.parts]
        named |= {variable.op.name: variable for variable in (*slots, *averages)}
        return str(wf.train.Saver(named).save(session, str(path)))


@pytest.mark.parametrize("before", [2, 4])
def test_earlier_checkpoints_restore_into_any_partition(before: int, tmp_path: Path) -> None:
    path = save_as_before(tmp_path / "old", before)
    assert "layer/w/part_1/Adagrad" in shapes(path)
    expected = after_another_step(train_and_save(tmp_path / "new", 1), 1)
    for parts in (4, 3, 2, 1):
        np.testing.assert_allclose(after_another_step(path, parts), expected, rtol=1e-6)


def test_a_reader_finds_slots_of_earlier_checkpoints(tmp_path: Path) -> None:
    reader = wf.train.NewCheckpointReader(save_as_before(tmp_path / "old", 4))
    assert reader.has_tensor("layer/w/Adagrad") and not reader.has_tensor("layer/w/Adam")
    assert reader.get_tensor("layer/w/Adagrad").shape == (10, 3)
    with wf.Graph().as_default(), wf.Session() as session:
        slot = wf.get_variable("slot", [10, 3])
        wf.train.init_from_checkpoint(reader.prefix, {"layer/w/Adagrad": slot})
        session.run(slot.initializer)
        assert session.run(slot)[9, 2] == pytest.approx(0.1 + 60.0**2)


def test_variables_made_in_parts_had_other_names(tmp_path: Path) -> None:
    def parts_of(count: int) -> list[Any]:
        ones = wf.ones_initializer()
        return wf.create_partitioned_variables([6, 2], [count, 1], ones, name="w")

    with wf.Graph().as_default(), wf.Session() as session:
        parts = parts_of(3)
        optimizer = wf.train.AdagradOptimizer(0.1)
        step = optimizer.minimize(wf.reduce_sum([wf.reduce_sum(3 * part) for part in parts]))
        session.run(wf.global_variables_initializer())
        session.run(step)
        named = {"w/w": parts}
        for i, part in enumerate(parts):
            named[f"w/w/part_{i}/Adagrad"] = optimizer.get_slot(part, "accumulator")
        path = wf.train.Saver(named).save(session, str(tmp_path / "m"))
    with wf.Graph().as_default(), wf.Session() as session:
        parts = parts_of(2)
        optimizer = wf.train.AdagradOptimizer(0.1)
        optimizer.minimize(wf.reduce_sum([wf.reduce_sum(part) for part in parts]))
        wf.train.Saver().restore(session, path)
        slots = [optimizer.get_slot(part, "accumulator") for part in parts]
        assert np.allclose(session.run(slots), 9.1) and (session.run(parts[0]) < 1).all()


def test_parts_of_other_shapes_are_no_slot(tmp_path: Path) -> None:
    whole, short = wf.Variable(np.zeros([4, 2])), wf.Variable(np.zeros([3, 2]))
    with wf.Session() as session:
        session.run(wf.global_variables_initializer())
        saver = wf.train.Saver({"w": whole, "w/part_0/Adagrad": short})
        path = saver.save(session, str(tmp_path / "m"))
        with pytest.raises(wf.errors.NotFoundError, match="w/Adagrad"):
            wf.train.Saver({"w/Adagrad": whole}).restore(session, path)


# ------------------------------------------------------------------------ other ways to restore


def test_averages_restore_in_place_of_a_variable_of_other_parts(tmp_path: Path) -> None:
    path = train_and_save(tmp_path / "m", 4)
    expected = wf.train.load_variable(path, "layer/w/ExponentialMovingAverage")
    for parts in (1, 2, 4):
        with wf.Graph().as_default(), wf.Session() as session:
            model = build(parts)
            names = model.average.variables_to_restore()
            assert sorted(names)[1:] == [
                "layer/w/Adagrad",
                "layer/w/ExponentialMovingAverage",
            ]
            wf.train.Saver(names).restore(session, path)
            value = session.run(wf.convert_to_tensor(model.weights))
            np.testing.assert_array_equal(value, expected)


def test_averages_restore_without_being_computed(tmp_path: Path) -> None:
    path = train_and_save(tmp_path / "m", 4)
    with wf.variable_scope("layer"), wf.Session() as session:
        weights = wf.get_variable("w", [10, 3], partitioner=wf.fixed_size_partitioner(3))
        average = wf.train.ExponentialMovingAverage(0.5)
        wf.train.Saver(average.variables_to_restore()).restore(session, path)
        expected = wf.train.load_variable(path, "layer/w/ExponentialMovingAverage")
        np.testing.assert_array_equal(session.run(wf.convert_to_tensor(weights)), expected)


def test_a_swapping_saver_swaps_parts(tmp_path: Path) -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        model = build(4, "Averaged")
        session.run(wf.global_variables_initializer())
        session.run(model.step)
        path = model.optimizer.swapping_saver().save(session, str(tmp_path / "m"))
        averages = np.concatenate(session.run([model.optimizer.average(p) for p in model.parts]))
    np.testing.assert_array_equal(wf.train.load_variable(path, "layer/w"), averages)
    with wf.Graph().as_default(), wf.Session() as session:
        model = build(2, "Averaged")
        model.optimizer.swapping_saver().restore(session, path)
        restored = np.concatenate(session.run([model.optimizer.average(p) for p in model.parts]))
        np.testing.assert_array_equal(restored, averages)


def test_part_of_a_variable_under_a_name_of_its_own(tmp_path: Path) -> None:
    first, second = wf.get_variable("w", [4, 2], partitioner=wf.fixed_size_partitioner(2))
    with wf.Session() as session:
        session.run([first.initializer, second.initializer])
        path = wf.train.Saver({"first": first}).save(session, str(tmp_path / "m"))
        assert shapes(path) == {"first": [2, 2]}
        wf.train.Saver({"first": second}).restore(session, path)
        np.testing.assert_array_equal(*session.run([first, second]))


@pytest.mark.parametrize("parts", PARTS)
def test_a_scope_initializes_slots_of_other_parts(parts: int, tmp_path: Path) -> None:
    path = train_and_save(tmp_path / "m", 4)
    with wf.Session() as session:
        model = build(parts)
        wf.train.init_from_checkpoint(path, {"layer/": "layer/"})
        session.run(wf.global_variables_initializer())
        expected = wf.train.load_variable(path, "layer/w/Adagrad")
        np.testing.assert_array_equal(model.slot(session, "accumulator"), expected)


@pytest.mark.parametrize("parts", PARTS)
def test_warm_start_of_slots_of_other_parts(parts: int, tmp_path: Path) -> None:
    path = train_and_save(tmp_path / "m", 4)
    with wf.Session() as session:
        model = build(parts)
        wf.train.warm_start(path, [".*Adagrad"])
        session.run(wf.global_variables_initializer())
        expected = wf.train.load_variable(path, "layer/w/Adagrad")
        np.testing.assert_array_equal(model.slot(session, "accumulator"), expected)


@pytest.mark.parametrize("as_list", [False, True])
def test_objects_have_the_slots_of_parts(as_list: bool, tmp_path: Path) -> None:
    def checkpoint_of(model: Model) -> wf.train.Checkpoint:
        weights = model.parts if as_list else model.weights
        return wf.train.Checkpoint(weights=weights, optimizer=model.optimizer)

    with wf.Graph().as_default(), wf.Session() as session:
        model = build(4)
        session.run(wf.global_variables_initializer())
        session.run(model.step)
        path = checkpoint_of(model).save(str(tmp_path / "m"), session=session)
        expected = model.slot(session, "accumulator")
    for parts in (4,) if as_list else PARTS:
        with wf.Graph().as_default(), wf.Session() as session:
            model = build(parts)
            status = checkpoint_of(model).restore(path)
            status.assert_consumed().run_restore_ops(session)
            np.testing.assert_array_equal(model.slot(session, "accumulator"), expected)
            if not as_list:  # a Saver finds the variables by their own names
                session.run(wf.global_variables_initializer())
                chosen = [*model.parts, *model.optimizer.variables()]
                wf.train.Saver(chosen).restore(session, path)
                np.testing.assert_array_equal(model.slot(session, "accumulator"), expected)


def test_meta_graphs_know_the_parts_of_slots(tmp_path: Path) -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        build(4)
        session.run(wf.global_variables_initializer())
        path = wf.train.Saver().save(session, str(tmp_path / "m"))
    with wf.Graph().as_default(), wf.Session() as session:
        wf.train.import_meta_graph(path + ".meta").restore(session, path)
        saved = wf.train.Saver().save(session, str(tmp_path / "again"))
    assert shapes(saved) == shapes(path)


def test_an_exported_scope_names_its_parts_without_itself(tmp_path: Path) -> None:
    with wf.Graph().as_default(), wf.variable_scope("layer"):
        wf.get_variable("w", [10, 3], partitioner=wf.fixed_size_partitioner(2))
        message = wf.train.export_meta_graph(export_scope="layer")
    with wf.Graph().as_default(), wf.Session() as session:
        wf.train.import_meta_graph(message, import_scope="copy")
        session.run(wf.global_variables_initializer())
        path = wf.train.Saver().save(session, str(tmp_path / "m"))
    assert shapes(path) == {"copy/w": [10, 3]}


def test_values_from_a_checkpoint_by_contrib(tmp_path: Path) -> None:
    path = train_and_save(tmp_path / "m", 4)
    with wf.Graph().as_default(), wf.Session() as session:
        model = build(2)
        session.run(wf.global_variables_initializer())
        assign, feeds = wf.contrib.framework.assign_from_checkpoint(path, wf.global_variables())
        session.run(assign, feeds)
        expected = wf.train.load_variable(path, "layer/w/Adagrad")
        np.testing.assert_array_equal(model.slot(session, "accumulator"), expected)

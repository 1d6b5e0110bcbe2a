"""Gradients that do not fit into an accelerator's memory: values wait, or are computed again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from weft_accelerator import Limits, plug_in
from weft_accelerator.memory import DeviceMemory

import weft as wf
from weft import errors

LAYERS, SHAPE = 40, [512, 128]
VALUE = 512 * 128 * 4


@pytest.fixture(autouse=True)
def graph() -> Iterator[None]:
    with wf.Graph().as_default():
        yield
    plug_in()


def gradient_in(room: int, mode: str, **limits: float) -> tuple[Any, int, set[str]]:
    """The gradient of a chain of layers, the peak in values, and the stages' ops."""
    (board,) = plug_in(1, Limits(memory=room * VALUE, **limits))
    options = wf.GraphOptions()
    rewrites = options.rewrite_options
    rewrites.memory_optimization = rewrites.MemOptType.Value(mode)
    config = wf.ConfigProto(device_count={"ACCEL": 1}, graph_options=options)
    with wf.Graph().as_default(), wf.Session(config=config) as session:
        x = wf.placeholder(wf.float32, SHAPE)
        with wf.device("/device:ACCEL:0"):
            y = x
            for _ in range(LAYERS):
                y = wf.sin(y)
            (gradient,) = wf.gradients(y, x)
        names = {
            n.name for stage in session.explain(gradient, [x]).stages.values() for n in stage.node
        }
        value = session.run(gradient, {x: np.linspace(-1, 1, 512 * 128).reshape(SHAPE)})
        return value, board.memory.statistics().peak_bytes_in_use // VALUE, names


@pytest.mark.parametrize("room", [32, 12])
@pytest.mark.parametrize(
    "link",
    [{}, {"kernel_seconds": 1e-3, "bandwidth": VALUE / 4e-3, "latency": 2e-3}],
    ids=["fast", "slow"],
)
def test_values_wait_on_the_host(room: int, link: dict[str, float]) -> None:
    wanted, peak, _ = gradient_in(1000, "NO_MEM_OPT")
    assert peak >= LAYERS
    value, peak, names = gradient_in(room, "SWAPPING_HEURISTICS", **link)
    np.testing.assert_array_equal(value, wanted)
    assert peak <= room
    assert any(name.endswith("/swapped_out") for name in names)
    assert not any(name.endswith("/recomputed") for name in names)


def test_without_it_there_is_no_room() -> None:
    with pytest.raises(errors.ResourceExhaustedError, match="ACCEL:0"):
        gradient_in(24, "NO_MEM_OPT")


def test_a_limit_alone_is_enough() -> None:
    wanted, _, _ = gradient_in(1000, "NO_MEM_OPT")
    value, peak, _ = gradient_in(24, "DEFAULT_MEM_OPT")
    np.testing.assert_array_equal(value, wanted)
    assert peak <= 24


def test_each_device_has_a_limit_of_its_own() -> None:
    """Two halves that fit where they are; only one of them is computed again where it does not."""

    def names_in(rooms: tuple[int, int]) -> set[str]:
        for index, room in enumerate(rooms):
            accelerators[index].memory = DeviceMemory(f"accelerator {index}", room * VALUE)
        config = wf.ConfigProto(device_count={"ACCEL": 2})
        with wf.Session(config=config) as session:
            stages = session.explain(gradient, [x]).stages.values()
            result.append(session.run(gradient, {x: value}))
        return {n.name for stage in stages for n in stage.node if n.name.endswith("/recomputed")}

    accelerators = plug_in(2)
    result: list[Any] = []
    value = np.linspace(-1, 1, 512 * 128).reshape(SHAPE)
    x = wf.placeholder(wf.float32, SHAPE)
    y = x
    for half in range(2):
        with wf.device(f"/device:ACCEL:{half}"), wf.name_scope(f"half{half}"):
            for _ in range(LAYERS):
                y = wf.sin(y)
    (gradient,) = wf.gradients(y, x)
    assert names_in((1000, 1000)) == set()
    assert names_in((LAYERS + 10, LAYERS + 10)) == set()  # too little for all of it on one
    found = names_in((1000, 24))
    assert found
    assert all(name.startswith("half1/") for name in found)
    for other in result[1:]:
        np.testing.assert_array_equal(other, result[0])


def chain_of(x: Any, layers: int = LAYERS) -> Any:
    with wf.device("/device:ACCEL:0"):
        y = x
        for _ in range(layers):
            y = wf.sin(y)
        (gradient,) = wf.gradients(y, x)
        return gradient


def on_accelerators(count: int = 1) -> Any:
    return wf.Session(config=wf.ConfigProto(device_count={"ACCEL": count}))


VALUES = np.linspace(-1, 1, 512 * 128, dtype=np.float32).reshape(SHAPE)


@pytest.mark.parametrize("callable_", [False, True])
@pytest.mark.parametrize("batches", [[512], [1, 512], [16, 512, 1, 512]], ids=str)
def test_sizes_that_are_not_static_are_those_of_what_is_fed(
    batches: list[int], callable_: bool
) -> None:
    """A step that was planned for less memory is planned again, even if another feed is small."""
    x, other = wf.placeholder(wf.float32, [None, 128]), wf.placeholder(wf.float32, [None])
    results = [chain_of(x), other + 1.0]
    plug_in(1, Limits(memory=24 * VALUE))
    with on_accelerators() as session:
        run = session.make_callable(results, [x, other]) if callable_ else None
        for size in batches:
            value, one = VALUES[:size], np.ones(1, np.float32)
            found, _ = run(value, one) if run else session.run(results, {x: value, other: one})
            assert found.shape == value.shape


def test_sizes_that_follow_from_none_are_those_that_were_measured(tmp_path: Path) -> None:
    count = wf.placeholder(wf.int32, [])
    x = wf.tile(wf.ones([1, 128]), [count, 1])
    gradient = chain_of(x)
    plug_in(1, Limits(memory=1000 * VALUE))
    options = wf.GraphOptions(build_cost_model=1)
    config = wf.ConfigProto(device_count={"ACCEL": 1}, graph_options=options)
    with wf.Session(config=config) as session:
        wanted = session.run(gradient, {count: 512})
        session.cost_model.save(tmp_path / "costs")
    plug_in(1, Limits(memory=24 * VALUE))
    with on_accelerators() as session, pytest.raises(errors.ResourceExhaustedError):
        session.run(gradient, {count: 512})
    with on_accelerators() as session:
        session.cost_model.load(tmp_path / "costs")
        np.testing.assert_array_equal(session.run(gradient, {count: 512}), wanted)


def test_values_that_another_device_uses_late_wait_on_the_host() -> None:
    x = wf.placeholder(wf.float32, SHAPE)
    y, kept = x, []
    with wf.device("/device:ACCEL:0"):
        for _ in range(30):
            y = wf.sin(y)
            kept.append(y)
    with wf.device("/device:ACCEL:1"):
        for value in reversed(kept):
            y = wf.cos(y) + value
    results = []
    for room in (1000, 12):
        boards = plug_in(2, Limits(memory=room * VALUE))
        with on_accelerators(2) as session:
            results.append(session.run(y, {x: VALUES}))
            assert all(b.memory.statistics().peak_bytes_in_use <= room * VALUE for b in boards)
    np.testing.assert_array_equal(*results)


def test_what_is_fed_is_brought_again() -> None:
    inputs = [wf.placeholder(wf.float32, SHAPE) for _ in range(40)]
    with wf.device("/device:ACCEL:0"):
        y = inputs[0]
        for value in inputs:
            y = wf.sin(y + value)
        for _ in range(30):
            y = wf.cos(y)
        for value in inputs:
            y = wf.sin(y * value)
    results = []
    for room in (1000, 28):
        plug_in(1, Limits(memory=room * VALUE))
        with on_accelerators() as session:
            results.append(session.run(y, dict.fromkeys(inputs, VALUES)))
    np.testing.assert_array_equal(*results)


def test_a_value_that_a_loop_takes_stays() -> None:
    x = wf.placeholder(wf.float32, SHAPE)
    kept = []
    with wf.device("/device:ACCEL:0"):
        first = wf.sin(x)
        _, y = wf.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, wf.sin(v) * 1.1), [0, first])
        for _ in range(30):
            y = wf.sin(y)
            kept.append(y)
        for value in reversed(kept):
            y = y + value
        y = y + first
    results = []
    for room in (1000, 20):
        plug_in(1, Limits(memory=room * VALUE))
        with on_accelerators() as session:
            results.append(session.run(y, {x: VALUES}))
    np.testing.assert_array_equal(*results)


def with_noise(layers: int) -> Any:
    """A chain whose noise could be drawn for all layers at once."""
    y = wf.zeros([512, 512])
    for i in range(layers):
        y = wf.tanh(y + wf.random_uniform([512, 512], seed=i))
    return y


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("mode", ["DEFAULT_MEM_OPT", "NO_MEM_OPT"])
def test_what_could_run_ahead_waits_for_room(threads: int, mode: str) -> None:
    """Also on CPUs: 40 values are made, of which 3 are needed at a time."""
    experimental = wf.config.experimental
    (cpu,) = experimental.list_physical_devices("CPU")
    limit = experimental.VirtualDeviceConfiguration(memory_limit=8)
    experimental.set_virtual_device_configuration(cpu, [limit])
    options = wf.GraphOptions()
    rewrites = options.rewrite_options
    rewrites.memory_optimization = rewrites.MemOptType.Value(mode)
    config = wf.ConfigProto(inter_op_parallelism_threads=threads, graph_options=options)
    try:
        wf.set_random_seed(1)
        y = wf.reduce_sum(with_noise(40))
        with wf.Session(config=config) as session:
            for _ in range(3):
                assert np.isfinite(session.run(y))
    finally:
        experimental.set_virtual_device_configuration(cpu, None)


@pytest.mark.parametrize("room", [32, 16])
def test_masks_of_dropout_wait_for_room(room: int) -> None:
    wf.set_random_seed(1)
    x = wf.placeholder(wf.float32, SHAPE)
    with wf.device("/device:ACCEL:0"):
        y = x
        for i in range(30):
            y = wf.nn.dropout(wf.sin(y), rate=0.3, seed=i)
        (gradient,) = wf.gradients(y, x)
    results = []
    for memory in (1000, room):
        plug_in(1, Limits(memory=memory * VALUE))
        with on_accelerators() as session:
            results.append(session.run(gradient, {x: VALUES}))
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("device", ["/device:CPU:0", "/device:ACCEL:0"])
def test_what_leads_to_an_enqueue_does_not_wait_for_the_dequeue(device: str) -> None:
    """Both are in one step, where the dequeue's part comes first and fills its room."""
    shape, room = [512, 512], 8 << 20
    experimental = wf.config.experimental
    (cpu,) = experimental.list_physical_devices("CPU")
    limit = experimental.VirtualDeviceConfiguration(memory_limit=8)
    queue = wf.FIFOQueue(10, [wf.float32], [shape])
    taken = queue.dequeue()
    count = wf.placeholder(wf.float32, [])
    with wf.device(device):
        y, z = taken, wf.ones(shape) * count
        for _ in range(10):
            y = wf.sin(y) + wf.cos(y)
            z = wf.sin(z) + wf.random_uniform(shape)
        total = wf.reduce_sum(y)
    enqueue = queue.enqueue(z)
    plug_in(1, Limits(memory=room))
    if "CPU" in device:
        experimental.set_virtual_device_configuration(cpu, [limit])
    config = wf.ConfigProto(
        device_count={"ACCEL": 1}, inter_op_parallelism_threads=2, operation_timeout_in_ms=60_000
    )
    try:
        with wf.Session(config=config) as session:
            for _ in range(3):
                assert np.isfinite(session.run([total, enqueue], {count: 1.0})[0])
    finally:
        experimental.set_virtual_device_configuration(cpu, None)


def test_a_plan_is_for_the_sizes_of_its_own_feeds() -> None:
    """`explain` tells of the step that has run, and another step's feeds do not count."""
    x, other = wf.placeholder(wf.float32, [None, 128]), wf.placeholder(wf.float32, [None])
    gradient, small = chain_of(x), wf.tanh(other)
    plug_in(1, Limits(memory=24 * VALUE))
    with on_accelerators() as session:

        def changed() -> bool:
            stages = session.explain([gradient], ["Placeholder:0"]).stages.values()
            return any(n.name.endswith("/recomputed") for stage in stages for n in stage.node)

        session.run([gradient], {x: VALUES[:8]})
        session.run(small, {other: np.ones(100_000, np.float32)})
        assert not changed()
        session.run([gradient], {x: VALUES})
        assert changed()


def test_a_receive_does_not_wait_for_what_follows_a_use_in_a_branch() -> None:
    """The branch takes the value as it is, as graphs that were imported may."""
    x = wf.placeholder(wf.float32, SHAPE)
    with wf.device("/device:CPU:0"):
        value = wf.sin(x)
    with wf.device("/device:ACCEL:0"):
        y = x
        for _ in range(6):
            y = wf.cos(y)
        off, on = wf.raw_ops.Switch(data=y, pred=wf.reduce_sum(x) > 1e9)
        with wf.control_dependencies([off]):
            taken = wf.add(value, off)
        z, _ = wf.raw_ops.Merge(inputs=[taken, on])
        for _ in range(20):
            z = wf.sin(z) + wf.random_uniform(SHAPE)
        z = z + value
    plug_in(1, Limits(memory=12 * VALUE))
    config = wf.ConfigProto(device_count={"ACCEL": 1}, operation_timeout_in_ms=60_000)
    with wf.Session(config=config) as session:
        assert np.isfinite(session.run(z, {x: VALUES})).all()

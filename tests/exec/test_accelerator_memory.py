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


def test_sizes_that_are_not_static_are_about_those_of_what_is_fed(tmp_path: Path) -> None:
    """A callable is planned before anything is fed; what was measured before helps it."""
    x = wf.placeholder(wf.float32, [None, 128])
    with wf.device("/device:ACCEL:0"):
        y = x
        for _ in range(LAYERS):
            y = wf.sin(y)
        (gradient,) = wf.gradients(y, x)
    value = np.linspace(-1, 1, 512 * 128, dtype=np.float32).reshape(SHAPE)
    plug_in(1, Limits(memory=1000 * VALUE))
    options = wf.GraphOptions(build_cost_model=1)
    config = wf.ConfigProto(device_count={"ACCEL": 1}, graph_options=options)
    with wf.Session(config=config) as session:
        wanted = session.run(gradient, {x: value})
        session.cost_model.save(tmp_path / "costs")
    plug_in(1, Limits(memory=24 * VALUE))
    config = wf.ConfigProto(device_count={"ACCEL": 1})
    with wf.Session(config=config) as session:
        np.testing.assert_array_equal(session.run(gradient, {x: value}), wanted)
    with wf.Session(config=config) as session, pytest.raises(errors.ResourceExhaustedError):
        session.make_callable(gradient, [x])(value)
    with wf.Session(config=config) as session:
        session.cost_model.load(tmp_path / "costs")
        np.testing.assert_array_equal(session.make_callable(gradient, [x])(value), wanted)

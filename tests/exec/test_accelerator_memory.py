"""Gradients that do not fit into an accelerator's memory: values wait, or are computed again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from weft_accelerator import Limits, plug_in

import weft as wf
from weft import errors

LAYERS, SHAPE = 40, [512, 128]
VALUE = 512 * 128 * 4


@pytest.fixture(autouse=True)
def graph() -> Iterator[None]:
    with wf.Graph().as_default():
        yield
    plug_in()


def gradient_in(room: int, mode: str) -> tuple[Any, int, set[str]]:
    """The gradient of a chain of layers, the peak in values, and the stages' ops."""
    (board,) = plug_in(1, Limits(memory=room * VALUE))
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


def test_values_wait_on_the_host() -> None:
    """With room for all of them, since nothing holds the forward pass back until they are there."""
    wanted, peak, _ = gradient_in(1000, "NO_MEM_OPT")
    assert peak >= LAYERS
    value, _, names = gradient_in(LAYERS + 10, "SWAPPING_HEURISTICS")
    np.testing.assert_array_equal(value, wanted)
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

"""Networks whose activations do not fit into the memory of their device, trained there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft import errors

LAYERS, BATCH, WIDTH = 64, 1024, 64
MEGABYTES = 12  # the activations that gradients take are three times as large

experimental = wf.config.experimental
CPU = experimental.list_physical_devices("CPU")[0]


@pytest.fixture(autouse=True)
def whole_again() -> Iterator[None]:
    with wf.Graph().as_default():
        yield
    experimental.set_virtual_device_configuration(CPU, None)


def network() -> tuple[Any, Any, Any]:
    x = wf.placeholder(wf.float32, [BATCH, WIDTH])
    y = x
    rng = np.random.RandomState(0)
    for i in range(LAYERS):
        initial = np.eye(WIDTH) + 0.05 * rng.randn(WIDTH, WIDTH)
        w = wf.get_variable(f"w{i}", initializer=initial.astype(np.float32))
        y = wf.tanh(
            wf.matmul(y, w) + wf.get_variable(f"b{i}", [WIDTH], initializer=wf.zeros_initializer())
        )
    loss = wf.reduce_mean(wf.squared_difference(y, x))
    return x, loss, wf.train.GradientDescentOptimizer(0.1).minimize(loss)


def session(limit: int | None, mode: str = "DEFAULT_MEM_OPT") -> wf.Session:
    configuration = experimental.VirtualDeviceConfiguration(memory_limit=limit)
    experimental.set_virtual_device_configuration(CPU, [configuration])
    options = wf.GraphOptions()
    options.rewrite_options.memory_optimization = options.rewrite_options.MemOptType.Value(mode)
    return wf.Session(config=wf.ConfigProto(graph_options=options, inter_op_parallelism_threads=1))


def losses(made: wf.Session, x: Any, loss: Any, train: Any) -> list[float]:
    feed = {x: np.random.RandomState(1).randn(BATCH, WIDTH)}
    made.run(wf.global_variables_initializer())
    return [float(made.run([loss, train], feed)[0]) for _ in range(3)]


@pytest.mark.kernels
def test_a_network_trains_in_less_memory_than_its_activations() -> None:
    model = network()
    with session(None) as made:
        wanted = losses(made, *model)
    with session(MEGABYTES) as made:
        assert losses(made, *model) == wanted
        peak = made.list_devices()[0].statistics.peak_bytes_in_use
        stages = made.explain(list(model[1:]), [model[0]]).stages
    assert 2 << 20 < peak <= MEGABYTES << 20
    copies = [n.name for n in stages["with less memory"].node if n.name.endswith("/recomputed")]
    assert len(copies) > LAYERS
    assert wanted[2] < wanted[0]


def test_without_it_the_network_does_not_fit() -> None:
    model = network()
    with session(MEGABYTES, "NO_MEM_OPT") as made:
        with pytest.raises(errors.ResourceExhaustedError, match="CPU:0"):
            losses(made, *model)
        assert made.run(model[1].op.graph.get_tensor_by_name("w0:0")).shape == (WIDTH, WIDTH)


def test_what_the_program_asks_for_is_computed_again() -> None:
    x = wf.placeholder(wf.float32, [BATCH, WIDTH])
    w = wf.get_variable("w", [WIDTH, WIDTH])
    y = x
    for _ in range(8):
        y = wf.tanh(wf.matmul(y, w))
    (gradient,) = wf.gradients(y, w)
    feed = {x: np.ones((BATCH, WIDTH))}
    found = []
    for mode in ("NO_MEM_OPT", "HEURISTICS", "RECOMPUTATION_HEURISTICS", "SCHEDULING_HEURISTICS"):
        with session(None, mode) as made:
            made.run(w.initializer)
            made.run(w.assign(np.eye(WIDTH) * 0.9))
            found.append(made.run(gradient, feed))
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


def test_a_function_that_recomputes_within_less_memory() -> None:
    x = wf.placeholder(wf.float32, [BATCH, WIDTH])
    h = wf.recompute_grad(lambda h: wf.tanh(wf.sin(h)))(wf.sin(x))
    (gradient,) = wf.gradients(wf.reduce_sum(h**2), x)
    feed = {x: np.full((BATCH, WIDTH), 0.1)}
    found = []
    for mode in ("NO_MEM_OPT", "HEURISTICS", "MANUAL"):
        with session(None, mode) as made:
            found.append(made.run(gradient, feed))
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])

"""An accelerator that is slower than it looks, and a cost model that finds out."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from weft_accelerator import Limits, plug_in

import weft as wf


@pytest.fixture(autouse=True)
def graph() -> Iterator[None]:
    with wf.Graph().as_default():
        yield
    plug_in()


def test_what_was_measured_beats_what_was_estimated() -> None:
    """By their arithmetic the products belong on the accelerator, whose kernels take 50 ms each."""
    plug_in(1, Limits(kernel_seconds=0.05))
    x = wf.placeholder(wf.float32, [400, 400])
    y = x
    for i in range(4):
        y = wf.tanh(wf.matmul(y, x, name=f"product{i}") * 0.01)
    products = [f"product{i}" for i in range(4)]
    config = wf.ConfigProto(
        device_count={"ACCEL": 1}, graph_options=wf.GraphOptions(build_cost_model=1)
    )
    feed = {x: np.random.default_rng(0).normal(size=(400, 400))}
    with wf.Session(config=config) as session:
        product = x.graph.get_operation_by_name("product0")
        host, accelerator = [device.describe() for device in session._backend._devices]
        estimated = session.cost_model.seconds(product, accelerator)
        assert estimated < session.cost_model.seconds(product, host)
        before = session.explain(y, [x]).placement
        assert {before[name].device[-7:] for name in products} == {"ACCEL:0"}
        results = [session.run(y, feed) for _ in range(12)]
        after = session.explain(y, [x]).placement
        assert {after[name].device[-5:] for name in products} == {"CPU:0"}
        # One run is blended with the estimate, so it need not be near 50 ms yet.
        measured = session.cost_model.seconds(product, accelerator)
        assert measured > 20 * estimated
        assert measured > 2 * session.cost_model.seconds(product, host)
    for other in results[1:]:
        np.testing.assert_allclose(other, results[0], rtol=1e-5, atol=1e-6)

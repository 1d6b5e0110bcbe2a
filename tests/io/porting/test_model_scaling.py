"""A model at several sizes: ops that do not scale with their work are named."""

import time

import numpy as np
import pytest

import weft as wf
from weft_io.porting import Program, measure_growth


def build(size, wait=None, rate=0.001):
    x = wf.placeholder(wf.float32, [256, size])
    weights = wf.get_variable("weights", [size, size], wf.float32, wf.ones_initializer())
    data = x
    if wait is not None:

        def slowly(value):
            time.sleep(wait(size))
            return value

        with wf.name_scope("slow"):
            data = wf.py_func(slowly, [x], wf.float32)
            data.set_shape([256, size])
    with wf.name_scope("layer"):
        hidden = wf.nn.relu(wf.matmul(data, weights))
    loss = wf.reduce_mean(wf.square(hidden - 2.0))
    train = wf.train.GradientDescentOptimizer(rate).minimize(loss)
    return Program({"loss": loss}, {"x": x}, [train])


def batch(size):
    return {"x": np.ones([256, size], np.float32) / size}


def test_work_memory_and_parameters_are_measured():
    growth = measure_growth(build, batch, [128, 512], steps=3, tolerance=100)
    small, large = growth.sizes
    assert (small.num_parameters, large.num_parameters) == (128**2, 512**2)
    assert large.flops / small.flops == pytest.approx(16, rel=0.1)
    assert large.peak_bytes > small.peak_bytes
    assert not growth.departures and "grow as expected" in str(growth)


def test_scope_that_grows_faster_than_its_work_is_named():
    growth = measure_growth(
        lambda size: build(size, wait=lambda size: (size / 256) ** 6 / 1000),
        batch,
        [256, 512],
        steps=10,
        tolerance=4,
    )
    named = {(d.quantity, d.scope) for d in growth.departures}
    assert ("time", "slow") in named and ("time", "layer") not in named
    assert "time of slow from size 256 to 512" in str(growth)


def test_loss_that_diverges_at_the_larger_size_is_named():
    growth = measure_growth(
        lambda size: build(size, rate=1.0 if size < 512 else 1e9), batch, [128, 512], 8, 2
    )
    assert ("loss", "") in {(d.quantity, d.scope) for d in growth.departures}


@pytest.mark.parametrize("arguments", [([1],), ([1, 2], 0), ([1, 2], 1, 0.5)])
def test_bad_arguments_are_refused(arguments):
    with pytest.raises(wf.errors.InvalidArgumentError, match="growth needs at least"):
        measure_growth(build, batch, *arguments)

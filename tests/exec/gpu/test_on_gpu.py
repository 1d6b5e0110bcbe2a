"""Tests that need a real GPU: `python -m pytest -m gpu`. Skipped by name if CuPy finds none."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft import errors
from weft_exec.config import GpuOptions, SessionConfig
from weft_exec.devices.device import make_devices
from weft_exec.gpu.session_device import GpuDevice
from weft_exec.resources.resources import ResourceManager

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module", autouse=True)
def _gpu(gpu_count: int) -> Iterator[None]:
    if not gpu_count:
        pytest.skip("no GPU")
    with wf.Session(config=growing()):
        pass  # the first session decides over the memory, and registers the kernels
    yield


def growing(**options: Any) -> wf.ConfigProto:
    proto = wf.ConfigProto(**options)
    proto.gpu_options.allow_growth = True
    return proto


def gpu(index: int = 0) -> GpuDevice:
    config = SessionConfig(gpu=GpuOptions(allow_growth=True))
    found = [d for d in make_devices(ResourceManager(), config) if isinstance(d, GpuDevice)]
    return found[index]


def _convnet() -> tuple[wf.Tensor, wf.Operation]:
    rng = np.random.default_rng(0)
    images = rng.normal(size=(32, 16, 16, 3)).astype(np.float32)
    labels = rng.integers(0, 10, 32)
    wf.set_random_seed(2)
    h = wf.layers.conv2d(wf.constant(images), 16, 3, padding="same", activation=wf.nn.relu)
    h = wf.layers.max_pooling2d(wf.layers.batch_normalization(h, training=True), 2, 2)
    h = wf.layers.conv2d(h, 32, 3, strides=2, activation=wf.nn.relu)
    logits = wf.layers.dense(wf.layers.flatten(h), 10)
    loss = wf.losses.sparse_softmax_cross_entropy(labels, logits)
    return loss, wf.train.MomentumOptimizer(0.05, 0.9).minimize(loss)


def test_a_convnet_learns_as_on_the_cpu() -> None:
    losses = []
    for where in ("/cpu:0", "/gpu:0"):
        with wf.Graph().as_default(), wf.device(where):
            loss, step = _convnet()
            with wf.Session(config=growing(allow_soft_placement=True)) as session:
                session.run(wf.global_variables_initializer())
                losses.append([session.run([loss, step])[0] for _ in range(20)])
    np.testing.assert_allclose(losses[1], losses[0], rtol=2e-2)
    assert losses[1][-1] < 0.7 * losses[1][0]


def test_random_numbers_have_the_bits_of_the_cpu() -> None:
    found = []
    for where in ("/cpu:0", "/gpu:0"):
        with wf.Graph().as_default(), wf.device(where):
            wf.set_random_seed(3)
            draws = [wf.random_uniform([100_001]), wf.random_uniform([999], -9, 99, wf.int64)]
            with wf.Session(config=growing()) as session:
                found.append([value for _ in range(2) for value in session.run(draws)])
    for mine, theirs in zip(*found, strict=True):
        np.testing.assert_array_equal(theirs, mine)


def test_copies_overlap_with_kernels() -> None:
    """A copy in is over while a kernel that was enqueued before it still runs."""
    device = gpu()
    cupy, hardware = device.xp, device.hardware
    rng = np.random.default_rng(0)
    matrix = device.from_host(rng.normal(size=(8192, 8192)).astype(np.float32))
    value = rng.normal(size=1 << 22).astype(np.float32)
    device.to_host(device.from_host(value))  # pinned memory and blocks are there afterwards
    with device.active():
        cupy.matmul(matrix, matrix)  # cuBLAS is loaded
        hardware.compute.synchronize()
        for _ in range(20):
            busy = cupy.matmul(matrix, matrix)
        end = hardware.compute.record(cupy.cuda.Event())
    brought = device.from_host(value)
    hardware.copy_in.synchronize()
    assert not end.done
    end.synchronize()
    np.testing.assert_array_equal(device.to_host(brought), value)
    assert busy.shape == matrix.shape


def test_sending_does_not_wait() -> None:
    device = gpu()
    with device.active():
        value = device.xp.arange(1 << 22)
    there = threading.Event()
    got: list[Any] = []

    class Done:
        def __call__(self, value: Any = None) -> None:
            got.append(value)
            there.set()

        fail = __call__

    device.send(value, Done())
    assert there.wait(60)
    np.testing.assert_array_equal(got[0], np.arange(1 << 22))


def test_what_does_not_fit_is_an_error_that_says_where() -> None:
    with wf.Graph().as_default(), wf.device("/gpu:0"):
        x = wf.placeholder(wf.float32, [None])
        y = wf.tile(x * 2.0, [1 << 20], name="too_large")
        with wf.Session(config=growing()) as session:
            with pytest.raises(errors.ResourceExhaustedError) as caught:
                session.run(y.op, {x: np.ones(1 << 20, np.float32)})
            assert "too_large" in str(caught.value) and "GPU:0" in str(caught.value)
            assert session.run(wf.reduce_sum(x * 2.0), {x: np.ones(4)}) == 8


def test_a_step_can_be_cancelled() -> None:
    with wf.Graph().as_default(), wf.device("/gpu:0"):
        x = wf.random_normal([2048, 2048])
        found = wf.while_loop(lambda v: wf.reduce_sum(v * 0.0) < 1.0, lambda v: v @ v * 1e-3, [x])
        with wf.Session(config=growing(operation_timeout_in_ms=500)) as session:
            started = time.monotonic()
            with pytest.raises(errors.DeadlineExceededError):
                session.run(found)
            assert time.monotonic() - started < 60


def test_arrays_go_from_one_gpu_to_another(gpu_count: int) -> None:
    if gpu_count < 2:
        pytest.skip("a single GPU")
    with wf.Graph().as_default():
        with wf.device("/gpu:0"):
            a = wf.random_normal([1000, 1000], seed=1)
        with wf.device("/gpu:1"):
            b = a * 2.0
        with wf.Session(config=growing()) as session:
            first, second = session.run([a, b])
    np.testing.assert_array_equal(first * 2, second)

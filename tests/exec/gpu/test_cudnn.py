"""Ops computed by cuDNN's graphs, through a stand-in for nvidia-cudnn-frontend."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from cupy_standin import Machine, cudnn as standin

import weft as wf


@pytest.fixture
def library(machine: Machine) -> Iterator[Any]:
    with standin.installed() as found:
        yield found


def values(device: str, steps: int = 1, **options: Any) -> list[Any]:
    """A convolution and its gradients."""
    rng = np.random.default_rng(0)
    rank = options.pop("rank", 2)
    dtype = options.pop("dtype", np.float32)
    first = options.get("data_format", "")[1:2] == "C"
    sides = (9, 7, 6)[:rank]
    x_shape = (2, 3, *sides) if first else (2, *sides, 3)
    conv = wf.nn.conv2d if rank == 2 else wf.nn.conv3d
    with wf.Graph().as_default():
        x = wf.placeholder(wf.as_dtype(dtype), x_shape)
        w = wf.placeholder(wf.as_dtype(dtype), (*(3, 2, 2)[:rank], 3, 4))
        with wf.device(device):
            y = conv(x, w, **options)
            grads = wf.gradients(wf.reduce_sum(wf.square(y)), [x, w])
        feeds = {v: rng.normal(size=v.shape.as_list()).astype(dtype) for v in (x, w)}
        with wf.Session(config=wf.ConfigProto(allow_soft_placement=True)) as session:
            for _ in range(steps):
                found = session.run([y, *grads], feeds)
    return found


@pytest.mark.parametrize(
    "options",
    [
        {"strides": 1, "padding": "SAME"},
        {"strides": 2, "padding": "SAME"},
        {"strides": [1, 2, 1, 1], "padding": "VALID"},
        {"strides": 1, "padding": "VALID", "dilations": 2},
        {"strides": 1, "padding": [[0, 0], [2, 1], [0, 3], [0, 0]]},
        {"strides": 1, "padding": "SAME", "dtype": np.float16},
        {"strides": [1, 2, 1, 2, 1], "padding": "SAME", "rank": 3},
    ],
    ids=str,
)
def test_values_are_those_of_the_cpu(library: Any, options: dict[str, Any]) -> None:
    limit = 2e-2 if options.get("dtype") is np.float16 else 1e-4
    for got, want in zip(values("/gpu:0", **options), values("/cpu:0", **options), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=limit, atol=limit)
    assert library.made == 3


def test_channels_first(library: Any) -> None:
    options = {"strides": 1, "padding": "SAME", "data_format": "NCHW"}
    for got, want in zip(values("/gpu:0", **options), values("/cpu:0", **options), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    assert library.made == 3


def test_graphs_are_kept(library: Any) -> None:
    values("/gpu:0", 3, strides=1, padding="SAME")
    assert library.made == 3


def test_other_types_are_products(library: Any) -> None:
    values("/gpu:0", strides=1, padding="SAME", dtype=np.float64)
    assert library.made == 0


def test_what_cudnn_cannot_do_is_a_product(library: Any, caplog: pytest.LogCaptureFixture) -> None:
    library.supported = False
    options = {"strides": 1, "padding": "SAME"}
    with caplog.at_level(logging.INFO, "weft"):
        found = values("/gpu:0", 2, **options)
    for got, want in zip(found, values("/cpu:0", **options), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    said = [record.getMessage() for record in caplog.records]
    assert sum("cuDNN has no engine" in line for line in said) == 3
    assert said.count("GPU 0: convolutions are computed by cuDNN") == 1


def test_without_cudnn_that_is_said_once(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "weft"):
        values("/gpu:0", 2, strides=1, padding="SAME")
    said = [record.getMessage() for record in caplog.records]
    assert sum("convolutions are computed as matrix products" in line for line in said) == 1


# ------------------------------------------------------------------ batch normalization


def normalized(device: str, shape: tuple[int, ...], **options: Any) -> list[Any]:
    """Gradients of a batch normalization."""
    rng = np.random.default_rng(0)
    dtype = options.pop("dtype", np.float32)
    channels = shape[1 if options.get("data_format", "")[1:2] == "C" else -1]
    with wf.Graph().as_default():
        x, weights = (wf.placeholder(wf.as_dtype(dtype), shape) for _ in range(2))
        scale = wf.constant(rng.normal(size=channels).astype(np.float32))
        given = {"mean": scale * 0.1, "variance": scale * scale}
        if options.get("is_training", True):
            given = {}
        with wf.device(device):
            y, *_ = wf.nn.fused_batch_norm(x, scale, wf.zeros([channels]), **given, **options)
            grads = wf.gradients(y, [x, scale], weights)
        feeds = {v: rng.normal(size=shape).astype(dtype) for v in (x, weights)}
        with wf.Session(config=wf.ConfigProto(allow_soft_placement=True)) as session:
            found: list[Any] = session.run(grads, feeds)
    return found


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((3, 5, 4, 6), {}),
        ((3, 6, 5, 4), {"data_format": "NCHW"}),
        ((3, 5, 4, 6), {"dtype": np.float16}),
    ],
    ids=str,
)
def test_gradients_of_batch_normalization(
    library: Any, shape: tuple[int, ...], options: dict[str, Any]
) -> None:
    limit = 2e-2 if options.get("dtype") is np.float16 else 1e-4
    both = zip(normalized("/gpu:0", shape, **options), normalized("/cpu:0", shape, **options),
               strict=True)  # fmt: skip
    for got, want in both:
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=limit, atol=limit)
    assert library.made == 1


def test_gradients_with_given_statistics_are_no_graphs(library: Any) -> None:
    options = {"is_training": False}
    for got, want in zip(
        normalized("/gpu:0", (3, 5, 4, 6), **options),
        normalized("/cpu:0", (3, 5, 4, 6), **options),
        strict=True,
    ):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    assert library.made == 0


def test_gradients_that_cudnn_cannot_do_are_generated(
    library: Any, caplog: pytest.LogCaptureFixture
) -> None:
    library.supported = False
    with caplog.at_level(logging.INFO, "weft"):
        found = normalized("/gpu:0", (3, 5, 4, 6))
    for got, want in zip(found, normalized("/cpu:0", (3, 5, 4, 6)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    assert any("no engine for the gradient of a batch" in r.getMessage() for r in caplog.records)

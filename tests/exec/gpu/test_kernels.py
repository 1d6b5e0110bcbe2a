"""Kernels that are made as text, on sizes beyond those of the conformance table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cupy_standin import Machine

import weft as wf
from weft import errors
from weft_exec.gpu import generated

REALS = ("float16", "float32", "float64")
LIMITS = {"float16": 5e-3, "float32": 3e-5, "float64": 1e-10}
Build = Callable[..., Any]


def growing(**options: Any) -> wf.ConfigProto:
    proto = wf.ConfigProto(**options)
    proto.gpu_options.allow_growth = True
    return proto


def on_both(build: Build, feeds: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    """The values that a graph of the feeds' placeholders has on the CPU and on the GPU."""
    found = []
    for device in ("/cpu:0", "/gpu:0"):
        with wf.Graph().as_default(), wf.device(device):
            given = {
                name: wf.placeholder(value.dtype, value.shape) for name, value in feeds.items()
            }
            fetches = build(**given)
            with wf.Session(config=growing()) as session:
                found.append(session.run(fetches, {given[k]: v for k, v in feeds.items()}))
    return found[0], found[1]


def equal(build: Build, limit: float, **feeds: Any) -> None:
    wanted, got = on_both(build, feeds)
    for mine, theirs in zip(got, wanted, strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_allclose(mine, theirs, rtol=limit, atol=limit)


@pytest.fixture(autouse=True)
def index(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Positions of 64 bits for float32, as in arrays that need them; else of 32."""
    called = getattr(request.node, "callspec", None)
    if called is not None and called.params.get("dtype") == "float32":
        monkeypatch.setattr(generated, "_LARGE", 1)


# ------------------------------------------------------------------------------- pools

POOLS: list[tuple[tuple[int, ...], list[int], list[int], str]] = [
    ((2, 7, 6, 3), [1, 3, 2, 1], [1, 2, 1, 1], "SAME"),
    ((2, 7, 6, 3), [1, 2, 3, 1], [1, 3, 4, 1], "VALID"),
    ((4, 5, 5, 6), [2, 1, 2, 3], [2, 2, 1, 1], "SAME"),
    ((1, 40, 33, 2), [1, 17, 9, 1], [1, 1, 2, 1], "SAME"),
    ((2, 5, 4, 6, 2), [1, 2, 3, 2, 1], [1, 1, 2, 3, 1], "SAME"),
    ((2, 3, 5, 4, 6), [1, 1, 2, 3, 2], [1, 1, 1, 2, 2], "VALID"),
]


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("pool", POOLS, ids=str)
def test_pools(somewhere: str, pool: Any, dtype: str) -> None:
    shape, ksize, strides, padding = pool
    rng = np.random.default_rng(0)
    x = rng.integers(-4, 5, shape).astype(dtype)  # with many equal maxima
    options = {"ksize": ksize, "strides": strides, "padding": padding}
    flat = len(shape) == 4

    def build(x: Any) -> list[Any]:
        largest = wf.nn.max_pool(x, **options) if flat else wf.nn.max_pool3d(x, **options)
        mean = wf.nn.avg_pool(x, **options) if flat else wf.nn.avg_pool3d(x, **options)
        by_largest = wf.gradients(largest, x, largest * 0.25)[0]
        by_mean = wf.gradients(mean, x, mean * 0.25)[0]
        again = wf.gradients(by_largest, x, x)[0] if flat else by_largest
        return [largest, mean, by_largest, by_mean, again]

    equal(build, LIMITS[dtype], x=x)


@pytest.mark.parametrize("with_batch", [False, True])
def test_of_equal_elements_the_first_is_the_largest(somewhere: str, with_batch: bool) -> None:
    x = np.random.default_rng(0).integers(0, 2, (3, 6, 5, 2)).astype(np.float32)

    def build(x: Any) -> list[Any]:
        return list(
            wf.nn.max_pool_with_argmax(
                x, [1, 3, 2, 1], [1, 2, 1, 1], "SAME", include_batch_in_index=with_batch
            )
        )

    equal(build, 0.0, x=x)


@pytest.mark.parametrize("with_batch", [False, True])
@pytest.mark.parametrize("dtype", REALS)
def test_gradients_go_where_the_windows_say(somewhere: str, dtype: str, with_batch: bool) -> None:
    """Into the windows, and anywhere else in the input."""
    rng = np.random.default_rng(0)
    shape, counts, size = (3, 40, 21, 2), (3, 20, 21, 2), 3 * 40 * 21 * 2
    x, grad = np.zeros(shape, dtype), rng.integers(-4, 5, counts).astype(dtype)
    options = {"ksize": [1, 3, 2, 1], "strides": [1, 2, 1, 1], "padding": "SAME"}
    inner = rng.normal(size=shape).astype(np.float32)
    strange = rng.integers(0, size if with_batch else size // 3, counts)

    def build(x: Any, grad: Any, inner: Any, mixed: Any, strange: Any) -> list[Any]:
        options["include_batch_in_index"] = with_batch
        own = wf.nn.max_pool_with_argmax(inner, **options)[1]
        return [
            wf.raw_ops.MaxPoolGradWithArgmax(input=x, grad=grad, argmax=places, **options)
            for places in (own, wf.where(mixed, strange, own), strange)
        ]

    mixed = rng.random(counts) < 0.01
    equal(build, 0.0, x=x, grad=grad, inner=inner, mixed=mixed, strange=strange)


def test_a_window_of_many_points_elsewhere(somewhere: str) -> None:
    shape = (1, 260, 260, 1)
    grad = np.ones(shape, np.float32)
    places = np.arange(grad.size).reshape(shape)
    places[0, 259, 3, 0] = 7

    def build(grad: Any, places: Any) -> list[Any]:
        ones = [1, 1, 1, 1]
        return [
            wf.raw_ops.MaxPoolGradWithArgmax(
                input=grad, grad=grad, argmax=places, ksize=ones, strides=ones, padding="VALID"
            )
        ]

    equal(build, 0.0, grad=grad, places=places)


def test_what_is_no_number_is_the_largest(somewhere: str) -> None:
    x = np.random.default_rng(1).normal(size=(1, 6, 6, 1)).astype(np.float32)
    x[0, 2, 1, 0] = x[0, 2, 4, 0] = x[0, 3, 4, 0] = np.nan
    x[0, 5] = -np.inf

    def build(x: Any) -> list[Any]:
        y, places = wf.nn.max_pool_with_argmax(x, [1, 3, 3, 1], [1, 1, 1, 1], "SAME")
        return [y, places, wf.gradients(y, x)[0]]

    equal(build, 1e-6, x=x)


# ------------------------------------------------------------------------------- rows


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("shape", [(3, 1), (5, 31), (3, 256), (2, 1000), (70, 33)], ids=str)
def test_softmax_and_losses(somewhere: str, shape: tuple[int, int], dtype: str) -> None:
    rng = np.random.default_rng(0)
    logits = (rng.normal(size=shape) * 5).astype(dtype)
    labels = rng.dirichlet(np.ones(shape[1]), shape[0]).astype(dtype)
    numbers = rng.integers(0, shape[1], shape[0])

    def build(logits: Any, labels: Any, numbers: Any) -> list[Any]:
        dense = wf.nn.softmax_cross_entropy_with_logits_v2(labels, logits)
        sparse = wf.nn.sparse_softmax_cross_entropy_with_logits(labels=numbers, logits=logits)
        grads = [wf.gradients(loss, logits)[0] for loss in (dense, sparse)]
        return [wf.nn.softmax(logits), wf.nn.log_softmax(logits), dense, sparse, *grads]

    equal(build, LIMITS[dtype] * 2, logits=logits, labels=labels, numbers=numbers)


def test_what_is_no_class_has_no_loss(somewhere: str) -> None:
    logits = np.random.default_rng(0).normal(size=(4, 7)).astype(np.float32)
    labels = np.array([-1, 3, 7, 1 << 40])
    with wf.Graph().as_default(), wf.device("/gpu:0"):
        x, numbers = wf.placeholder(wf.float32, [4, 7]), wf.placeholder(wf.int64, [4])
        loss = wf.nn.sparse_softmax_cross_entropy_with_logits(labels=numbers, logits=x)
        with wf.Session(config=growing()) as session:
            found, grad = session.run(
                [loss, wf.gradients(loss, x)[0]], {x: logits, numbers: labels}
            )
    assert np.isnan(found).tolist() == [True, False, True, True]
    assert np.isnan(grad).all(1).tolist() == [True, False, True, True]
    assert np.isfinite(grad[1]).all()


def test_many_rows_share_the_blocks(somewhere: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generated, "_ROW_BLOCKS", 4)
    x = np.random.default_rng(0).normal(size=(11, 40)).astype(np.float32)
    equal(lambda x: [wf.nn.softmax(x)], 1e-5, x=x)


# ----------------------------------------------------------------------- normalization


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    ("shape", "data_format"),
    [
        ((3, 5, 4, 1), "NHWC"),
        ((2, 3, 3, 33), "NHWC"),
        ((4, 60, 50, 3), "NHWC"),
        ((3, 5, 4, 7), "NCHW"),
        ((2, 3, 50, 41), "NCHW"),
        ((1, 1, 1, 5), "NHWC"),
    ],
    ids=str,
)
def test_batch_normalization(
    somewhere: str, shape: tuple[int, ...], data_format: str, training: bool, dtype: str
) -> None:
    rng = np.random.default_rng(0)
    channels = shape[1 if data_format == "NCHW" else -1]
    x = (rng.normal(size=shape) * 2 + 30).astype(dtype)
    weights = rng.normal(size=shape).astype(dtype)
    scale, offset, mean = rng.normal(size=(3, channels)).astype(np.float32)
    variance = rng.uniform(1, 2, channels).astype(np.float32)

    def build(x: Any, weights: Any, scale: Any, offset: Any, mean: Any, variance: Any) -> list[Any]:
        given = {} if training else {"mean": mean, "variance": variance}
        y, *moments = wf.nn.fused_batch_norm(
            x, scale, offset, data_format=data_format, is_training=training, **given
        )
        return [y, *moments, *wf.gradients(y, [x, scale, offset], weights)]

    feeds = {"scale": scale, "offset": offset, "mean": mean, "variance": variance}
    equal(build, {"float16": 2e-2, "float32": 5e-4}[dtype], x=x, weights=weights, **feeds)


def test_statistics_of_elements_far_from_zero(somewhere: str) -> None:
    x = (np.random.default_rng(0).normal(size=(64, 40, 2)) + 4096).astype(np.float32)

    def build(x: Any) -> list[Any]:
        x = wf.reshape(x, [64, 40, 1, 2])
        return list(wf.nn.fused_batch_norm(x, wf.ones([2]), wf.zeros([2])))[1:]

    (_, variance) = on_both(build, {"x": x})[1]
    np.testing.assert_allclose(variance, x.astype(np.float64).var((0, 1), ddof=1), rtol=1e-3)


@pytest.mark.parametrize("radius", [0, 2, 50])
def test_local_response_normalization(somewhere: str, radius: int) -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, 2, 19)).astype(np.float32)

    def build(x: Any) -> list[Any]:
        y = wf.nn.lrn(x, depth_radius=radius, bias=1.5, alpha=0.3, beta=0.6)
        return [y, wf.gradients(y, x)[0]]

    equal(build, 2e-5, x=x)


# ------------------------------------------------------------------------------- updates

OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "gradient descent": lambda: wf.train.GradientDescentOptimizer(0.1),
    "proximal": lambda: wf.train.ProximalGradientDescentOptimizer(0.1, 0.02, 0.3),
    "momentum": lambda: wf.train.MomentumOptimizer(0.1, 0.7, use_nesterov=True),
    "adagrad": lambda: wf.train.AdagradOptimizer(0.1),
    "proximal adagrad": lambda: wf.train.ProximalAdagradOptimizer(0.1, 0.1, 0.02, 0.3),
    "adagrad da": lambda: wf.train.AdagradDAOptimizer(
        0.1, wf.train.get_or_create_global_step(), 0.2, 0.02, 0.3
    ),
    "adadelta": lambda: wf.train.AdadeltaOptimizer(0.1, 0.8, 1e-3),
    "ftrl": lambda: wf.train.FtrlOptimizer(0.1, -0.4, 0.1, 0.02, 0.3),
    "ftrl v2": lambda: wf.train.FtrlOptimizer(
        0.1, -0.5, 0.1, 0.02, 0.3, l2_shrinkage_regularization_strength=0.4
    ),
    "adam": lambda: wf.train.AdamOptimizer(0.1, 0.8, 0.9, 1e-3),
    "rmsprop": lambda: wf.train.RMSPropOptimizer(0.1, 0.8, 0.5, 1e-3),
    "centered rmsprop": lambda: wf.train.RMSPropOptimizer(0.1, 0.8, 0.5, 1e-3, centered=True),
}


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_updates(somewhere: str, name: str, dtype: str) -> None:
    rng = np.random.default_rng(0)
    start, grad = rng.normal(size=(2, 300)).astype(dtype)
    found = []
    for device in ("/cpu:0", "/gpu:0"):
        with wf.Graph().as_default(), wf.device(device):
            v = wf.get_variable("v", initializer=start)
            optimizer = OPTIMIZERS[name]()
            step = optimizer.apply_gradients(
                [(wf.constant(grad) * v * v, v)], wf.train.get_or_create_global_step()
            )
            slots = [optimizer.get_slot(v, slot) for slot in optimizer.get_slot_names()]
            with wf.Session(config=growing(allow_soft_placement=True)) as session:
                session.run(wf.global_variables_initializer())
                for _ in range(3):
                    session.run(step)
                found.append(session.run([v, *slots]))
    for mine, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(theirs, mine, rtol=LIMITS[dtype] * 4, atol=LIMITS[dtype] * 2)


# -------------------------------------------------------------------------------- checks


def test_arrays_must_be_in_c_order(machine: Machine) -> None:
    import cupy

    from weft_exec.gpu.kernels import nn

    program = nn._SOFTMAX.program(cupy, T=np.float32)
    x = cupy.zeros((4, 8), np.float32)
    with pytest.raises(errors.InternalError, match="C order"):
        program.rows("softmax", 8, 4, x.T, cupy.zeros((8, 4), np.float32))

"""Optimizers, cells, group normalization and networks: formulas and variable names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_contrib import layers, opt, rnn, slim
from weft_contrib.slim import nets
from weft_tensor import errors

Array = np.ndarray[Any, Any]


def trained(optimizer: Any, steps: int, sparse: bool, resource: bool = False, **kw: Any) -> Array:
    """A variable after some steps on gradients that differ from step to step."""
    x = wf.Variable([[1.0, -2.0], [3.0, 4.0], [0.5, 1.5]], dtype=wf.float64, use_resource=resource)
    weight = wf.placeholder(wf.float64, [])
    rows = wf.gather(x, [0, 2, 0]) if sparse else x
    update = optimizer.minimize(weight * wf.reduce_sum(rows * rows * rows), **kw)
    with wf.Session() as session:
        session.run(wf.global_variables_initializer())
        for step in range(steps):
            session.run(update, {weight: step - 0.5})
        return np.asarray(session.run(x))


def by_formula(step_of: Callable[[Array, Array, int], Array], steps: int, sparse: bool) -> Array:
    x = np.array([[1.0, -2.0], [3.0, 4.0], [0.5, 1.5]])
    times = np.array([[2.0], [0.0], [1.0]]) if sparse else 1.0
    for step in range(steps):
        x = x - step_of(x, 3 * (step - 0.5) * x * x * times, step + 1)
    return x


class Moments:
    """The means of Adam and its kin; those of rows without a gradient may stay."""

    def __init__(self, kind: str, lazy: bool) -> None:
        self.m, self.v, self.kind, self.lazy = np.zeros((3, 2)), np.zeros((3, 2)), kind, lazy

    def __call__(self, x: Array, g: Array, t: int) -> Array:
        moved = np.any(g != 0, 1, keepdims=True) | (not self.lazy)
        self.m = np.where(moved, 0.9 * self.m + 0.1 * g, self.m)
        new = (
            np.maximum(0.999 * self.v, abs(g))
            if self.kind == "max"
            else (0.999 * self.v + 0.001 * g * g)
        )
        self.v = np.where(moved, new, self.v)
        if self.kind == "max":
            return np.where(moved, 0.1 / (1 - 0.9**t) * self.m / (self.v + 1e-8), 0)
        mean = 0.9 * self.m + 0.1 * g if self.kind == "nesterov" else self.m
        rate = 0.1 * np.sqrt(1 - 0.999**t) / (1 - 0.9**t)
        return np.where(moved, rate * mean / (np.sqrt(self.v) + 1e-8), 0)


@pytest.mark.parametrize("resource", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_kin_of_adam(sparse: bool, resource: bool) -> None:
    for optimizer, kind, lazy in (
        (opt.LazyAdamOptimizer(0.1), "", True),
        (opt.NadamOptimizer(0.1), "nesterov", False),
        (opt.AdaMaxOptimizer(0.1), "max", sparse),
    ):
        with wf.Graph().as_default():
            got = trained(optimizer, 4, sparse, resource)
        np.testing.assert_allclose(got, by_formula(Moments(kind, lazy), 4, sparse), rtol=1e-5)


@pytest.mark.parametrize("sparse", [False, True])
def test_decoupled_weight_decay(sparse: bool) -> None:
    def decayed(x: Array, g: Array, t: int) -> Array:
        return 0.25 * g + (0.1 * x if not sparse else 0.1 * x * [[1.0], [0.0], [1.0]])

    make = opt.extend_with_decoupled_weight_decay(wf.train.GradientDescentOptimizer)
    got = trained(make(weight_decay=0.1, learning_rate=0.25), 2, sparse)
    np.testing.assert_allclose(got, by_formula(decayed, 2, sparse), rtol=1e-5, atol=1e-7)
    with wf.Graph().as_default():
        plain = trained(opt.MomentumWOptimizer(0.1, 0.25, 0.0), 2, sparse, decay_var_list=[])
    expected = by_formula(lambda x, g, t: 0.25 * g, 2, sparse)
    np.testing.assert_allclose(plain, expected, rtol=1e-5)


def test_layerwise_rates() -> None:
    speed = np.zeros((3, 2))

    def step_of(x: Array, g: Array, t: int) -> Array:
        nonlocal speed
        own, slope = np.linalg.norm(x), np.linalg.norm(g)
        speed = 0.9 * speed + (g + 0.01 * x) * 1.0
        return 0.5 * 0.1 * own / (slope + 0.01 * own) * speed

    got = trained(opt.LARSOptimizer(0.5, weight_decay=0.01, eeta=0.1), 3, False)
    np.testing.assert_allclose(got, by_formula(step_of, 3, False), rtol=1e-5)


def test_averages_are_saved_by_the_names_of_variables(tmp_path: Any) -> None:
    x = wf.Variable(4.0, name="x")
    optimizer = opt.MovingAverageOptimizer(wf.train.GradientDescentOptimizer(0.25), 0.5)
    with pytest.raises(errors.FailedPreconditionError, match="swapping_saver"):
        optimizer.swapping_saver()
    update = optimizer.minimize(x * x)
    saver = optimizer.swapping_saver()
    with wf.Session() as session:
        session.run(wf.global_variables_initializer())
        session.run(update)
        path = saver.save(session, str(tmp_path / "model"))
        assert wf.train.load_variable(path, "x") == 3.0
        saver.restore(session, path)
        assert session.run([x, optimizer.average(x)]) == [2.0, 3.0]


# ------------------------------------------------------------------------------- cells


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def test_the_cell_of_a_search() -> None:
    rng = np.random.default_rng(0)
    x, c, h = (rng.normal(size=(2, n)).astype("f") for n in (3, 4, 4))
    cell = rnn.NASCell(4, use_bias=True)
    output, state = cell(x, rnn.LSTMStateTuple(c, h))
    variables = {v.op.name.split("/")[-1]: v for v in wf.global_variables()}
    assert sorted(variables) == ["bias", "kernel", "recurrent_kernel"]
    with wf.Session() as session:
        session.run(wf.global_variables_initializer())
        w, u, b, got, memory = session.run(
            [*(variables[n] for n in ("kernel", "recurrent_kernel", "bias")), output, state.c]
        )
    i, m = np.split(x @ w + b, 8, 1), np.split(h @ u, 8, 1)
    relu = lambda v: np.maximum(v, 0)  # noqa: E731
    kinds = [_sigmoid, relu, _sigmoid, relu, np.tanh, _sigmoid, np.tanh, _sigmoid]
    first = [f(i[k] * m[k] if k == 3 else i[k] + m[k]) for k, f in enumerate(kinds)]
    second = [
        np.tanh(np.tanh(first[0] * first[1]) + c),
        np.tanh(first[2] + first[3]),
        np.tanh(first[4] * first[5]),
        _sigmoid(first[6] + first[7]),
    ]
    np.testing.assert_allclose(memory, second[0] * second[1], rtol=1e-5, atol=1e-6)
    expected = np.tanh(second[0] * second[1] * np.tanh(second[2] + second[3]))
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "make",
    [
        lambda: rnn.AttentionCellWrapper(rnn.BasicLSTMCell(4), 3),
        lambda: rnn.AttentionCellWrapper(rnn.GRUCell(4), 3, state_is_tuple=False),
        lambda: rnn.AttentionCellWrapper(rnn.GRUCell(4), 2, 5, 6, 7),
        lambda: rnn.NASCell(4, num_proj=3),
        lambda: rnn.UGRNNCell(4),
        lambda: rnn.HighwayWrapper(rnn.GRUCell(4), couple_carry_transform_gates=False),
    ],
)
def test_cells_run_and_learn(make: Any) -> None:
    outputs, _ = wf.nn.dynamic_rnn(make(), wf.ones([2, 5, 4]), dtype=wf.float32)
    before = len(wf.global_variables())
    loss = wf.reduce_mean(wf.square(outputs - 0.3))
    grads = wf.gradients(loss, wf.trainable_variables())
    update = wf.train.AdamOptimizer(0.05).minimize(loss)
    assert before
    with wf.Session() as session:
        session.run(wf.global_variables_initializer())
        assert all(np.isfinite(each).all() for each in session.run(grads))
        first = session.run(loss)
        for _ in range(30):
            session.run(update)
        assert session.run(loss) < first


def test_a_convolutional_cell_of_one_pixel_is_an_lstm_cell() -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, 3, 2)).astype("f")
    cell = rnn.ConvLSTMCell(2, [3, 3, 2], 4, [1, 1], initializers={"bias": wf.ones_initializer()})
    output, _ = cell(x, cell.zero_state(2, wf.float32))
    kernel = wf.trainable_variables()[0]
    with wf.Session() as session:
        session.run(wf.global_variables_initializer())
        w, got = session.run([kernel, output])
    gates = np.concatenate([x, np.zeros((2, 3, 3, 4), "f")], -1) @ w[0, 0] + 1
    i, j, _, o = np.split(gates, 4, -1)
    expected = np.tanh(_sigmoid(i) * np.tanh(j)) * _sigmoid(o)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(errors.InvalidArgumentError, match="input_shape"):
        rnn.Conv1DLSTMCell(input_shape=[3, 3, 2], output_channels=4, kernel_shape=[3])


# ------------------------------------------------------------------------------ layers


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("known", [False, True])
def test_groups_of_channels(first: bool, known: bool) -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, 5, 6)).astype("f")
    parts = x.reshape(2, 3, 5, 3, 2)
    mean, spread = parts.mean((1, 2, 4), keepdims=True), parts.var((1, 2, 4), keepdims=True)
    expected = ((parts - mean) / np.sqrt(spread + 1e-6)).reshape(x.shape)
    given = x.transpose(0, 3, 1, 2) if first else x
    shape = given.shape if known else [None, 6, None, None] if first else [None, None, None, 6]
    image = wf.placeholder(wf.float32, shape)
    at = {"channels_axis": -3, "reduction_axes": (-2, -1)} if first else {}
    net = layers.group_norm(image, 3, **at)
    assert net.shape.as_list() == list(shape)
    with wf.Session() as session:
        session.run(wf.global_variables_initializer())
        got = session.run(net, {image: given})
    got = got.transpose(0, 2, 3, 1) if first else got
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    for wrong in ({"groups": 4}, {"reduction_axes": (-1,)}, {"groups": 0}):
        with pytest.raises(errors.InvalidArgumentError):
            layers.group_norm(wf.ones([2, 3, 5, 6]), **({"groups": 3} | wrong))


# ---------------------------------------------------------------------------- networks


def test_networks_have_as_many_weights_as_the_published_ones() -> None:
    small = wf.placeholder(wf.float32, [None, 224, 224, 3])
    large = wf.placeholder(wf.float32, [None, 299, 299, 3])
    for make, scope, images, weights in (
        (nets.vgg.vgg_16, nets.vgg.vgg_arg_scope, small, 138_357_544),
        (nets.resnet_v1.resnet_v1_50, nets.resnet_v1.resnet_arg_scope, small, 25_557_032),
        (nets.inception.inception_v1, nets.inception.inception_v1_arg_scope, small, 6_617_624),
        (nets.inception.inception_v3, nets.inception.inception_v3_arg_scope, large, 27_143_152),
    ):
        before = len(wf.trainable_variables())
        with slim.arg_scope(scope()):
            make(images, 1000, is_training=False)
        made = wf.trainable_variables()[before:]
        assert sum(int(np.prod(v.shape.as_list())) for v in made) == weights


@pytest.mark.parametrize("version", [nets.resnet_v1, nets.resnet_v2])
def test_dilated_networks_see_what_strided_ones_see(version: Any) -> None:
    block = version.__dict__[f"{version.__name__.rsplit('.', 1)[1]}_block"]
    network = version.__dict__[version.__name__.rsplit(".", 1)[1]]
    blocks = [block("block1", 2, 2, 2), block("block2", 4, 2, 2), block("block3", 4, 2, 1)]
    images = np.random.default_rng(0).normal(size=(1, 65, 65, 3)).astype("f")
    with slim.arg_scope(version.resnet_arg_scope()):
        strided, points = network(images, blocks, None, False, False, scope="net")
        dense, _ = network(images, blocks, None, False, False, 8, reuse=True, scope="net")
    assert "net/block2/unit_1/bottleneck_" in " ".join(points)
    with wf.Session() as session:
        session.run(wf.global_variables_initializer())
        small, large = session.run([strided, dense])
    assert large.shape[1] > small.shape[1]
    np.testing.assert_allclose(large[:, ::2, ::2], small, rtol=1e-4, atol=1e-5)
    with slim.arg_scope(version.resnet_arg_scope()), pytest.raises(errors.InvalidArgumentError):
        network(images, blocks, None, False, False, 6, scope="other")


def test_names_of_variables_are_those_of_checkpoints() -> None:
    image = wf.ones([1, 64, 64, 3])
    with slim.arg_scope(nets.inception.inception_v1_arg_scope()):
        nets.inception.inception_v1_base(image, "Mixed_5b")
    with slim.arg_scope(nets.resnet_v2.resnet_arg_scope()):
        nets.resnet_v2.resnet_v2_50(image, 5, is_training=False)
    names = {v.op.name for v in wf.global_variables()}
    assert {
        "InceptionV1/Mixed_5b/Branch_2/Conv2d_0a_3x3/BatchNorm/moving_mean",
        "InceptionV1/Conv2d_2c_3x3/weights",
        "resnet_v2_50/block1/unit_1/bottleneck_v2/shortcut/biases",
        "resnet_v2_50/block4/unit_3/bottleneck_v2/preact/gamma",
        "resnet_v2_50/postnorm/beta",
        "resnet_v2_50/logits/weights",
    } <= names
    with pytest.raises(errors.InvalidArgumentError, match="final_endpoint"):
        nets.inception.inception_v3_base(wf.ones([1, 299, 299, 3]), "Mixed_9")

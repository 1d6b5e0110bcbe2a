"""Layers: names, variables, reuse, collections, values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_autodiff.gradients.backprop import gradients
from weft_exec.session.session import Session
from weft_graph import layers, nn
from weft_graph.ir.collections_keys import GraphKeys, get_collection
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.graph import Graph
from weft_graph.ops import shapes
from weft_graph.ops.array import placeholder
from weft_graph.variables.base import VariableSynchronization
from weft_graph.variables.reference import (
    global_variables,
    global_variables_initializer,
    trainable_variables,
)
from weft_graph.variables.scope import AUTO_REUSE, variable_scope
from weft_tensor import errors
from weft_tensor.shape import TensorShape

RNG = np.random.default_rng(3)


@pytest.fixture(autouse=True)
def graph() -> Iterator[Graph]:
    with Graph().as_default() as g:
        yield g


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def run(fetches: Any, feeds: Any = None) -> Any:
    with Session() as session:
        session.run(global_variables_initializer())
        return session.run(fetches, feeds)


def names() -> list[str]:
    return [variable.op.name for variable in global_variables()]


# ------------------------------------------------------------------------- names, reuse


def test_names_are_those_of_tf_layers() -> None:
    x = placeholder("float32", [None, 8, 8, 3])
    h = layers.conv2d(x, 4, 3, activation=nn.relu)
    assert h.name == "conv2d/Relu:0"
    h = layers.conv2d(h, 4, 3, name="second")
    h = layers.max_pooling2d(h, 2, 2)
    assert h.name == "max_pooling2d/MaxPool:0"
    h = layers.flatten(h)
    h = layers.dense(h, 5)
    h = layers.dense(h, 5)
    assert h.name == "dense_1/BiasAdd:0"
    layers.batch_normalization(h)
    assert names() == [
        "conv2d/kernel",
        "conv2d/bias",
        "second/kernel",
        "second/bias",
        "dense/kernel",
        "dense/bias",
        "dense_1/kernel",
        "dense_1/bias",
        "batch_normalization/gamma",
        "batch_normalization/beta",
        "batch_normalization/moving_mean",
        "batch_normalization/moving_variance",
    ]
    assert len(trainable_variables()) == 10


def test_layers_are_named_under_variable_scopes() -> None:
    x = placeholder("float32", [None, 3])
    with variable_scope("model"):
        y = layers.dense(x, 2)
    assert names() == ["model/dense/kernel", "model/dense/bias"]
    assert y.name == "model/dense/BiasAdd:0"


def test_reuse_shares_variables() -> None:
    x = placeholder("float32", [None, 3])
    a = layers.dense(x, 2, name="d")
    b = layers.dense(x, 2, name="d", reuse=True)
    with variable_scope("s", reuse=AUTO_REUSE):
        c, d = layers.dense(x, 2, name="d"), layers.dense(x, 2, name="d")
    assert names() == ["d/kernel", "d/bias", "s/d/kernel", "s/d/bias"]
    a, b, c, d = run([a, b, c, d], {x: normal(4, 3)})
    np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(c, d)
    with pytest.raises(errors.InvalidArgumentError, match="already exists"):
        layers.dense(x, 2, name="d")
    with pytest.raises(errors.InvalidArgumentError, match="does not exist"):
        layers.dense(x, 2, name="new", reuse=True)


def test_an_object_shares_its_variables_between_calls() -> None:
    layer = layers.Dense(2, name="shared")
    with pytest.raises(errors.FailedPreconditionError):
        layer.count_params()
    a, b = layer(placeholder("float32", [None, 3])), layer.apply(placeholder("float32", [None, 3]))
    assert names() == ["shared/kernel", "shared/bias"]
    assert (a.name, b.name) == ("shared/BiasAdd:0", "shared/BiasAdd_1:0")
    assert layer.count_params() == 8
    assert layer.weights == layer.trainable_weights == [layer.kernel, layer.bias]
    assert layer.scope_name == "shared"
    with pytest.raises(errors.InvalidArgumentError, match="size 3 along axis -1, got shape"):
        layer(placeholder("float32", [None, 4]))


def test_a_layer_belongs_to_one_graph() -> None:
    layer = layers.Dense(2)
    layer(placeholder("float32", [None, 3]))
    with (
        Graph().as_default(),
        pytest.raises(errors.InvalidArgumentError, match="a graph other than"),
    ):
        layer(placeholder("float32", [None, 3]))


def test_untrainable_layers() -> None:
    layer = layers.Dense(2, trainable=False)
    layer(placeholder("float32", [None, 3]))
    assert trainable_variables() == []
    assert layer.non_trainable_weights == [layer.kernel, layer.bias]


# ------------------------------------------------------------------------------- dense


def test_dense_computes_and_takes_initializers() -> None:
    x, w = normal(4, 3), normal(3, 2)

    def initializer(shape: Any, dtype: Any = None, partition_info: Any = None) -> Any:
        return w.reshape(shape)

    y = layers.dense(x, 2, nn.relu, kernel_initializer=initializer)
    assert y.dims == (4, 2)
    np.testing.assert_allclose(run(y), np.maximum(x @ w, 0), rtol=1e-5)


def test_dense_over_the_last_axis_of_higher_ranks() -> None:
    x = normal(2, 5, 3)
    layer = layers.Dense(4, use_bias=False)
    y = layer(x)
    assert y.dims == (2, 5, 4)
    y, w = run([y, layer.kernel])
    np.testing.assert_allclose(y, x @ w, rtol=1e-5)
    assert layer.compute_output_shape([None, 3]).as_list() == [None, 4]


def test_dense_needs_a_known_size() -> None:
    for shape in (None, [], [3], [3, None]):
        with pytest.raises(errors.InvalidArgumentError, match="known last size"):
            layers.Dense(2).compute_output_shape(shape)
    with pytest.raises(errors.InvalidArgumentError, match="last size is known"):
        layers.dense(placeholder("float32", [3, None]), 2)
    with pytest.raises(errors.InvalidArgumentError, match="rank at least 2"):
        layers.dense(placeholder("float32", [3]), 2)


def test_regularizers_are_collected_once() -> None:
    x = placeholder("float32", [None, 3])
    layer = layers.Dense(2, kernel_regularizer=nn.l2_loss, activity_regularizer=nn.l2_loss)
    layer(x)
    layer(x)
    assert len(layer.get_losses_for(None)) == 1
    assert len(layer.get_losses_for(x)) == len(layer.get_losses_for([x])) == 2
    assert not layer.get_losses_for(placeholder("float32", [None, 3]))
    assert layer.activity_regularizer is nn.l2_loss
    found = get_collection(GraphKeys.REGULARIZATION_LOSSES)
    assert len(found) == 3 and found[0].name.startswith("dense/kernel/Regularizer/")
    kernel, loss = run([layer.kernel, found[0]])
    np.testing.assert_allclose(loss, (kernel**2).sum() / 2, rtol=1e-6)


# ----------------------------------------------------------------------- convolutions


@pytest.mark.parametrize(
    ("layer", "shape", "kernel", "output"),
    [
        (layers.Conv1D(4, 3, strides=2), (2, 9, 3), (3, 3, 4), (2, 4, 4)),
        (layers.Conv2D(4, (3, 2), padding="same"), (2, 5, 6, 3), (3, 2, 3, 4), (2, 5, 6, 4)),
        (layers.Conv2D(4, 3, dilation_rate=2), (2, 7, 8, 3), (3, 3, 3, 4), (2, 3, 4, 4)),
        (layers.Conv3D(2, 2), (1, 3, 4, 5, 2), (2, 2, 2, 2, 2), (1, 2, 3, 4, 2)),
        (
            layers.Conv2DTranspose(4, 3, strides=2, padding="same"),
            (2, 5, 6, 3),
            (3, 3, 4, 3),
            (2, 10, 12, 4),
        ),
        (layers.Conv2DTranspose(4, 3, strides=2), (2, 5, 6, 3), (3, 3, 4, 3), (2, 11, 13, 4)),
        (layers.Conv3DTranspose(2, 2), (1, 3, 4, 5, 2), (2, 2, 2, 2, 2), (1, 4, 5, 6, 2)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, layers.Layer) else None,
)
def test_convolutions_make_kernels_and_shapes(
    layer: Any, shape: Any, kernel: Any, output: Any
) -> None:
    layer._set_name(None)  # parameters are made outside the test's graph
    x = placeholder("float32", [None, *shape[1:]])
    y = layer(x)
    assert tuple(layer.kernel.shape.as_list()) == kernel
    assert y.dims == (None, *output[1:])
    assert layer.compute_output_shape(shape).as_list() == list(output)
    assert run(y, {x: normal(*shape)}).shape == output


def test_transposed_convolution_of_unknown_size() -> None:
    x = placeholder("float32", [None, None, 4, 2])
    y = layers.conv2d_transpose(x, 3, 3, strides=2, padding="same")
    assert y.dims == (None, None, 8, 3)
    assert run(y, {x: normal(2, 5, 4, 2)}).shape == (2, 10, 8, 3)


def test_layouts_agree() -> None:
    x = normal(2, 5, 6, 3)
    w = normal(3, 3, 3, 4)

    def initializer(shape: Any, dtype: Any = None, partition_info: Any = None) -> Any:
        return w.reshape(shape)

    last = layers.conv2d(x, 4, 3, 2, "same", kernel_initializer=initializer)
    first = layers.conv2d(
        x.transpose(0, 3, 1, 2),
        4,
        3,
        2,
        "same",
        data_format="channels_first",
        kernel_initializer=initializer,
    )
    a, b = run([last, first])
    np.testing.assert_allclose(a, b.transpose(0, 2, 3, 1), rtol=1e-4, atol=1e-5)


def test_separable_convolution() -> None:
    x = normal(2, 5, 6, 3)
    y = layers.separable_conv2d(x, 4, 3, depth_multiplier=2, padding="same", activation=nn.relu)
    assert names() == [
        f"separable_conv2d/{name}" for name in ("depthwise_kernel", "pointwise_kernel", "bias")
    ]
    assert run(y).shape == (2, 5, 6, 4)


def test_convolutions_refuse() -> None:
    x = placeholder("float32", [None, 8, 8, 3])
    for kwargs, message in (
        ({"padding": "full"}, "padding"),
        ({"data_format": "NHWC"}, "channels_first"),
        ({"strides": (1, 2, 3)}, "strides must be 2 integers"),
    ):
        with pytest.raises(errors.InvalidArgumentError, match=message):
            layers.conv2d(x, 4, 3, **kwargs)
    with pytest.raises(errors.InvalidArgumentError, match="rank 4, got shape"):
        layers.conv2d(placeholder("float32", [None, 8, 3]), 4, 3)


def test_pools() -> None:
    x = normal(2, 6, 6, 3)
    tiles = x.reshape(2, 3, 2, 3, 2, 3)
    np.testing.assert_array_equal(run(layers.max_pooling2d(x, 2, 2)), tiles.max((2, 4)))
    np.testing.assert_allclose(
        run(layers.average_pooling2d(x, 2, 2)), tiles.mean((2, 4)), rtol=1e-5, atol=1e-6
    )
    first = layers.max_pooling2d(
        x.transpose(0, 3, 1, 2), (2, 2), (2, 2), data_format="channels_first"
    )
    np.testing.assert_array_equal(run(first), tiles.max((2, 4)).transpose(0, 3, 1, 2))
    assert layers.max_pooling1d(normal(2, 6, 3), 2, 2).dims == (2, 3, 3)
    assert layers.average_pooling3d(normal(1, 4, 4, 4, 2), 2, 2, "same").dims == (1, 2, 2, 2, 2)


# ---------------------------------------------------------------------- flatten, dropout


def test_flatten() -> None:
    x = placeholder("float32", [None, 3, 4])
    assert layers.flatten(x).dims == (None, 12)
    assert layers.flatten(placeholder("float32", [2, None, 4])).dims == (2, None)
    value = normal(2, 3, 4)
    np.testing.assert_array_equal(
        run(layers.flatten(x, data_format="channels_first"), {x: value}),
        value.transpose(0, 2, 1).reshape(2, 12),
    )


def test_dropout_by_constant_and_by_tensor() -> None:
    x = np.ones((50, 50), np.float32)
    training = placeholder("bool", [])
    off, on, fed = [layers.dropout(x, 0.5, training=t) for t in (False, True, training)]
    np.testing.assert_array_equal(run(off), x)
    assert 0.4 < (run(on) == 0).mean() < 0.6
    np.testing.assert_array_equal(run(fed, {training: False}), x)
    assert set(np.unique(run(fed, {training: True}))) == {0, 2}


def test_a_fed_training_runs_one_side_only() -> None:
    x, training = placeholder("float32", [4, 3]), placeholder("bool", [])
    h = layers.batch_normalization(layers.dropout(x, 0.5, training=training), training=training)
    image = layers.batch_normalization(shapes.reshape(h, [4, 1, 1, 3]), training=training)
    value = normal(4, 3)
    on = executed(image, {x: value, training: True})
    off = executed(image, {x: value, training: False})
    assert {"RandomUniform", "SquaredDifference"} <= set(on)
    assert not {"RandomUniform", "SquaredDifference"} & set(off)
    assert on.count("FusedBatchNormV3") == off.count("FusedBatchNormV3") == 1


def executed(fetch: Any, feeds: Any) -> list[str]:
    """The op types of the nodes of the graph that a step runs."""
    from weft_graph import proto

    metadata = proto.RunMetadata()
    with Session() as session:
        session.run(global_variables_initializer())
        options = proto.RunOptions(trace_level=proto.RunOptions.FULL_TRACE)
        session.run(fetch, feeds, options, metadata)
    devices = metadata.step_stats.dev_stats
    names = {stats.node_name for device in devices for stats in device.node_stats}
    return [node.type for node in get_default_graph().nodes if node.name in names]


@pytest.mark.parametrize("shape", [(6, 3), (4, 2, 2, 3)])
def test_batch_norm_of_a_fed_training_has_the_gradients_of_each_side(shape: Any) -> None:
    x, training = placeholder("float32", shape), placeholder("bool", [])
    value, weight = normal(*shape), normal(*shape)

    def gradient(training: Any) -> Any:
        y = layers.batch_normalization(x, training=training, name="bn", reuse=AUTO_REUSE)
        return gradients(y * weight, [x, *trainable_variables()])

    on, off, fed = gradient(True), gradient(False), gradient(training)
    for known, choice in ((on, True), (off, False)):
        found = run([known, fed], {x: value, training: choice})
        for mine, other in zip(*found, strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-5)


# ------------------------------------------------------------------- batch normalization


def _moved(x: Any, axes: Any, momentum: float) -> tuple[Any, Any]:
    count = x.size / x.shape[-1]
    fused = count / (count - 1) if x.ndim == 4 else 1
    return (1 - momentum) * x.mean(axes), momentum + (1 - momentum) * x.var(axes) * fused


@pytest.mark.parametrize("shape", [(6, 3), (4, 2, 2, 3)])
@pytest.mark.parametrize("fed", [False, True])
def test_batch_norm_trains_and_infers(shape: Any, fed: bool) -> None:
    x = placeholder("float32", [None, *shape[1:]])
    training: Any = placeholder("bool", []) if fed else True
    y = layers.batch_normalization(x, momentum=0.9, training=training, name="bn")
    z = layers.batch_normalization(x, training=False, name="bn", reuse=True)
    updates = get_collection(GraphKeys.UPDATE_OPS)
    assert len(updates) == 2
    value = normal(*shape) * 3 + 1
    axes = tuple(range(len(shape) - 1))
    moving = global_variables()[2:]
    with Session() as session:
        session.run(global_variables_initializer())
        feeds = {x: value, training: True} if fed else {x: value}
        got = session.run(y, feeds)
        want = (value - value.mean(axes)) / np.sqrt(value.var(axes) + 1e-3)
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)
        session.run(updates, feeds)
        mean, variance = session.run(moving)
        wanted = _moved(value, axes, 0.9)
        np.testing.assert_allclose(mean, wanted[0], rtol=1e-4)
        np.testing.assert_allclose(variance, wanted[1], rtol=1e-4)
        inferred = session.run(z, feeds)
        want = (value - mean) / np.sqrt(variance + 1e-3)
        np.testing.assert_allclose(inferred, want, rtol=1e-3, atol=1e-4)
        if fed:
            off = {x: value, training: False}
            np.testing.assert_allclose(session.run(y, off), want, rtol=1e-3, atol=1e-4)
            session.run(updates, off)
            np.testing.assert_allclose(session.run(moving[0]), mean, rtol=1e-6)


def test_batch_norm_with_channels_first() -> None:
    value = normal(4, 3, 2, 2)
    for fused in (True, False):
        y = layers.batch_normalization(value, axis=1, training=True, fused=fused)
        want = value - value.mean((0, 2, 3), keepdims=True)
        want /= np.sqrt(value.var((0, 2, 3), keepdims=True) + 1e-3)
        np.testing.assert_allclose(run(y), want, rtol=1e-3, atol=1e-4)


def test_batch_norm_without_center_and_scale_has_gradients() -> None:
    x = placeholder("float32", [4, 2, 2, 3])
    y = layers.batch_normalization(x, center=False, scale=False, training=True)
    assert names() == [f"batch_normalization/moving_{name}" for name in ("mean", "variance")]
    (g,) = gradients(y, [x])
    np.testing.assert_allclose(run(g, {x: normal(4, 2, 2, 3)}), 0, atol=1e-5)


def test_batch_norm_refuses() -> None:
    variants: list[tuple[dict[str, Any], str]] = [
        ({"renorm": True, "fused": True}, "does not support renorm"),
        ({"renorm": True, "renorm_clipping": {"max": 1.0}}, "got \\['max'\\]"),
        ({"virtual_batch_size": 0}, "must be positive"),
        ({"virtual_batch_size": 1, "axis": 0}, "does not contain 0"),
        (
            {"virtual_batch_size": 1, "adjustment": lambda shape: (1.0, 0.0)},
            "combined with adjustment",
        ),
    ]
    for options, message in variants:
        with pytest.raises(errors.InvalidArgumentError, match=message):
            layers.batch_normalization(normal(2, 3), **options)
    with pytest.raises(errors.InvalidArgumentError, match="rank 4 and axis 1 or 3"):
        layers.batch_normalization(normal(2, 3), fused=True)
    with pytest.raises(errors.InvalidArgumentError, match="known sizes"):
        layers.batch_normalization(placeholder("float32", [2, None]))


# ------------------------------------------------------------------------- own layers


def test_a_subclass() -> None:
    class Scale(layers.Layer):
        def build(self, input_shape: Any) -> None:
            self.factor = self.add_variable("factor", [input_shape.as_list()[-1]])
            super().build(input_shape)

        def call(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            return inputs * self.factor

    layer = Scale(name="mine")
    y = layer(placeholder("float64", [2, 3]))
    assert names() == ["mine/factor"]
    assert layer.dtype.name == "float64" and y.dtype.name == "float64"
    assert layers.Layer().name == "layer" and layers.Layer().name == "layer_1"


def test_a_weight_that_is_synchronized_when_read_is_not_trainable() -> None:
    layer = layers.Layer()
    on_read = VariableSynchronization.ON_READ
    weight = layer.add_weight("w", [2], synchronization=on_read)
    assert not weight.trainable and trainable_variables() == []
    assert layer.non_trainable_weights == [weight] and layer.trainable_weights == []
    with pytest.raises(errors.InvalidArgumentError, match="'v' cannot be trainable"):
        layer.add_weight("v", [2], trainable=True, synchronization=on_read)


def test_variables_of_a_build_by_itself_are_in_the_scope_of_the_layer() -> None:
    first, second = layers.Dense(2), layers.Dense(3, name="named")
    for layer in (first, second):
        layer.build(TensorShape([None, 4]))
    names = ["dense/kernel:0", "dense/bias:0", "named/kernel:0", "named/bias:0"]
    assert [v.name for v in global_variables()] == names
    first.built = True
    assert first(normal(5, 4)).op.name == "dense/BiasAdd"


def test_a_misspelt_argument_is_told() -> None:
    for use, message in (
        (lambda: layers.Dense(3, activaton=None), "Dense has no argument 'activaton'.*activation"),
        (lambda: layers.Conv2D(3, 2, strids=1), "Conv2D has no argument 'strids'.*strides"),
        (
            lambda: wf.Variable(1.0, trainble=False),
            "Variable has no argument 'trainble'.*trainable",
        ),
        (lambda: wf.raw_ops.MatMul(a=1, b=1, transpos_a=True), "MatMul has no.*transpose_a"),
    ):
        with pytest.raises(errors.InvalidTypeError, match=message):
            use()


def test_a_vector_is_flattened_to_a_column() -> None:
    x = wf.placeholder(wf.float32, [None])
    flat = wf.layers.flatten(x)
    assert flat.shape.as_list() == [None, 1]
    assert wf.Session().run(flat, {x: [1, 2, 3]}).tolist() == [[1], [2], [3]]

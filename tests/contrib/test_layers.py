"""Layers, `arg_scope` and slim: names of variables, and results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_contrib import framework, layers, losses, slim, utils
from weft_tensor import errors


def names() -> list[str]:
    return [variable.op.name for variable in wf.global_variables()]


def run(fetches: Any) -> Any:
    with wf.Session() as session:
        session.run(wf.global_variables_initializer())
        return session.run(fetches)


def test_a_network_of_slim_has_tensorflows_names() -> None:
    weights = slim.l2_regularizer(0.1)
    conv = [slim.conv2d, slim.fully_connected]
    with (
        slim.arg_scope(conv, normalizer_fn=slim.batch_norm, weights_regularizer=weights),
        slim.arg_scope([slim.batch_norm], scale=True),
        slim.arg_scope([slim.conv2d], outputs_collections="points") as scope,
    ):
        net = slim.conv2d(wf.ones([2, 8, 8, 3]), 4, [3, 3], scope="conv1")
        net = slim.max_pool2d(net, 2)
        net = slim.repeat(net, 2, slim.conv2d, 4, [3, 3], scope="conv2")
        net = slim.flatten(net)
        net = slim.fully_connected(net, 5, normalizer_fn=None, activation_fn=None, scope="logits")
    of_conv = ["weights", *(f"BatchNorm/{n}" for n in ("gamma", "beta"))]
    of_conv += [f"BatchNorm/moving_{n}" for n in ("mean", "variance")]
    expected = [f"{s}/{n}" for s in ("conv1", "conv2/conv2_1", "conv2/conv2_2") for n in of_conv]
    assert names() == [*expected, "logits/weights", "logits/biases"]
    assert len(wf.losses.get_regularization_losses()) == 4
    assert len(wf.get_collection(wf.GraphKeys.UPDATE_OPS)) == 6
    assert wf.model_variables() == wf.global_variables()
    points = utils.convert_collection_to_dict("points")
    assert list(points) == ["conv1", "conv2/conv2_1", "conv2/conv2_2"]
    with slim.arg_scope(scope):
        assert slim.conv2d(points["conv1"], 4, 1).op.type == "Relu"
    assert run(net).shape == (2, 5)
    assert slim.model_analyzer.analyze_vars(wf.trainable_variables())[1] > 0


def test_layers_compute_what_they_say() -> None:
    x = np.random.default_rng(0).normal(size=(4, 6)).astype("f")
    ones = wf.ones_initializer()
    dense = layers.fully_connected(x, 3, weights_initializer=ones, biases_initializer=ones)
    normed = layers.layer_norm(x)
    image = x.reshape(2, 2, 2, 3)
    instance = layers.instance_norm(image)
    separable = layers.separable_conv2d(
        image, None, 1, depth_multiplier=2, weights_initializer=ones, activation_fn=None
    )
    transposed = layers.conv2d_transpose(image, 2, 2, stride=2, padding="VALID")
    with wf.control_dependencies([layers.batch_norm(x, decay=0.5, updates_collections=None)]):
        mean = wf.get_default_graph().get_tensor_by_name("BatchNorm/moving_mean/read:0") + 0.0
    embedded = [layers.embed_sequence([[1, 2], [2, 2]], 3, 4, unique=u) for u in (False, True)]
    found = run([dense, normed, instance, separable, transposed, mean, *embedded])
    np.testing.assert_allclose(found[0], np.maximum(x.sum(1, keepdims=True) + np.ones(3), 0), 1e-4)
    np.testing.assert_allclose(found[1].mean(1), 0, atol=1e-5)
    np.testing.assert_allclose(found[1].std(1), 1, atol=1e-4)
    np.testing.assert_allclose(found[2].mean((1, 2)), 0, atol=1e-5)
    np.testing.assert_allclose(found[3], np.repeat(image, 2, -1), atol=1e-6)
    assert found[4].shape == (2, 4, 4, 2)
    assert found[6].shape == found[7].shape == (2, 2, 4)
    with pytest.raises(errors.InvalidArgumentError, match="rank 4"):
        layers.conv2d(x, 2, 3)
    with pytest.raises(errors.InvalidArgumentError, match="embed_dim"):
        layers.embed_sequence([[1]], 3)


@pytest.mark.parametrize("uniform", [False, True])
def test_the_variance_of_initializers(uniform: bool) -> None:
    he = layers.variance_scaling_initializer(uniform=uniform, seed=1)([200, 100])
    xavier = layers.xavier_initializer(uniform, seed=1)([200, 100])
    found = run([he, xavier])
    np.testing.assert_allclose(found[0].var(), 2.0 / 200, rtol=0.05)
    np.testing.assert_allclose(found[1].var(), 1.0 / 150, rtol=0.05)


def test_arg_scopes_refuse_what_they_cannot_give() -> None:
    with (
        pytest.raises(errors.InvalidTypeError, match="no argument 'nonsense'"),
        slim.arg_scope([slim.conv2d], nonsense=1),
    ):
        pass
    with pytest.raises(errors.InvalidArgumentError, match="add_arg_scope"), slim.arg_scope([len]):
        pass
    assert framework.has_arg_scope(slim.conv2d) and not framework.has_arg_scope(len)


def test_steps_of_training() -> None:
    v = wf.Variable(2.0, name="v")
    loss = wf.square(v)
    by_layers = layers.optimize_loss(
        loss, wf.train.get_or_create_global_step(), 0.1, "SGD", clip_gradients=1.0
    )
    by_slim = slim.learning.create_train_op(loss, wf.train.GradientDescentOptimizer(0.1))
    older = losses.mean_squared_error([1.0, 2.0], [1.0, 4.0])
    with wf.Session() as session:
        session.run(wf.global_variables_initializer())
        session.run(by_layers)
        np.testing.assert_allclose(session.run(v), 1.9, rtol=1e-6)
        session.run(by_slim)
        np.testing.assert_allclose(session.run(v), 1.9 - 0.38, rtol=1e-6)
        assert session.run(wf.train.get_global_step()) == 2
        assert session.run(older) == 2.0
    assert "OptimizeLoss/learning_rate" in names()


def test_values_from_checkpoints_and_arrays(tmp_path: Any) -> None:
    a, b = wf.Variable([1.0, 2.0], name="scope/a"), wf.Variable(3.0, name="b")
    path = str(tmp_path / "model")
    with wf.Session() as session:
        session.run(wf.global_variables_initializer())
        wf.train.Saver([a]).save(session, path)
        session.run(framework.assign_from_values({"b": 7.0})[0], {"placeholder/b:0": 7.0})
        session.run(a.assign([0.0, 0.0]))
        framework.assign_from_checkpoint_fn(path, [a, b], ignore_missing_vars=True)(session)
        assert session.run([a, b])[0].tolist() == [1.0, 2.0] and session.run(b) == 7.0
        with pytest.raises(errors.NotFoundError, match="'b'"):
            framework.assign_from_checkpoint(path, [b])
    assert framework.list_variables(path) == [("scope/a", [2])]
    assert framework.get_variables("scope") == framework.get_variables_by_name("a") == [a]
    assert framework.get_variables_to_restore(exclude=["scope"]) == [b]
    assert framework.filter_variables([a, b], exclude_patterns=["^b"]) == [a]

"""`enable_mixed_precision_graph_rewrite`: loss scaling and products in a short type."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_tensor import errors

experimental = wf.train.experimental


@pytest.fixture(autouse=True)
def disable() -> Iterator[None]:
    with wf.Graph().as_default():
        yield
    experimental.disable_mixed_precision_graph_rewrite()


def is_rounded(config: Any = None, target: str = "") -> bool:
    """Return True if a session rounds the operands of a product to bfloat16."""
    with wf.Graph().as_default():
        x = wf.placeholder(wf.float32, [1, 1])
        product = wf.matmul(x, x)
        with wf.Session(target, config=config) as session:
            return float(session.run(product, {x: [[1.0 + 2.0**-10]]})[0, 0]) == 1.0


def test_new_sessions_compute_products_in_bfloat16_until_it_is_disabled() -> None:
    assert not is_rounded()
    experimental.enable_mixed_precision_graph_rewrite(wf.train.AdamOptimizer())
    assert is_rounded()
    assert is_rounded(wf.ConfigProto())
    config = wf.ConfigProto()
    config.graph_options.rewrite_options.auto_mixed_precision_mkl = 2  # off
    assert not is_rounded(config)
    experimental.disable_mixed_precision_graph_rewrite()
    assert not is_rounded()


def test_a_config_turns_it_on_for_one_session() -> None:
    config = wf.ConfigProto()
    config.graph_options.rewrite_options.auto_mixed_precision_onednn_bfloat16 = 1
    assert is_rounded(config)
    assert not is_rounded()


def test_servers_compute_in_mixed_precision() -> None:
    with closing(wf.train.Server.create_local_server()) as server:
        experimental.enable_mixed_precision_graph_rewrite(wf.train.AdamOptimizer())
        assert is_rounded(target=server.target)
        experimental.disable_mixed_precision_graph_rewrite()
        assert not is_rounded(target=server.target)


def test_other_options_are_kept() -> None:
    wf.config.optimizer.set_experimental_options({"constant_folding": False})
    experimental.enable_mixed_precision_graph_rewrite(wf.train.AdamOptimizer())
    assert wf.config.optimizer.get_experimental_options()["constant_folding"] is False
    experimental.disable_mixed_precision_graph_rewrite()
    assert wf.config.optimizer.get_experimental_options() == {"constant_folding": False}
    wf.config.optimizer.set_experimental_options({})


def train(make: Any, num_steps: int) -> tuple[float, set[Any]]:
    """Return the last loss of a small network, and the types of its variables."""
    with wf.Graph().as_default():
        wf.set_random_seed(1)
        x, target = wf.placeholder(wf.float32, [64, 8]), wf.placeholder(wf.float32, [64, 1])
        hidden = wf.layers.dense(x, 32, activation=wf.nn.relu)
        loss = wf.reduce_mean(wf.square(wf.layers.dense(hidden, 1) - target))
        step = make(wf.train.AdamOptimizer(0.02)).minimize(loss)
        inputs = np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32)
        feeds = {x: inputs, target: inputs.sum(1, keepdims=True)}
        with wf.Session() as session:
            session.run(wf.global_variables_initializer())
            for _ in range(num_steps):
                _, value = session.run([step, loss], feeds)
        return float(value), {variable.dtype.base_dtype for variable in wf.trainable_variables()}


@pytest.mark.parametrize("scale", ["dynamic", 64.0, experimental.FixedLossScale(8.0)])
def test_a_network_is_trained_with_float32_variables(scale: Any) -> None:
    wide, _ = train(lambda opt: opt, 5)
    value, types = train(
        lambda opt: experimental.enable_mixed_precision_graph_rewrite(opt, scale), 5
    )
    assert value != wide
    assert value == pytest.approx(wide, rel=0.02)
    assert types == {wf.float32}


def test_what_is_not_accepted() -> None:
    with pytest.raises(errors.InvalidTypeError, match="must be an optimizer, got 3"):
        experimental.enable_mixed_precision_graph_rewrite(3)
    inner = wf.train.AdamOptimizer()
    scaled = experimental.MixedPrecisionLossScaleOptimizer(inner, "dynamic")
    with pytest.raises(errors.InvalidArgumentError, match="already a MixedPrecision"):
        experimental.enable_mixed_precision_graph_rewrite(scaled)
    with pytest.raises(errors.InvalidArgumentError, match="'static'"):
        experimental.enable_mixed_precision_graph_rewrite(inner, "static")
    assert not is_rounded()

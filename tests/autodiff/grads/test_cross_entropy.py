"""Gradients of cross entropies compute only the gradients that are needed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft as wf

LOGITS = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)


def sparse(x: Any) -> Any:
    return wf.nn.sparse_softmax_cross_entropy_with_logits(labels=wf.constant([1, 0, 3]), logits=x)


def dense(x: Any) -> Any:
    labels = wf.one_hot([1, 0, 3], 4)
    return wf.nn.softmax_cross_entropy_with_logits_v2(labels=wf.stop_gradient(labels), logits=x)


@pytest.mark.parametrize("losses", [sparse, dense])
def test_the_gradient_is_one_product(losses: Any) -> None:
    """The op's second result is that already: zeros once flowed back into it, through a softmax."""
    with wf.Graph().as_default() as graph:
        x = wf.placeholder(wf.float32, [3, 4])
        loss = wf.reduce_sum(losses(x))
        before = set(graph.get_operations())
        (gradient,) = wf.gradients(loss, x)
        added = {operation.type for operation in set(graph.get_operations()) - before}
        assert "Softmax" not in added
        with wf.Session() as session:
            got = session.run(gradient, {x: LOGITS})
    soft = np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True)
    np.testing.assert_allclose(got, soft - np.eye(4)[[1, 0, 3]], atol=1e-6)


@pytest.mark.parametrize("losses", [sparse, dense])
def test_it_can_be_differentiated_again(losses: Any) -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.constant(LOGITS)
        (first,) = wf.gradients(losses(x), x)
        (second,) = wf.gradients(wf.reduce_sum(first[:, 0]), x)
        soft = np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True)
        want = soft[:, :1] * (np.eye(4)[0] - soft)
        np.testing.assert_allclose(session.run(second), want, atol=1e-6)

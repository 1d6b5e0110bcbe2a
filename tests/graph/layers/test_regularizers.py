"""Regularizers: values, scopes, collections."""

from __future__ import annotations

import numpy as np
import pytest

from weft_exec.session.session import Session
from weft_graph.ir.builder import constant
from weft_graph.ir.collections_keys import GraphKeys, get_collection
from weft_graph.ir.graph import Graph
from weft_graph.layers import regularizers
from weft_tensor import errors

W = np.array([[1.0, -2.0], [0.0, 3.0]], np.float32)


def test_values() -> None:
    with Graph().as_default(), Session() as session:
        l1 = regularizers.l1_regularizer(0.5)
        l2 = regularizers.l2_regularizer(0.1)
        both = regularizers.l1_l2_regularizer(0.5, 0.1)
        got = session.run([f(constant(W)) for f in (l1, l2, both)])
        np.testing.assert_allclose(got, [3.0, 0.7, 3.7], rtol=1e-6)


def test_zero_scales_and_bad_ones() -> None:
    assert regularizers.l2_regularizer(0.0)(W) is None
    for scale in (-1.0, 1):
        with pytest.raises(errors.InvalidArgumentError, match="scale must be"):
            regularizers.l1_regularizer(scale)


def test_application_is_collected() -> None:
    with Graph().as_default() as graph, Session() as session:
        graph.add_to_collection(GraphKeys.WEIGHTS, constant(W))
        total = regularizers.apply_regularization(regularizers.l2_regularizer(1.0))
        assert get_collection(GraphKeys.REGULARIZATION_LOSSES) == [total]
        assert session.run(total) == 7.0

"""Fractional pools, transposed convolutions, regrouped windows, dropout, average losses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from weft_testing.cases import normal

import weft as wf


@pytest.mark.parametrize("pseudo", [False, True])
@pytest.mark.parametrize("kind", ["avg", "max"])
def test_fractional_pools(kind: str, pseudo: bool) -> None:
    image = normal(2, 11, 9, 2)
    pool = getattr(wf.nn, f"fractional_{kind}_pool")
    with wf.Graph().as_default(), wf.Session() as session:
        drawn = pool(image, [1, 1.6, 1.3, 1], pseudo, overlapping=True, seed=5)
        fixed = pool(image, [1, 1.6, 1.3, 1], pseudo, deterministic=True)
        first, second = (session.run(drawn) for _ in range(2))
        assert session.run(fixed).output.tolist() == session.run(fixed).output.tolist()
    fold = np.mean if kind == "avg" else np.max
    assert any((first[i] != second[i]).any() for i in (1, 2))
    for y, rows, columns in (first, second):
        assert set(np.diff(rows)) <= {1, 2} and set(np.diff(columns)) <= {1, 2}
        assert (rows[0], rows[-1], columns[-1]) == (0, 11, 9)
        for i, j in np.ndindex(*y.shape[1:3]):
            block = image[:, rows[i] : rows[i + 1] + 1, columns[j] : columns[j + 1] + 1]
            np.testing.assert_allclose(y[:, i, j], fold(block, axis=(1, 2)), rtol=1e-6)


def test_fractional_ratios_must_fit() -> None:
    with wf.Graph().as_default():
        for ratio in ([1, 0.5, 1, 1], [2, 1, 1, 1], [1, 9, 1, 1]):
            with pytest.raises(wf.errors.InvalidArgumentError, match="pooling_ratio"):
                wf.nn.fractional_max_pool(np.ones((1, 4, 4, 1)), ratio)


@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_conv_transpose_is_the_adjoint_of_convolution(spatial: int) -> None:
    x, kernel = normal(2, *(6,) * spatial, 3), normal(*(2,) * spatial, 3, 4)
    with wf.Graph().as_default(), wf.Session() as session:
        y = wf.nn.convolution(x, kernel, "SAME", strides=[2] * spatial)
        g = normal(*y.shape.as_list(), seed=1)
        back = wf.nn.conv_transpose(g, kernel, x.shape, 2)
        left, right = session.run([wf.reduce_sum(y * g), wf.reduce_sum(back * x)])
        dynamic = wf.placeholder_with_default(list(x.shape), [spatial + 2])
        again = session.run(wf.nn.conv_transpose(g, kernel, dynamic, 2))
    assert left == pytest.approx(right)
    assert again.shape == x.shape


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_with_space_to_batch_dilates(padding: str) -> None:
    image, kernel = normal(2, 7, 8, 2), normal(3, 2, 2, 3)

    def op(x: Any, axes: int, padding: str) -> Any:
        assert axes == 2
        return wf.nn.conv2d(x, kernel, 1, padding)

    with wf.Graph().as_default(), wf.Session() as session:
        unknown = wf.placeholder_with_default(image, [None, None, None, 2])
        found = wf.nn.with_space_to_batch(unknown, [2, 3], padding, op, [3, 2])
        wanted = wf.nn.convolution(image, kernel, padding, dilation_rate=[2, 3])
        np.testing.assert_allclose(*session.run([found, wanted]), rtol=1e-9, atol=1e-12)
        with pytest.raises(wf.errors.InvalidArgumentError, match="one rate for each"):
            wf.nn.with_space_to_batch(unknown, [2], padding, op, spatial_dims=[1, 2])


def test_erosion_is_the_minimum() -> None:
    image, kernel = normal(1, 5, 5, 1), normal(3, 3, 1)
    with wf.Graph().as_default(), wf.Session() as session:
        found = session.run(wf.nn.erosion2d(image, kernel, [1] * 4, [1] * 4, "VALID"))
    wanted = [
        (image[0, i : i + 3, j : j + 3, 0] - kernel[::-1, ::-1, 0]).min()
        for i in range(3)
        for j in range(3)
    ]
    np.testing.assert_allclose(found.ravel(), wanted)


def test_stateless_dropout_depends_on_its_seed() -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.ones([400])
        same = [wf.nn.experimental.stateless_dropout(x, 0.25, [3, 4]) for _ in range(2)]
        a, b, c = session.run([*same, wf.nn.experimental.stateless_dropout(x, 0.25, [3, 5])])
    assert (a == b).all() and (a != c).any()
    assert set(a.round(4)) == {0.0, np.float32(1.3333)} and 200 < (a > 0).sum() < 380


def test_average_losses() -> None:
    losses = np.array([[1.0, 2.0], [3.0, 4.0]])
    with wf.Graph().as_default(), wf.Session() as session:
        average = wf.nn.compute_average_loss
        found = [average(losses), average(losses, [1, 2]), average(losses, None, 4)]
        assert session.run(found) == [5.0, 8.5, 2.5]
        with pytest.raises(wf.errors.InvalidArgumentError, match="rank 1 or more"):
            average(1.0)


@pytest.mark.parametrize("dtype", ["int32", "bool", "float64"])
def test_labels_take_the_type_of_the_logits(dtype: str) -> None:
    labels = np.eye(3)
    with wf.Graph().as_default(), wf.Session() as session:
        logits = wf.constant(normal(3, 3), wf.float32)
        given = wf.constant(labels.astype(dtype))
        for loss in (
            wf.nn.sigmoid_cross_entropy_with_logits,
            wf.nn.softmax_cross_entropy_with_logits_v2,
        ):
            found = session.run([loss(labels=value, logits=logits) for value in (given, labels)])
            assert found[0].dtype == np.float32 and (found[0] == found[1]).all()

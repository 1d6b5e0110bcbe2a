"""Compositions of nn: values against NumPy, shapes, errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from weft_autodiff.gradients.backprop import gradients
from weft_exec.session.session import Session
from weft_graph import nn
from weft_graph.ir.builder import constant, convert_to_tensor
from weft_graph.ir.graph import Graph
from weft_graph.ir.indexed_slices import IndexedSlices, SparseTensor
from weft_graph.ops.array import placeholder, placeholder_with_default
from weft_graph.ops.space_to_batch import extract_image_patches
from weft_graph.variables.reference import Variable, global_variables_initializer
from weft_tensor import dtypes, errors

RNG = np.random.default_rng(7)


@pytest.fixture(autouse=True)
def graph() -> Iterator[Graph]:
    with Graph().as_default() as g:
        yield g


def run(fetches: Any, feeds: Any = None) -> Any:
    with Session() as session:
        session.run(global_variables_initializer())
        return session.run(fetches, feeds)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


# ------------------------------------------------------------------------ convolutions


def test_conv2d_names_both_depths_at_construction() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="depth 3 to equal filter depth 4") as e:
        nn.conv2d(placeholder("float32", [1, 8, 8, 3]), normal(3, 3, 4, 2), 1, "SAME")
    assert e.value.op_type == "Conv2D"
    assert "test_nn.py" in (e.value.line or "")


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"strides": [2, 1, 1, 1], "padding": "SAME"}, "strides of 1 for the batch"),
        ({"strides": [1, 2], "padding": "FULL"}, "padding"),
        ({"strides": 1, "padding": [[1, 0], [0, 0], [0, 0], [0, 0]]}, "cannot pad the batch"),
        ({"strides": [1, 2, 3], "padding": "SAME"}, "strides requires 1, 2 or 4"),
        ({"strides": 1, "padding": "VALID", "dilations": 8}, "must fit into the padded input"),
    ],
)
def test_conv2d_refuses(kwargs: Any, message: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=message):
        nn.conv2d(placeholder("float32", [1, 5, 5, 2]), normal(3, 3, 2, 2), **kwargs)


def test_conv2d_keeps_unknown_sizes() -> None:
    x = placeholder("float32", [None, None, 8, 3])
    assert nn.conv2d(x, normal(3, 3, 3, 4), 2, "SAME").dims == (None, None, 4, 4)
    assert nn.max_pool(x, 3, 2, "VALID").dims == (None, None, 3, 3)


def test_pools_of_no_images_are_empty() -> None:
    x = placeholder("float32", [None, 4, 4, 3])
    for pool in (nn.max_pool, nn.avg_pool):
        y = pool(x, 2, 2, "VALID")
        assert run(y, {x: np.zeros((0, 4, 4, 3), np.float32)}).shape == (0, 2, 2, 3)


def test_depth_is_checked_at_run_time_too() -> None:
    x = placeholder("float32", [None, None, None, None])
    y = nn.conv2d(x, normal(2, 2, 3, 1), 1, "SAME")
    with pytest.raises(errors.InvalidArgumentError, match="input depth 2 to equal filter depth 3"):
        run(y, {x: normal(1, 4, 4, 2)})


def test_conv1d_is_conv2d_of_height_one() -> None:
    x, w = normal(2, 7, 3), normal(3, 3, 4)
    got, want = run(
        [
            nn.conv1d(x, w, 2, "SAME"),
            nn.conv2d(x[:, None], w[None], [1, 1, 2, 1], "SAME"),
        ]
    )
    np.testing.assert_allclose(got, want[:, 0], rtol=1e-6)
    first = run(nn.conv1d(x.transpose(0, 2, 1), w, 2, "SAME", data_format="NCW"))
    np.testing.assert_allclose(first.transpose(0, 2, 1), got, rtol=1e-5, atol=1e-6)


def test_convolution_takes_its_rank_from_the_input() -> None:
    x, w = normal(1, 6, 6, 2), normal(3, 3, 2, 3)
    a = nn.convolution(x, w, "SAME", strides=[2, 2])
    b = nn.conv2d(x, w, 2, "SAME")
    c = nn.convolution(x, w, "VALID", dilation_rate=2)
    d = nn.atrous_conv2d(x, w, 2, "VALID")
    a, b, c, d = run([a, b, c, d])
    np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(c, d)
    with pytest.raises(errors.InvalidArgumentError, match="the same rank from 3 to 5"):
        nn.convolution(normal(1, 2), w, "SAME")


def test_transposed_convolution_is_the_gradient() -> None:
    x, w = placeholder("float32", [2, 6, 6, 3]), normal(3, 3, 3, 4)
    y = nn.conv2d(x, w, 2, "SAME")
    g = normal(2, 3, 3, 4)
    (by_x,) = gradients(y, [x], [constant(g)])
    transposed = nn.conv2d_transpose(g, w, [2, 6, 6, 3], 2)
    assert transposed.dims == (2, 6, 6, 3)
    a, b = run([by_x, transposed], {x: normal(2, 6, 6, 3)})
    np.testing.assert_array_equal(a, b)


def test_conv1d_transpose_takes_a_dynamic_shape() -> None:
    x, w = normal(2, 4, 3), normal(3, 5, 3)
    static = nn.conv1d_transpose(x, w, [2, 8, 5], 2)
    shape = placeholder("int32", [3])
    got, want = run([nn.conv1d_transpose(x, w, shape, 2), static], {shape: [2, 8, 5]})
    np.testing.assert_array_equal(got, want)
    assert static.dims == (2, 8, 5)


def test_separable_convolution_is_two_convolutions() -> None:
    x, depthwise, pointwise = normal(2, 5, 5, 3), normal(3, 3, 3, 2), normal(1, 1, 6, 4)
    got = nn.separable_conv2d(x, depthwise, pointwise, [1, 1, 1, 1], "SAME")
    middle = nn.depthwise_conv2d(x, depthwise, [1, 1, 1, 1], "SAME")
    a, b = run([got, nn.conv2d(middle, pointwise, 1, "VALID")])
    np.testing.assert_array_equal(a, b)
    with pytest.raises(errors.InvalidArgumentError, match="pointwise_filter"):
        nn.separable_conv2d(x, depthwise, normal(2, 1, 6, 4), [1, 1, 1, 1], "SAME")


def test_narrow_types_are_convolved_in_float32() -> None:
    x, w = normal(1, 4, 4, 64), normal(3, 3, 64, 2)
    wide = run(nn.conv2d(x, w, 1, "SAME"))
    for kind in (dtypes.float16, dtypes.bfloat16):
        narrow = nn.conv2d(x.astype(kind.numpy), w.astype(kind.numpy), 1, "SAME")
        assert narrow.dtype is kind
        np.testing.assert_allclose(run(narrow).astype(np.float32), wide, rtol=0.05, atol=0.3)


# ------------------------------------------------------------------------------- pools


def test_pools_in_one_axis_and_by_name() -> None:
    x = normal(2, 6, 3)
    a, b = run([nn.max_pool1d(x, 2, 2, "VALID"), nn.pool(x, [2], "MAX", "VALID", strides=[2])])
    np.testing.assert_array_equal(a, x.reshape(2, 3, 2, 3).max(2))
    np.testing.assert_array_equal(a, b)
    with pytest.raises(errors.InvalidArgumentError, match="'MAX' or 'AVG'"):
        nn.pool(x, [2], "MIN", "VALID")


def test_a_dilated_pool_skips_positions() -> None:
    x = normal(1, 7, 6, 2)
    got = run(nn.pool(x, [2, 2], "MAX", "VALID", dilation_rate=[3, 2]))
    want = np.maximum.reduce([x[:, i : i + 4, j : j + 4] for i in (0, 3) for j in (0, 2)])
    np.testing.assert_array_equal(got, want)


def test_the_gradient_of_a_tie_goes_to_the_first() -> None:
    x = placeholder("float32", [1, 2, 2, 1])
    (g,) = gradients(nn.max_pool(x, 2, 2, "VALID"), [x])
    assert run(g, {x: np.zeros((1, 2, 2, 1))}).ravel().tolist() == [1, 0, 0, 0]


def test_a_nan_is_the_maximum_of_its_window() -> None:
    x = placeholder("float32", [1, 1, 4, 1])
    y = nn.max_pool(x, [1, 2], [1, 2], "VALID")
    (g,) = gradients(y, [x])
    value, slope = run([y, g], {x: np.reshape([1, np.nan, 2, 1], (1, 1, 4, 1))})
    assert np.isnan(value.ravel()[0]) and value.ravel()[1] == 2
    assert slope.ravel().tolist() == [0, 1, 1, 0]


def test_argmax_counts_within_the_image() -> None:
    x = np.arange(32, dtype=np.float32).reshape(2, 4, 4, 1)
    _, inside = nn.max_pool_with_argmax(x, 2, 2, "VALID")
    _, whole = nn.max_pool_with_argmax(x, 2, 2, "VALID", include_batch_in_index=True)
    a, b = run([inside, whole])
    assert a[0].ravel().tolist() == a[1].ravel().tolist() == [5, 7, 13, 15]
    assert b[1].ravel().tolist() == [21, 23, 29, 31]


# ------------------------------------------------------------------- activations, losses


def test_small_layers() -> None:
    x, w, b = normal(3, 4), normal(4, 2), normal(2)
    got = run([nn.xw_plus_b(x, w, b), nn.relu_layer(x, w, b), nn.swish(x), nn.crelu(x)])
    np.testing.assert_allclose(got[0], x @ w + b, rtol=1e-5)
    np.testing.assert_allclose(got[1], np.maximum(x @ w + b, 0), rtol=1e-5)
    np.testing.assert_allclose(got[2], x / (1 + np.exp(-x)), rtol=1e-5)
    np.testing.assert_array_equal(got[3], np.maximum(np.concatenate([x, -x], -1), 0))
    assert run(nn.zero_fraction(np.array([0, 1, 0, 4]))) == 0.5


def test_softmax_along_another_axis() -> None:
    x = normal(3, 4, 5)
    want = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    np.testing.assert_allclose(run(nn.softmax(x, axis=1)), want, rtol=1e-5)
    np.testing.assert_allclose(run(nn.log_softmax(x, axis=1)), np.log(want), rtol=1e-4, atol=1e-5)


def test_cross_entropies_of_higher_rank() -> None:
    x, labels = normal(2, 3, 5), RNG.integers(0, 5, (2, 3))
    log_soft = x - np.log(np.exp(x).sum(-1, keepdims=True))
    want = -np.take_along_axis(log_soft, labels[..., None], -1)[..., 0]
    sparse = nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=x)
    dense = nn.softmax_cross_entropy_with_logits(labels=np.eye(5)[labels].astype("f"), logits=x)
    assert sparse.dims == dense.dims == (2, 3)
    for got in run([sparse, dense]):
        np.testing.assert_allclose(got, want, rtol=1e-5)
    rows = np.eye(5, dtype="f")[labels]
    for axis in (0, 1, 2, -1, -2, -3):
        moved = nn.softmax_cross_entropy_with_logits_v2(
            placeholder_with_default(np.moveaxis(rows, -1, axis), None),
            np.moveaxis(x, -1, axis),
            axis=axis,
        )
        assert moved.dims == (2, 3)
        np.testing.assert_allclose(run(moved), want, rtol=1e-5)
    with pytest.raises(errors.InvalidArgumentError, match="known rank"):
        nn.softmax_cross_entropy_with_logits_v2(rows, placeholder("float32"), axis=0)


def test_a_label_out_of_range_is_named() -> None:
    labels = placeholder("int64", [None])
    loss = nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=normal(2, 10))
    with pytest.raises(errors.InvalidArgumentError, match=r"label value of 10 .* \[0, 10\)") as e:
        run(loss, {labels: [3, 10]})
    assert e.value.op_type == "SparseSoftmaxCrossEntropyWithLogits"


def test_cross_entropies_want_names() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="named arguments"):
        nn.softmax_cross_entropy_with_logits(normal(2, 3), normal(2, 3))
    with pytest.raises(errors.InvalidArgumentError, match="one less"):
        nn.sparse_softmax_cross_entropy_with_logits(labels=[[1]], logits=normal(1, 3))


def test_sigmoid_cross_entropy_at_extremes_and_at_zero() -> None:
    logits = placeholder("float64", [5])
    labels = np.array([1.0, 0.0, 0.25, 1.0, 0.0])
    loss = nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)
    (slope,) = gradients(loss, [logits])
    x = np.array([-800.0, 800.0, 0.0, 40.0, -40.0])
    value, slope = run([loss, slope], {logits: x})
    want = np.maximum(x, 0) - x * labels + np.log1p(np.exp(-np.abs(x)))
    np.testing.assert_allclose(value, want, rtol=1e-14)
    with np.errstate(over="ignore"):
        sigmoid = 1 / (1 + np.exp(-x))
    np.testing.assert_allclose(slope, sigmoid - labels, atol=1e-15)


def test_weighted_and_poisson_losses() -> None:
    x, z = normal(6), RNG.uniform(0, 1, 6).astype(np.float32)
    weighted = nn.weighted_cross_entropy_with_logits(labels=z, logits=x, pos_weight=3.0)
    sigmoid = 1 / (1 + np.exp(-x))
    want = -3 * z * np.log(sigmoid) - (1 - z) * np.log(1 - sigmoid)
    np.testing.assert_allclose(run(weighted), want, rtol=1e-4)
    counts = np.array([0.5, 4.0], np.float32)
    full = run(nn.log_poisson_loss(counts, [0.1, 0.2], compute_full_loss=True))
    plain = np.exp([0.1, 0.2]) - np.array([0.1, 0.2]) * counts
    stirling = 4 * np.log(4) - 4 + 0.5 * np.log(8 * np.pi)
    np.testing.assert_allclose(full, plain + np.array([0, stirling]), rtol=1e-5)


# --------------------------------------------------------------------------- dropout


def test_dropout_scales_what_it_keeps() -> None:
    x = np.ones((100, 100), np.float32)
    by_rate, by_keep = run([nn.dropout(x, rate=0.25), nn.dropout(x, keep_prob=0.75)])
    for got in (by_rate, by_keep):
        assert set(np.unique(got)) == {0, np.float32(1 / 0.75)}
        assert abs(got.mean() - 1) < 0.03
    rows = run(nn.dropout(x, rate=0.5, noise_shape=[None, 1]))
    assert (rows == rows[:, :1]).all()
    rate = placeholder("float32", [])
    np.testing.assert_array_equal(run(nn.dropout(x, rate=rate), {rate: 0.0}), x)


def test_dropout_checks_its_rate() -> None:
    x = constant(normal(2))
    assert nn.dropout(x, rate=0) is x
    for kwargs in ({}, {"rate": 0.5, "keep_prob": 0.5}):
        with pytest.raises(errors.InvalidArgumentError, match="one of rate and keep_prob"):
            nn.dropout(x, **kwargs)
    with pytest.raises(errors.InvalidArgumentError, match=r"\[0, 1\)"):
        nn.dropout(x, rate=1.0)
    with pytest.raises(errors.InvalidTypeError):
        nn.dropout([1, 2], rate=0.5)


# ------------------------------------------------------------------- statistics


def test_moments() -> None:
    x = normal(4, 3, 2)
    mean, variance = run(nn.moments(x, [0, 1]))
    np.testing.assert_allclose(mean, x.mean((0, 1)), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(variance, x.var((0, 1)), rtol=1e-5)
    assert nn.moments(x, [0], keepdims=True)[0].dims == (1, 3, 2)
    weights = RNG.uniform(0, 1, (4, 3, 1)).astype(np.float32)
    mean, variance = run(nn.weighted_moments(x, [0, 1], weights))
    want = np.average(x, axis=(0, 1), weights=np.broadcast_to(weights, x.shape))
    np.testing.assert_allclose(mean, want, rtol=1e-4, atol=1e-6)


def test_sufficient_statistics_make_moments() -> None:
    x = normal(5, 4)
    for shift in (None, 0.5):
        statistics = nn.sufficient_statistics(x, [0], shift)
        mean, variance = run(nn.normalize_moments(*statistics))
        np.testing.assert_allclose(mean, x.mean(0), rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(variance, x.var(0), rtol=1e-4)


def test_normalizations() -> None:
    x, mean, variance = normal(3, 4), normal(4), RNG.uniform(1, 2, 4).astype(np.float32)
    got = run(nn.batch_normalization(x, mean, variance, 0.5, 2.0, 1e-3))
    want = (x - mean) / np.sqrt(variance + 1e-3) * 2 + 0.5
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    unit = run(nn.l2_normalize(x, axis=1))
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), np.ones(3), rtol=1e-5)


def test_fused_and_composed_batch_norm_agree() -> None:
    x, scale, offset = normal(4, 3, 3, 2), normal(2), normal(2)
    fused = nn.fused_batch_norm(x, scale, offset, epsilon=1e-3)[0]
    composed = nn.batch_normalization(x, *nn.moments(x, [0, 1, 2]), offset, scale, 1e-3)
    a, b = run([fused, composed])
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    with pytest.raises(errors.InvalidArgumentError, match="requires mean and variance"):
        nn.fused_batch_norm(x, scale, offset, is_training=False)


# ----------------------------------------------------------------------- embeddings


@pytest.mark.parametrize("strategy", ["mod", "div"])
@pytest.mark.parametrize("rows", [6, 7, 8, 2])
def test_a_cut_table_gives_the_rows_of_the_whole(strategy: str, rows: int) -> None:
    table = normal(rows, 3)
    parts = [table[i::3] for i in range(3)] if strategy == "mod" else np.array_split(table, 3)
    ids = RNG.integers(0, rows, (2, 4))
    got = nn.embedding_lookup([constant(p) for p in parts], ids, strategy)
    assert got.dims == (2, 4, 3)
    np.testing.assert_array_equal(run(got), table[ids])


def test_lookup_of_one_table_has_a_sparse_gradient() -> None:
    table = Variable(normal(5, 2))
    found = nn.embedding_lookup(table, [3, 1, 3])
    (grad,) = gradients(found, [table])
    assert isinstance(grad, IndexedSlices)
    values, indices = run([grad.values, grad.indices])
    assert values.shape == (3, 2) and indices.tolist() == [3, 1, 3]


def test_long_rows_are_clipped() -> None:
    table = np.array([[3.0, 4.0], [0.3, 0.4]], np.float32)
    for params in (table, [table[::2], table[1::2]]):
        parts = [constant(p) for p in params] if isinstance(params, list) else constant(params)
        got = run(nn.embedding_lookup(parts, [0, 1], max_norm=1.0))
        np.testing.assert_allclose(got, [[0.6, 0.8], [0.3, 0.4]], rtol=1e-6)


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("with_weights", [False, True])
def test_sparse_lookup_combines_rows(combiner: str, with_weights: bool) -> None:
    table, ids = normal(6, 2), np.array([1, 3, 3, 5])
    places = np.array([[0, 0], [0, 1], [2, 0], [2, 4]])
    weights = np.array([0.5, 2.0, 1.0, 3.0], np.float32)
    sp_ids = SparseTensor(*map(constant, (places, ids, np.array([3, 5]))))
    sp_weights = SparseTensor(*map(constant, (places, weights, np.array([3, 5]))))
    given = sp_weights if with_weights else None
    got = run(nn.embedding_lookup_sparse(constant(table), sp_ids, given, combiner=combiner))
    w = weights if with_weights else np.ones(4, np.float32)
    want = np.zeros((3, 2))
    for row, part in ((0, slice(0, 2)), (2, slice(2, 4))):
        total = (table[ids[part]] * w[part, None]).sum(0)
        scale = {"sum": 1, "mean": w[part].sum(), "sqrtn": np.sqrt((w[part] ** 2).sum())}
        want[row] = total / scale[combiner]
    keep = [0, 2]  # a row without ids is 0 / 0 for weighted means, as in TensorFlow
    np.testing.assert_allclose(got[keep], want[keep], rtol=1e-5)


def test_embeddings_refuse() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="at least one table"):
        nn.embedding_lookup([], [1])
    with pytest.raises(errors.InvalidArgumentError, match="'mod' or 'div'"):
        nn.embedding_lookup([normal(2, 2), normal(2, 2)], [1], "hash")


# --------------------------------------------------------------------------- sampling


def test_samplers_draw_their_distribution() -> None:
    true = np.zeros((1, 1), np.int64)
    log_uniform = nn.log_uniform_candidate_sampler(true, 1, 20000, False, 50, seed=1)
    sampled, _, expected = run(log_uniform)
    classes = np.arange(50)
    probability = np.log((classes + 2) / (classes + 1)) / np.log(51)
    counts = np.bincount(sampled, minlength=50)
    assert counts.size == 50
    assert np.abs(counts / 20000 - probability).max() < 0.015
    np.testing.assert_allclose(expected, 20000 * probability[sampled], rtol=1e-5)
    weights = [0.0, 1.0, 0.0, 3.0]
    fixed = nn.fixed_unigram_candidate_sampler(true, 1, 4000, False, 4, unigrams=weights)
    counts = np.bincount(run(fixed.sampled_candidates), minlength=4)
    assert counts[0] == counts[2] == 0 and 0.7 < counts[3] / 4000 < 0.8


def test_unique_samples_are_distinct_and_differ_from_run_to_run() -> None:
    true = placeholder("int64", [None, 1])
    sampler = nn.log_uniform_candidate_sampler(true, 1, 40, True, 50)
    learned = nn.learned_unigram_candidate_sampler(true, 1, 30, False, 50)
    with Session() as session:
        first, second = [session.run(sampler, {true: [[3]]}) for _ in range(2)]
        for found in (first, second):
            assert len(set(found.sampled_candidates)) == 40
            assert (found.sampled_expected_count <= 1).all()
        assert first.sampled_candidates.tolist() != second.sampled_candidates.tolist()
        for _ in range(3):
            found = session.run(learned, {true: [[3]] * 2000})
        assert np.mean(found.sampled_candidates == 3) > 0.9
    with pytest.raises(errors.InvalidArgumentError, match="51 distinct classes"):
        nn.uniform_candidate_sampler(true, 1, 51, True, 50)


def _sampled_reference(
    weights: Any, biases: Any, labels: Any, inputs: Any, sampler: Any, remove: bool
) -> tuple[Any, Any]:
    sampled, true_count, sampled_count = sampler
    true = np.einsum("nd,ntd->nt", inputs, weights[labels]) + biases[labels] - np.log(true_count)
    other = inputs @ weights[sampled].T + biases[sampled] - np.log(sampled_count)
    if remove:
        for row, classes in enumerate(labels):
            other[row, np.isin(sampled, classes)] = -np.inf
    logits = np.concatenate([true, other], 1)
    targets = np.concatenate([np.full(true.shape, 1 / true.shape[1]), np.zeros(other.shape)], 1)
    return logits, targets


@pytest.mark.parametrize("num_true", [1, 2])
def test_sampled_losses(num_true: int) -> None:
    weights, biases, inputs = normal(7, 4), normal(7), normal(3, 4)
    labels = np.array([[1, 2], [0, 6], [5, 5]])[:, :num_true]
    values = (
        np.array([2, 5, 3]),
        RNG.uniform(0.2, 1, (3, num_true)).astype("f"),
        RNG.uniform(0.2, 1, 3).astype("f"),
    )
    tensors = tuple(map(convert_to_tensor, values))
    args = (constant(weights), constant(biases), constant(labels), inputs, 3, 7, num_true, tensors)
    softmax, nce = run([nn.sampled_softmax_loss(*args), nn.nce_loss(*args)])
    logits, targets = _sampled_reference(weights, biases, labels, inputs, values, True)
    shifted = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    want = -(targets * np.where(targets > 0, shifted, 0)).sum(1)
    np.testing.assert_allclose(softmax, want, rtol=1e-4)
    logits, targets = _sampled_reference(weights, biases, labels, inputs, values, False)
    losses = np.maximum(logits, 0) - logits * targets + np.log1p(np.exp(-np.abs(logits)))
    np.testing.assert_allclose(nce, losses.sum(1), rtol=1e-4)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(
    "build",
    [
        lambda x: nn.conv2d(x, normal(3, 1, 2, 4), 1, "VALID"),
        lambda x: nn.conv2d(x, normal(0, 1, 2, 4), 1, "SAME"),
        lambda x: nn.depthwise_conv2d(x, normal(3, 1, 2, 1), [1, 1, 1, 1], "VALID"),
        lambda x: nn.max_pool(x, [1, 3, 1, 1], 1, "VALID"),
        lambda x: nn.avg_pool(x, [1, 5, 1, 1], [1, 3, 1, 1], "VALID"),
        lambda x: nn.max_pool_with_argmax(x, [1, 3, 1, 1], [1, 1, 1, 1], "VALID")[0],
        lambda x: extract_image_patches(x, [1, 3, 1, 1], [1] * 4, [1] * 4, "VALID"),
    ],
)
def test_a_window_fits_the_image(build: Any, known: bool) -> None:
    x = placeholder("float32", [1, 2, 4, 2] if known else None)
    with pytest.raises(errors.InvalidArgumentError, match="window"):
        run(build(x), {x: normal(1, 2, 4, 2)})


def test_convolutions_to_no_channels() -> None:
    x = placeholder("float32", [None, 5, 5, 2])
    for y in (
        nn.conv2d(x, np.zeros((3, 3, 2, 0), np.float32), 1, "SAME"),
        nn.depthwise_conv2d(x, np.zeros((3, 3, 2, 0), np.float32), [1, 1, 1, 1], "SAME"),
    ):
        value, by_x = run([y, gradients(y, [x])[0]], {x: normal(2, 5, 5, 2)})
        assert value.shape == (2, 5, 5, 0)
        np.testing.assert_array_equal(by_x, np.zeros((2, 5, 5, 2)))


def test_the_moments_of_an_empty_batch_are_not_numbers() -> None:
    x, ones = placeholder("float32", [None, 3, 3, 2]), np.ones(2, np.float32)
    y, mean, variance = nn.fused_batch_norm(x, ones, ones)
    found = run([y, mean, variance, gradients(y, [x])[0]], {x: np.zeros((0, 3, 3, 2))})
    assert found[0].shape == found[3].shape == (0, 3, 3, 2)
    assert np.isnan(found[1]).all() and np.isnan(found[2]).all()

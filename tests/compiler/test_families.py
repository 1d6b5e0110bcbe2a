"""Compiled ops of many families: rules with several algorithms, and unsupported cases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from weft_testing.ahead import loaded
from weft_testing.both_ways import Build, agree, by_both, compiled_ops, outputs

import weft as wf
from weft_compiler.ahead import compile_graph
from weft_compiler.lower import registry
from weft_graph.ir.node import Output
from weft_tensor import errors


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "uint16", "float16"])
@pytest.mark.parametrize(("size", "k"), [(7, 3), (200, 32), (33, 33), (700, 40), (1000, 1000)])
def test_the_largest_come_in_the_order_of_kernels(
    monkeypatch: pytest.MonkeyPatch, dtype: str, size: int, k: int
) -> None:
    """Equal values are ordered by index, and NaN comes last."""
    draw = np.random.default_rng(size)
    x = draw.integers(-9 if dtype != "uint16" else 0, 9, (3, size)).astype(dtype)
    if x.dtype.kind == "f":
        x[0, :: max(1, size // 7)] = np.nan
        x[1, ::5] = -0.0
        x[2, 1], x[2, 2] = np.inf, -np.inf
    assert registry.rule_of("TopKV2") is not None  # which loads what the next line changes
    # Many are left to the kernel where k is a constant; code for them is there all the same.
    monkeypatch.setitem(registry._by_kernel, "TopKV2", lambda node: "")
    want, got = by_both(monkeypatch, lambda x: outputs("TopKV2", [x + 0, k]), x)
    for value, expected in zip(got, want, strict=True):
        np.testing.assert_array_equal(value, expected)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 31, 32, 33])
def test_places_among_sorted_values(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    draw = np.random.default_rng(count)
    keys = np.sort(draw.integers(-5, 5, (2, count)).astype("f"))
    if count > 3:
        keys[1, -2:] = np.nan
    values = np.concatenate([np.arange(-6, 6), [np.nan, np.inf, -np.inf]]).astype("f")
    values = np.stack([values, values[::-1]])

    def build(keys: Output, values: Output) -> Sequence[Output]:
        return [
            *outputs("LowerBound", [keys, values]),
            *outputs("UpperBound", [keys, values]),
            *outputs("Bucketize", [values], boundaries=sorted(set(range(-count, count, 3)))),
        ]

    want, got = by_both(monkeypatch, build, keys, values)
    for value, expected in zip(got, want, strict=True):
        np.testing.assert_array_equal(value, expected)


@pytest.mark.parametrize(
    "equation",
    [
        "bshd,bthd->bhst", "bhst,bthd->bshd", "ij,jk,kl->il", "ij,ij->", "i,j->ij", "iij,jk->ik",
        "...ij,...jk->...ik", "bij,jk->bik", "ij,kj->ki", "abc->ca", "ii->i", "i->ii", "aij,b->ij",
    ],
)  # fmt: skip
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_sums_of_products(monkeypatch: pytest.MonkeyPatch, equation: str, dtype: str) -> None:
    draw, size = np.random.default_rng(2), dict(zip("abcdhijklst", range(2, 13), strict=True))
    terms = equation.split("->")[0].split(",")
    arrays = []
    for at, term in enumerate(terms):
        lead = [(1, 3), (2, 1)][at] if "..." in term else ()
        shape = (*lead, *[size[letter] for letter in term.replace("...", "")])
        arrays.append(draw.standard_normal(shape).astype(dtype))

    def build(*given: Output) -> Sequence[Output]:
        (y,) = outputs("Einsum", [list(given)], equation=equation)
        return [y * 2, *wf.gradients(wf.reduce_sum(y * y), list(given))]

    want, got = by_both(monkeypatch, build, *arrays)
    limit = 2e-5 if dtype == "float32" else 1e-2
    for value, expected in zip(got, want, strict=True):
        wide = value.astype("d"), expected.astype("d")
        np.testing.assert_allclose(*wide, rtol=limit, atol=limit * 10)


@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True)])
def test_many_small_products(monkeypatch: pytest.MonkeyPatch, turned: tuple[bool, bool]) -> None:
    draw = np.random.default_rng(3)
    x, y = draw.standard_normal((6, 2, 9, 9)), draw.standard_normal((1, 2, 9, 9))

    def build(x: Output, y: Output) -> Sequence[Output]:
        z = wf.matmul(x, y, transpose_a=turned[0], transpose_b=turned[1])
        return [z, *wf.gradients(wf.reduce_sum(z * z), [x, y])]

    want, got = by_both(monkeypatch, build, x, y)
    for value, expected in zip(got, want, strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-12, atol=1e-12)


def test_small_products_ahead_of_time() -> None:
    draw = np.random.default_rng(4)
    arrays = [draw.standard_normal(shape).astype("f") for shape in ((8, 5, 6), (8, 6, 7))]
    with wf.Graph().as_default():
        x, y = (wf.placeholder(wf.float32, array.shape) for array in arrays)
        made = compile_graph({"x": x, "y": y}, {"z": wf.matmul(x, y)}, "native", name="products")
    (z,) = loaded(made)(*arrays)
    np.testing.assert_allclose(z, arrays[0] @ arrays[1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "int64", "uint64"])
def test_products_of_integers_wrap_around(monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    draw, ends = np.random.default_rng(5), np.iinfo(dtype)
    shapes = [((3, 5), (5, 4)), ((2, 1, 3, 5), (4, 5, 2)), ((2, 0), (0, 3)), ((0, 2), (2, 3))]
    arrays = [
        draw.integers(ends.min, ends.max, shape, dtype, endpoint=True)
        for pair in shapes
        for shape in pair
    ]

    def build(*given: Output) -> Sequence[Output]:
        found = []
        for x, y in zip(given[::2], given[1::2], strict=True):
            z, turned = x + x, wf.matrix_transpose(y)
            found += [
                wf.matmul(z, y),
                wf.matmul(z, turned, transpose_b=True),
                wf.matmul(wf.matrix_transpose(z), y, transpose_a=True),
            ]
        return [*found, *outputs("Einsum", [[given[0], given[1]]], equation="ij,jk->ki")]

    want, got = by_both(monkeypatch, build, *arrays)
    for value, expected in zip(got, want, strict=True):
        np.testing.assert_array_equal(value, expected)
        assert value.dtype == expected.dtype == np.dtype(dtype)


def test_few_counts_of_much_data_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small integers that are not sizes are not treated as sizes."""
    draw = np.random.default_rng(6)
    labels, x = draw.integers(0, 5, 100).astype("i"), draw.standard_normal((9, 10)).astype("f")

    def build(labels: Output, x: Output) -> Sequence[Output]:
        (counts,) = outputs("Bincount", [labels, 5, wf.constant([], wf.int32)])
        (bins,) = outputs("HistogramFixedWidth", [x, [-1.0, 1.0], 4])
        return [counts * 2, bins + 1, wf.argmax(x, 1) + 1, wf.fill(counts[:2], 1.5)]

    want, got = by_both(monkeypatch, build, labels, x)
    for value, expected in zip(got, want, strict=True):
        np.testing.assert_array_equal(value, expected)
    with wf.Graph().as_default(), wf.Session() as session:
        feeds = [wf.placeholder(labels.dtype, [None]), wf.placeholder(x.dtype, [None, 10])]
        left = session.explain(build(*feeds), feeds).left
    assert not {op for op, _ in left} & {"Bincount", "HistogramFixedWidth", "ArgMax"}, left


_RESIZED = [((2, 5, 7, 3), (9, 4)), ((1, 1, 6, 1), (4, 40)), ((0, 3, 2, 3), (2, 2)),
            ((2, 4, 3, 0), (3, 4)), ((1, 64, 3, 2), (2, 1)), ((3, 4, 4, 2), (4, 4))]  # fmt: skip


@pytest.mark.parametrize(("shape", "size"), _RESIZED)
def test_resized_images(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], size: tuple[int, int]
) -> None:
    images = np.random.default_rng(7).standard_normal(shape).astype("f")
    plain, halves = {"align_corners": False}, {"half_pixel_centers": True}

    def build(x: Output) -> Sequence[Output]:
        found = [*outputs("ResizeArea", [x, size], **plain)]
        for op in ("ResizeBilinear", "ResizeBicubic", "ResizeNearestNeighbor"):
            for choice in ({"align_corners": True, "half_pixel_centers": False}, plain | halves):
                (y,) = outputs(op, [x, size], **choice)
                found += [y, *wf.gradients(y, [x], [wf.ones(y.shape) * 3])]
        moved = {"kernel_type": "lanczos3", "antialias": True}
        (y,) = outputs("ScaleAndTranslate", [x, size, [0.5, 2.0], [0.25, -1.0]], **moved)
        return [*found, y, *wf.gradients(y, [x], [wf.ones(y.shape) * 3])]

    want, got = by_both(monkeypatch, lambda x: build(wf.abs(x)), images)
    for value, expected in zip(got, want, strict=True):
        np.testing.assert_allclose(value, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("method", ["bilinear", "nearest"])
@pytest.mark.parametrize("size", [(3, 4), (1, 2)])
def test_crops_of_boxes_that_lie_anywhere(
    monkeypatch: pytest.MonkeyPatch, method: str, size: tuple[int, int]
) -> None:
    """Boxes: whole, flipped, outside, points, on pixel edges, and NaN."""
    draw = np.random.default_rng(8)
    boxes = np.array(
        [[0, 0, 1, 1], [1, 1, 0, 0], [-0.5, 0.25, 1.5, 0.75], [0.5] * 4, [0, np.nan, 1, 1],
         [2, 2, 3, 3], [0.1, 0.3, 0.7, 0.9], [0, 0, np.inf, 1]], "f",
    )  # fmt: skip
    image, grads = draw.standard_normal((2, 5, 7, 3)), draw.standard_normal((8, *size, 3))
    given = [image.astype("f"), boxes, np.arange(8, dtype="i") % 2, grads.astype("f")]

    def build(image: Output, boxes: Output, which: Output, grads: Output) -> Sequence[Output]:
        attrs = {"method": method, "T": wf.float32}
        beyond = {"method": method, "extrapolation_value": -2.0}
        crops = outputs("CropAndResize", [image, boxes, which, size], **beyond)
        back = outputs("CropAndResizeGradImage", [grads, boxes, which, [2, 5, 7, 3]], **attrs)
        moved = outputs("CropAndResizeGradBoxes", [grads, image, boxes, which], method="bilinear")
        return [*crops, *back, *moved]

    want, got = by_both(monkeypatch, build, *given)
    for value, expected in zip(got, want, strict=True):
        np.testing.assert_allclose(value, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("shape", [(1, 1, 3), (0, 2, 2, 3), (2, 5, 4, 3)])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_colors(monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], dtype: str) -> None:
    """Includes gray, black, NaN, infinity and negative values."""
    x = np.random.default_rng(9).random(shape).astype(dtype)
    pixels = x.reshape(-1, 3)
    odd = [[0, 0, 0], [0.5, 0.5, 0.5], [np.nan, 0, 1], [1, np.inf, 0], [-1, -2, -3], [1, 1, 0]]
    if len(pixels) > len(odd):
        pixels[: len(odd)] = odd

    def build(x: Output) -> Sequence[Output]:
        found = [*outputs("RGBToHSV", [x]), *outputs("HSVToRGB", [x])]
        found += [*outputs("AdjustHue", [x, 0.3]), *outputs("AdjustSaturation", [x, 1.7])]
        return [*found, *outputs("AdjustContrastv2", [x, 1.5])]

    want, got = by_both(monkeypatch, build, x)
    for value, expected in zip(got, want, strict=True):
        wide = value.astype("d"), expected.astype("d")
        limit = 2e-6 if dtype == "float32" else 2e-3
        np.testing.assert_allclose(*wide, rtol=limit, atol=limit)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_dilation_takes_the_first_tap_of_equal_ones(
    monkeypatch: pytest.MonkeyPatch, padding: str
) -> None:
    draw = np.random.default_rng(10)
    x, taps = draw.integers(-2, 2, (2, 7, 6, 3)).astype("f"), np.zeros((2, 3, 3), "f")
    x[0, 0, :3], x[1, 3, 3], x[0, 4] = np.nan, np.inf, -np.inf
    attrs = {"strides": [1, 2, 1, 1], "rates": [1, 1, 2, 1], "padding": padding}

    def build(x: Output, taps: Output) -> Sequence[Output]:
        (y,) = outputs("Dilation2D", [x, taps], **attrs)
        places = wf.reshape(wf.range(0.0, float(y.shape.num_elements())), y.shape)
        return [y, *wf.gradients(y, [x, taps], [places])]

    want, got = by_both(monkeypatch, build, x, taps)
    for value, expected in zip(got, want, strict=True):
        np.testing.assert_array_equal(value, expected)


@pytest.mark.parametrize("ends", [(-1.5, 2.0), (0.0, 0.0), (0.0, 3.0), (-2.0, -0.5), (-3e38, 1.0)])
def test_rounding_to_what_integers_hold(
    monkeypatch: pytest.MonkeyPatch, ends: tuple[float, float]
) -> None:
    x = np.concatenate([np.linspace(-3, 3, 58), [np.inf, -np.inf]]).astype("f").reshape(5, 4, 3)
    low, high = (np.float32(end) for end in ends)
    lows = np.array([ends[0], -1, 0, 0], "f")
    highs = np.array([ends[1], 1, 0, 2], "f")

    def build(x: Output, low: Output, high: Output, *many: Output) -> Sequence[Output]:
        near = wf.clip_by_value(x, -5.0, 5.0)
        found = []
        for signed in (True, False):
            for mode in ("HALF_UP", "HALF_TO_EVEN"):
                attrs = {"signed_input": signed, "round_mode": mode, "num_bits": 8}
                for of, given in ((x, True), (near, False)):
                    some = attrs | {"range_given": given}
                    found += outputs("QuantizeAndDequantizeV2", [of, low, high], **some)
                    found += outputs("QuantizeAndDequantizeV4", [of, *many], axis=1, **some)
        grads = wf.gradients(found[1], [x])
        return [*found, *grads]

    want, got = by_both(monkeypatch, build, x, low, high, lows, highs)
    for value, expected in zip(got, want, strict=True):
        np.testing.assert_allclose(value, expected, rtol=2e-6, atol=0)


@pytest.mark.parametrize("align", ["LEFT_LEFT", "LEFT_RIGHT", "RIGHT_LEFT", "RIGHT_RIGHT"])
@pytest.mark.parametrize("shape", [(3, 5), (2, 5, 3), (0, 3, 4)])
def test_bands_of_diagonals(
    monkeypatch: pytest.MonkeyPatch, align: str, shape: tuple[int, ...]
) -> None:
    """All bands of matrices, taken, put back, and made matrices of."""
    x = np.arange(1, np.prod(shape) + 1, dtype="f").reshape(shape)
    rows, columns = shape[-2:]
    bands = [
        [lower, upper] for lower in range(1 - rows, columns) for upper in range(lower, columns)
    ]

    def build(x: Output) -> Sequence[Output]:
        found = []
        for band in bands[:: max(1, len(bands) // 5)]:
            (taken,) = outputs("MatrixDiagPartV3", [x, band, -1.0], align=align)
            some = taken * 2
            found += [taken, *outputs("MatrixSetDiagV3", [x, some, band], align=align)]
            sizes = [band, rows, columns, 7.0]
            found += outputs("MatrixDiagV3", [some, *sizes], align=align)
        return found

    want, got = by_both(monkeypatch, build, x)
    for value, expected in zip(got, want, strict=True):
        np.testing.assert_array_equal(value, expected)


def test_rows_stitched_at_places_that_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last of equal indices wins, and rows without an index are 0."""
    places = [np.array([[0, 2], [5, 2]]), np.array(5), np.zeros([0], "i8")]
    arrays = [np.random.default_rng(11).random((*which.shape, 3)).astype("f") for which in places]

    def build(*given: Output) -> Sequence[Output]:
        indices = [wf.constant(which, wf.int32) for which in places]
        return [y * 2 for y in outputs("DynamicStitch", [indices, list(given)])]

    want, got = by_both(monkeypatch, build, *arrays)
    np.testing.assert_array_equal(got[0], want[0])
    assert want[0].shape == (6, 3) and not want[0][1].any()


def _bincount(values: Output) -> Sequence[Output]:
    return outputs("Bincount", [values, 4, wf.constant([], wf.float32)])


def _averaged(indices: Output, ids: Output) -> Sequence[Output]:
    data = wf.identity(wf.ones([3, 2])) * 2
    return outputs("SparseSegmentMeanWithNumSegments", [data, indices, ids, 2])


def _at_places(places: Output) -> Sequence[Output]:
    x = wf.identity(wf.ones([1, 2, 2, 1])) * 3
    sizes = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}
    gradient = wf.ones([1, 1, 1, 1]) * 2
    return outputs("MaxPoolGradWithArgmax", [x, gradient, places], **sizes)


def _of_an_image(which: Output) -> Sequence[Output]:
    image, boxes = wf.identity(wf.ones([2, 3, 3, 1])) * 2, wf.zeros([1, 4])
    return outputs("CropAndResize", [image, boxes, which, [2, 2]])


def _to_an_image(which: Output) -> Sequence[Output]:
    crops, boxes = wf.identity(wf.ones([1, 2, 2, 1])) * 2, wf.zeros([1, 4])
    return outputs("CropAndResizeGradImage", [crops, boxes, which, [2, 3, 3, 1]], T=wf.float32)


def _to_boxes(which: Output) -> Sequence[Output]:
    crops, image = wf.identity(wf.ones([1, 2, 2, 1])) * 2, wf.ones([2, 3, 3, 1])
    return outputs("CropAndResizeGradBoxes", [crops, image, wf.zeros([1, 4]), which])


def _rows(indices: Output) -> Sequence[Output]:
    return [wf.gather(wf.identity(wf.ones([2, 3])) * 2, indices, axis=1, batch_dims=1)]


def _points(indices: Output) -> Sequence[Output]:
    return [wf.gather_nd(wf.identity(wf.ones([2, 3, 4])) * 2, indices, batch_dims=1)]


def _reversed(lengths: Output) -> Sequence[Output]:
    return [wf.reverse_sequence(wf.identity(wf.ones([2, 3])) * 2, lengths, seq_axis=1)]


def _by_segment(ids: Output) -> Sequence[Output]:
    return [wf.math.unsorted_segment_max(wf.identity(wf.ones([2])) * 2, ids, 3)]


def _losses(labels: Output) -> Sequence[Output]:
    logits = wf.identity(wf.ones([2, 3])) * 2
    return outputs("SparseSoftmaxCrossEntropyWithLogits", [logits, labels])


def _dense(points: Output) -> Sequence[Output]:
    values = wf.identity(wf.ones([2])) * 2
    return outputs("SparseToDense", [points, [4], values, 0.0], validate_indices=True)


def _product(points: Output) -> Sequence[Output]:
    a = [wf.cast(points, wf.int64), wf.identity(wf.ones([2])) * 2, wf.constant([2, 3], wf.int64)]
    return outputs("SparseTensorDenseMatMul", [*a, wf.ones([3, 2])])


def _inverse(x: Output) -> Sequence[Output]:
    return outputs("InvertPermutation", [x])


def _to_points(op: str) -> Build:
    def build(points: Output) -> Sequence[Output]:
        rows = wf.identity(wf.ones([2])) * 2
        if op == "ScatterNd":
            return outputs(op, [points, rows, [3]])
        return outputs(op, [wf.identity(wf.ones([3])) * 3, points, rows])

    return build


def _rounded(end: Output) -> Sequence[Output]:
    x, high = wf.identity(wf.ones([3])) * 2, wf.cast(end, wf.float32)
    return outputs("QuantizeAndDequantizeV2", [x, 0.0, high], range_given=True)


@pytest.mark.parametrize(
    ("build", "arrays"),
    [
        pytest.param(_of_an_image, [[2]], id="image"),
        pytest.param(_of_an_image, [[-1]], id="image below"),
        pytest.param(_to_an_image, [[2]], id="gradient of image"),
        pytest.param(_to_an_image, [[-1]], id="gradient of image below"),
        pytest.param(_to_boxes, [[2]], id="gradient of box"),
        pytest.param(_to_boxes, [[-1]], id="gradient of box below"),
        pytest.param(_rows, [[[0, 3], [1, 1]]], id="gather"),
        pytest.param(_rows, [[[0, 1], [-1, 1]]], id="gather below"),
        pytest.param(_points, [[[0, 1], [3, 0]]], id="points"),
        pytest.param(_points, [[[0, 1], [2, -1]]], id="points below"),
        pytest.param(_reversed, [[2, 4]], id="lengths"),
        pytest.param(_by_segment, [[0, 3]], id="segment of a maximum"),
        pytest.param(_losses, [[0, 3]], id="label"),
        pytest.param(_losses, [[-1, 0]], id="label below"),
        pytest.param(_dense, [[[0], [4]]], id="sparse"),
        pytest.param(_dense, [[[2], [1]]], id="order of sparse"),
        pytest.param(_product, [[[0, 0], [1, 3]]], id="sparse product"),
        pytest.param(_inverse, [[*range(99), 100]], id="permutation"),
        pytest.param(_inverse, [[*range(99), 0]], id="twice"),
        pytest.param(lambda x: outputs("UnravelIndex", [x, [2, 3]]), [[0, 6]], id="position"),
        pytest.param(_to_points("ScatterNd"), [[[0], [3]]], id="scatter"),
        pytest.param(_to_points("TensorScatterAdd"), [[[0], [-1]]], id="scatter below"),
        pytest.param(_rounded, [-1], id="turned range"),
        pytest.param(_bincount, [[1, -1]], id="counts"),
        pytest.param(_averaged, [[0, 3], [0, 1]], id="row"),
        pytest.param(_averaged, [[0, 1], [1, 0]], id="order"),
        pytest.param(_averaged, [[0, 1], [0, 2]], id="segment"),
        pytest.param(_averaged, [[0, 1], [-1, 0]], id="below"),
        pytest.param(_at_places, [[[[[4]]]]], id="place"),
        pytest.param(
            lambda x: outputs("HistogramFixedWidth", [wf.cast(x, wf.float32), [1.0, 1.0] * 1, 3]),
            [[1, 2]],
            id="range",
        ),
        pytest.param(
            lambda x: [wf.check_numerics(1 / wf.cast(x, wf.float32), "it") * 2], [[1, 0]], id="inf"
        ),
    ],
)
def test_what_is_wrong_has_the_error_of_the_kernel(
    monkeypatch: pytest.MonkeyPatch, build: Build, arrays: list[Any]
) -> None:
    given = [np.array(array, np.int32 if build is not _at_places else np.int64) for array in arrays]
    said = []
    compiled = compiled_ops(monkeypatch)
    for mode in ("off", "now"):
        monkeypatch.setenv("WEFT_JIT", mode)
        with wf.Graph().as_default(), wf.Session() as session:
            feeds = [wf.placeholder(array.dtype, array.shape) for array in given]
            results = build(*[wf.identity(x) for x in feeds])
            # An op alone stays with its kernel.
            fetches = [wf.cast(y, wf.float32) * 3 for y in results]
            with pytest.raises(errors.InvalidArgumentError) as caught:
                session.run(fetches, dict(zip(feeds, given, strict=True)))
            said.append((caught.value.node, str(caught.value)))
    assert said[0] == said[1]
    assert results[0].op.type in compiled


@pytest.mark.parametrize("mode", ["REFLECT", "SYMMETRIC"])
@pytest.mark.parametrize(
    ("shape", "paddings"),
    [((7,), [[3, 6]]), ((3, 40), [[1, 0], [17, 2]]), ((2, 5, 4), [[0, 1], [4, 0], [0, 3]]),
     ((0, 3), [[0, 0], [2, 1]]), ((2, 1), [[0, 0], [0, 0]])],
)  # fmt: skip
def test_margins_mirror_rows(
    monkeypatch: pytest.MonkeyPatch, mode: str, shape: tuple[int, ...], paddings: list[list[int]]
) -> None:
    if mode == "REFLECT" and 0 in shape:
        shape, paddings = (1, *shape[1:]), [[0, 0], *paddings[1:]]
    x = np.random.default_rng(3).standard_normal(shape).astype("f")
    made = compiled_ops(monkeypatch)
    want, got = by_both(monkeypatch, lambda x: [wf.pad(x * 2, paddings, mode) + 1], x)
    np.testing.assert_array_equal(got[0], want[0])
    assert "MirrorPad" in made


@pytest.mark.parametrize(("channels", "radius"), [(1, 5), (7, 2), (96, 5), (70, 40), (0, 2)])
def test_neighboring_channels(monkeypatch: pytest.MonkeyPatch, channels: int, radius: int) -> None:
    """An infinity or NaN in one channel affects only its neighbors."""
    x = np.random.default_rng(4).standard_normal((2, 3, 2, channels)).astype("f")
    if channels > 6:
        x[0, 0, 0, 0], x[1, 2, 1, 6] = np.nan, np.inf
    made = compiled_ops(monkeypatch)

    def build(x: Output) -> Sequence[Output]:
        y = wf.nn.lrn(x * 2, radius, 1.5, 0.3, 0.75)
        return [y, *wf.gradients(y, [x], [y * 3])]

    want, got = by_both(monkeypatch, build, x)
    agree(got, want, 2e-5, 2e-5)
    assert made >= {"LRN", "LRNGrad"}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_numbers_are_rounded_once(monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    """Slices that are combined at one place, norms, and convolutions of each channel."""
    draw, kind = np.random.default_rng(5), wf.as_dtype(dtype).as_numpy_dtype
    indices = draw.integers(0, 4, (60, 1)).astype("i")
    updates, x = (draw.standard_normal((n, 3)).astype(kind) for n in (60, 5))
    images, filters = (draw.random(n).astype(kind) for n in ((1, 5, 4, 3), (2, 2, 3, 2)))
    updates[3, 1], updates[7, 2] = np.nan, np.inf
    made = compiled_ops(monkeypatch)

    def build(x: Output, indices: Output, updates: Output, *conv: Output) -> Sequence[Output]:
        given = [x, indices, updates]
        kinds = ("Add", "Sub", "Max", "Min")
        found = [y for how in kinds for y in outputs(f"TensorScatter{how}", given)]
        found += [*outputs("ScatterNdNonAliasingAdd", given), wf.scatter_nd(*given[1:], [5, 3])]
        found += [wf.norm(updates[10:], axis=0), *outputs("EuclideanNorm", [indices, [0]])]
        y = wf.nn.depthwise_conv2d(*conv, [1, 1, 1, 1], "SAME")
        return [*found, y, *wf.gradients(y, list(conv))]

    want, got = by_both(monkeypatch, build, x, indices, updates, images, filters)
    limit = 1e-3 if dtype == "float16" else 8e-3
    agree(got, want, limit, 0)
    assert {"ScatterNd", "EuclideanNorm", "DepthwiseConv2dNativeBackpropFilter"} <= made


def test_kernels_order_bfloat16_where_some_are_no_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_JIT", "off")
    bfloat16 = wf.bfloat16.as_numpy_dtype
    x = np.array([[1, np.nan, 3, -np.inf, np.nan, 2, 0]], bfloat16)
    keys = np.array([[-np.inf, 0, 1, 3, np.nan]], bfloat16)
    with wf.Graph().as_default(), wf.Session() as session:
        _, places = session.run(list(outputs("TopKV2", [x, 7])))
        (third,) = session.run(list(outputs("NthElement", [x, 3])))
        (found,) = session.run(list(outputs("LowerBound", [keys, x])))
    assert places.tolist() == [[2, 5, 0, 6, 3, 1, 4]]
    assert third == 2
    assert found.tolist() == [[2, 4, 3, 0, 4, 3, 1]]

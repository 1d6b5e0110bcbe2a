"""Functions of images that are made of other ops, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from weft_testing.parts import Parts

import weft as wf
from weft_tensor import errors

RNG = np.random.default_rng(3)
BATCH = RNG.uniform(0, 1, (2, 7, 9, 3)).astype(np.float32)
BYTES = RNG.integers(0, 256, (2, 7, 9, 3)).astype(np.uint8)
Array = np.ndarray[Any, Any]


def run(make: Callable[[], Any]) -> Any:
    with wf.Graph().as_default(), wf.Session() as session:
        return session.run(make())


def forms(value: Array) -> list[Callable[[], Any]]:
    """The same images with shapes that are known and that are not."""
    return [
        lambda: wf.constant(value),
        lambda: wf.placeholder_with_default(value, [None] * value.ndim),
    ]


def _middle(x: Array, height: int, width: int) -> Array:
    """The middle of images, or images in the middle of zeros."""
    result = np.zeros((*x.shape[:-3], height, width, x.shape[-1]), x.dtype)
    ranges = []
    for have, want in ((x.shape[-3], height), (x.shape[-2], width)):
        size, cut, margin = min(have, want), max(have - want, 0) // 2, max(want - have, 0) // 2
        ranges.append((slice(margin, margin + size), slice(cut, cut + size)))
    (to_y, from_y), (to_x, from_x) = ranges
    result[..., to_y, to_x, :] = x[..., from_y, from_x, :]
    return result


EXACT: dict[str, tuple[Callable[[Any], Any], Callable[[Array], Array]]] = {
    "left right": (wf.image.flip_left_right, lambda x: x[..., ::-1, :]),
    "up down": (wf.image.flip_up_down, lambda x: x[..., ::-1, :, :]),
    "transpose": (wf.image.transpose, lambda x: x.swapaxes(-3, -2)),
    "rot90": (wf.image.rot90, lambda x: np.rot90(x, 1, (-3, -2))),
    "rot180": (lambda x: wf.image.rot90(x, 2), lambda x: np.rot90(x, 2, (-3, -2))),
    "rot270": (lambda x: wf.image.rot90(x, -1), lambda x: np.rot90(x, 3, (-3, -2))),
    "rot by a tensor": (
        lambda x: wf.image.rot90(x, wf.constant(5)),
        lambda x: np.rot90(x, 1, (-3, -2)),
    ),
    "part": (
        lambda x: wf.image.crop_to_bounding_box(x, 1, 2, 4, 5),
        lambda x: x[..., 1:5, 2:7, :],
    ),
    "frame": (
        lambda x: wf.image.pad_to_bounding_box(x, 1, 2, 10, 14),
        lambda x: np.pad(x, [(0, 0)] * (x.ndim - 3) + [(1, 2), (2, 3), (0, 0)]),
    ),
    "smaller": (lambda x: wf.image.resize_with_crop_or_pad(x, 4, 5), lambda x: _middle(x, 4, 5)),
    "both": (lambda x: wf.image.resize_with_crop_or_pad(x, 12, 4), lambda x: _middle(x, 12, 4)),
    "by tensors": (
        lambda x: wf.image.resize_with_crop_or_pad(x, wf.constant(5), wf.constant(14)),
        lambda x: _middle(x, 5, 14),
    ),
    "middle": (lambda x: wf.image.central_crop(x, 0.5), lambda x: x[..., 1:6, 2:7, :]),
}


def test_pixels_that_only_move() -> None:
    with Parts() as parts:
        for name, (function, wanted) in EXACT.items():
            for value in (BYTES, BATCH[0]):
                for i, form in enumerate(forms(value)):
                    with parts.part(f"{name} {value.dtype} {i}"):
                        found = run(lambda f=function, form=form: f(form()))
                        np.testing.assert_array_equal(found, wanted(value))


@pytest.mark.parametrize("axis", [-2, -3])
def test_chance_flips_some_images(axis: int) -> None:
    flip = wf.image.random_flip_left_right if axis == -2 else wf.image.random_flip_up_down
    many = np.repeat(BYTES[:1], 40, 0)
    found = run(lambda: flip(wf.constant(many), seed=1))
    kept = [np.array_equal(each, BYTES[0]) for each in found]
    turned = [np.array_equal(each, np.flip(BYTES[0], axis)) for each in found]
    assert all(a != b for a, b in zip(kept, turned, strict=True)) and 5 < sum(kept) < 35


def test_types() -> None:
    convert = wf.image.convert_image_dtype
    half = BATCH.astype(np.float16).astype(np.float64)
    with Parts() as parts:
        for value, dtype, wanted in (
            (BYTES, wf.float32, BYTES / np.float32(255)),
            (BYTES, wf.uint16, BYTES.astype(np.uint16) * 256),
            (BYTES.astype(np.uint16) * 256, wf.uint8, BYTES),
            (BATCH, wf.uint8, (BATCH * 255.5).astype(np.uint8)),
            (BATCH.astype(np.float16), wf.uint16, (half * 65535.5).astype(np.uint16)),
        ):
            with parts.part(f"{value.dtype} {dtype.name}"):
                found = run(lambda v=value, d=dtype: convert(v, d))
                assert found.dtype == dtype.as_numpy_dtype
                np.testing.assert_allclose(found, wanted, rtol=1e-6)
        found = run(lambda: convert(np.float32([-1, 2]), wf.uint8, saturate=True))
        assert found.tolist() == [0, 255]


def test_quality() -> None:
    noisy = np.clip(BATCH + 0.1 * RNG.normal(size=BATCH.shape), 0, 1).astype(np.float32)
    with Parts() as parts:
        with parts.part("psnr"):
            noise = ((BATCH - noisy) ** 2).mean((1, 2, 3))
            found = run(lambda: wf.image.psnr(BATCH, noisy, 1.0))
            np.testing.assert_allclose(found, -10 * np.log10(noise), rtol=1e-4)
        with parts.part("ssim"):
            found = run(lambda: wf.image.ssim(BATCH, noisy, 1.0, filter_size=5))
            np.testing.assert_allclose(found, _ssim(BATCH, noisy, 5), rtol=1e-4)
        with parts.part("variation"):
            wanted = abs(np.diff(BATCH, axis=1)).sum((1, 2, 3))
            wanted += abs(np.diff(BATCH, axis=2)).sum((1, 2, 3))
            found = run(lambda: wf.image.total_variation(BATCH))
            np.testing.assert_allclose(found, wanted, rtol=1e-5)
        with parts.part("multiscale"):
            large = np.repeat(np.repeat(noisy, 4, 1), 4, 2)
            same = run(lambda: wf.image.ssim_multiscale(large, large, 1.0, (0.4, 0.6)))
            np.testing.assert_allclose(same, [1, 1], rtol=1e-5)


def _ssim(x: Array, y: Array, size: int) -> Array:
    """One window at a time."""
    places = np.arange(size) - (size - 1) / 2
    bell = np.exp(-(places**2) / (2 * 1.5**2))
    weights = np.outer(bell, bell)[:, :, None] / bell.sum() ** 2
    low, high, found = 0.01**2, 0.03**2, []
    for i in range(x.shape[1] - size + 1):
        for j in range(x.shape[2] - size + 1):
            a, b = (v[:, i : i + size, j : j + size].astype(np.float64) for v in (x, y))
            mean_a, mean_b = (a * weights).sum((1, 2)), (b * weights).sum((1, 2))
            both = (a * b * weights).sum((1, 2)) - mean_a * mean_b
            apart = ((a * a + b * b) * weights).sum((1, 2)) - mean_a**2 - mean_b**2
            light = (2 * mean_a * mean_b + low) / (mean_a**2 + mean_b**2 + low)
            found.append(light * (2 * both + high) / (apart + high))
    return np.mean(found, 0).mean(-1)


def test_edges_of_each_channel() -> None:
    image = np.random.default_rng(4).random((1, 4, 5, 2)).astype(np.float32)
    framed = np.pad(image, [(0, 0), (1, 1), (1, 1), (0, 0)], "reflect")
    down = np.outer([-1, 0, 1], [1, 2, 1])
    expected = np.zeros((1, 4, 5, 2, 2))
    for place, kernel in enumerate((down, down.T)):
        for y, x in np.ndindex(3, 3):
            expected[..., place] += kernel[y, x] * framed[:, y : y + 4, x : x + 5]
    known = wf.image.sobel_edges(image)
    open_sizes = wf.placeholder(wf.float32, [None, None, None, None])
    assert known.shape.as_list() == [1, 4, 5, 2, 2]
    with wf.Session() as session:
        found = session.run([known, wf.image.sobel_edges(open_sizes)], {open_sizes: image})
    for result in found:
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def test_sampled_boxes_are_inside_and_show_the_object() -> None:
    box = np.array([[[0.2, 0.3, 0.7, 0.8]]], np.float32)
    with wf.Graph().as_default(), wf.Session() as session:
        sample = wf.image.sample_distorted_bounding_box(
            [60, 80, 3], box, seed=5, min_object_covered=0.4, area_range=(0.1, 0.6)
        )
        drawn = [session.run(list(sample)) for _ in range(30)]
    assert len({tuple(begin) for begin, _, _ in drawn}) > 20
    for begin, size, part in drawn:
        top, left, bottom, right = part[0, 0]
        assert begin[0] + size[0] <= 60 and begin[1] + size[1] <= 80
        assert 0.09 < (bottom - top) * (right - left) < 0.62
        shown = (min(bottom, 0.7) - max(top, 0.2)) * (min(right, 0.8) - max(left, 0.3))
        assert shown >= 0.4 * 0.25 - 1e-6
        assert 0.74 < size[1] / size[0] < 1.36


def test_sizes_and_proportions() -> None:
    with wf.Graph().as_default():
        x = wf.placeholder(wf.float32, [None, 7, 9, 3])
        assert wf.image.resize_images(x, [14, 14]).shape.as_list() == [None, 14, 14, 3]
        kept = wf.image.resize_images(x, [14, 14], preserve_aspect_ratio=True)
        assert kept.shape.as_list() == [None, 11, 14, 3]
        padded = wf.image.resize_image_with_pad(x, 14, 14)
        assert padded.shape.as_list() == [None, 14, 14, 3]
    for form in forms(BATCH):
        found = run(lambda form=form: wf.image.resize_image_with_pad(form(), 14, 18, 1))
        np.testing.assert_array_equal(found, BATCH.repeat(2, 1).repeat(2, 2))


def test_refusals() -> None:
    x = wf.zeros([2, 7, 9, 3])
    for bad in (
        lambda: wf.image.crop_to_bounding_box(x, 5, 0, 3, 3),
        lambda: wf.image.pad_to_bounding_box(x, 0, 0, 3, 30),
        lambda: wf.image.central_crop(x, 1.5),
        lambda: wf.image.flip_left_right(wf.zeros([3, 3])),
        lambda: wf.image.resize_images(x, [3, 3], "cubic"),
        lambda: wf.image.resize_bilinear(x, [0, 3]),
        lambda: wf.image.ssim(x, x, 1.0),
        lambda: wf.image.rgb_to_grayscale(wf.zeros([3, 3, 4])),
        lambda: wf.image.random_contrast(x, 0.5, 0.5),
        lambda: wf.image.non_max_suppression(wf.zeros([3, 4]), wf.zeros([3]), 2, 1.5),
        lambda: wf.image.decode_jpeg(b"", ratio=3),
        lambda: wf.image.encode_png(wf.zeros([3, 3, 5], wf.uint8)),
    ):
        with pytest.raises(errors.InvalidArgumentError):
            bad()


def test_an_image_of_unknown_rank_is_cut_and_padded_as_one() -> None:
    image = wf.placeholder(wf.float32)
    fitted = wf.image.resize_image_with_crop_or_pad(image, 4, 5)
    cut = wf.image.crop_to_bounding_box(image, 0, 1, 2, 3)
    assert (fitted.shape.as_list(), cut.shape.as_list()) == ([4, 5, None], [2, 3, None])
    value = np.arange(42, dtype="f").reshape(2, 7, 3)
    got = wf.Session().run([fitted, cut], {image: value})
    np.testing.assert_array_equal(got[0][1:3], value[:, 1:6])
    assert not got[0][[0, 3]].any()
    np.testing.assert_array_equal(got[1], value[:, 1:4])


@pytest.mark.parametrize("op", ["ResizeArea", "ResizeBicubic", "ScaleAndTranslate"])
def test_pixels_that_are_not_finite_spoil_what_they_weigh_in_alone(op: str) -> None:
    images = np.ones((1, 6, 6, 1), np.float32)
    images[0, 0, 0, 0] = np.inf
    scaled: dict[str, Any] = {}
    if op == "ScaleAndTranslate":
        scaled = {"scale": [0.5, 0.5], "translation": [0.0, 0.0], "kernel_type": "triangle"}
    with wf.Session() as session:
        resized = session.run(getattr(wf.raw_ops, op)(images=images, size=[3, 3], **scaled))
    finite = np.isfinite(resized[0, :, :, 0])
    assert not finite[0, 0]
    assert finite[2].all()
    assert finite[:, 2].all()

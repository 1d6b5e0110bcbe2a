"""Blocks moved into the batch or the channels, and patches of images, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from weft_testing.cases import (
    ANY,
    REALS,
    Array,
    Case,
    Raw,
    complex_normal,
    normal,
    with_strings,
)

IMAGES = 3 * complex_normal(2, 4, 6, 3)


def _ints(values: Any, dtype: Any = np.int32) -> Raw:
    return Raw(np.array(values, dtype))


def _zero(x: Array) -> Any:
    return b"" if x.dtype == object else 0


def _space_to_batch(x: Array, blocks: Array, paddings: Array) -> Array:
    count = len(blocks)
    margins = [(0, 0), *map(tuple, paddings), *[(0, 0)] * (x.ndim - count - 1)]
    padded = np.pad(x, margins, constant_values=_zero(x))
    parts = [
        padded[(slice(None), *[slice(o, None, b) for o, b in zip(offset, blocks, strict=True)])]
        for offset in np.ndindex(*blocks)
    ]
    return np.concatenate(parts)


def _batch_to_space(x: Array, blocks: Array, crops: Array) -> Array:
    count = len(blocks)
    batch = x.shape[0] // int(np.prod(blocks))
    inner = [n * int(b) for n, b in zip(x.shape[1 : count + 1], blocks, strict=True)]
    whole = np.empty((batch, *inner, *x.shape[count + 1 :]), x.dtype)
    for i, offset in enumerate(np.ndindex(*blocks)):
        key = (slice(None), *[slice(o, None, b) for o, b in zip(offset, blocks, strict=True)])
        whole[key] = x[i * batch : (i + 1) * batch]
    ends = [n - int(after) for n, (_, after) in zip(inner, crops, strict=True)]
    return whole[(slice(None), *[slice(int(b), e) for (b, _), e in zip(crops, ends, strict=True)])]


def _blocks() -> list[Case]:
    cases: list[Case] = []
    for blocks, paddings in (
        ([2, 2], [[0, 0], [0, 0]]),
        ([3, 2], [[1, 1], [2, 0]]),
        ([2], [[0, 2]]),
    ):
        vectors = [_ints(blocks), _ints(paddings)]
        cases += with_strings("SpaceToBatchND", IMAGES, vectors, {}, _space_to_batch, str(blocks))
    for blocks, crops in (([1, 2], [[0, 0], [0, 0]]), ([2, 1], [[1, 2], [0, 3]]), ([2], [[1, 0]])):
        vectors = [_ints(blocks), _ints(crops)]
        cases += with_strings("BatchToSpaceND", IMAGES, vectors, {}, _batch_to_space, str(blocks))
    cases += with_strings(
        "SpaceToDepth",
        IMAGES,
        [],
        {"block_size": 2},
        lambda x: np.concatenate([x[:, i::2, j::2] for i in range(2) for j in range(2)], axis=-1),
    )
    first = np.moveaxis(IMAGES, 3, 1)
    cases += with_strings(
        "SpaceToDepth",
        first,
        [],
        {"block_size": 2, "data_format": "NCHW"},
        lambda x: np.concatenate([x[:, :, i::2, j::2] for i in range(2) for j in range(2)], 1),
        "NCHW",
    )
    deep = 3 * complex_normal(2, 3, 2, 8)
    cases += with_strings("DepthToSpace", deep, [], {"block_size": 2}, lambda x: _to_space(x, 2))
    cases += with_strings(
        "DepthToSpace",
        np.moveaxis(deep, 3, 1),
        [],
        {"block_size": 2, "data_format": "NCHW"},
        lambda x: np.moveaxis(_to_space(np.moveaxis(x, 1, 3), 2), 3, 1),
        "NCHW",
    )
    for padding in ("SAME", "VALID"):
        for strides, rates in (([1, 1], [1, 1]), ([2, 3], [1, 1]), ([1, 2], [1, 2])):
            attrs = {
                "ksizes": [1, 2, 3, 1],
                "strides": [1, *strides, 1],
                "rates": [1, *rates, 1],
                "padding": padding,
            }
            cases.append(
                Case(
                    "ExtractImagePatches",
                    [IMAGES],
                    attrs,
                    lambda x, a=attrs: _patches(x, a),
                    dtypes=ANY,
                    label=f"{padding}{strides}{rates}",
                )
            )
        cases.append(
            Case(
                "ExtractVolumePatches",
                [normal(2, 4, 3, 5, 2)],
                {"ksizes": [1, 2, 3, 2, 1], "strides": [1, 2, 1, 2, 1], "padding": padding},
                lambda x, same=padding == "SAME": _volume_patches(x, same),
                dtypes=REALS,
                label=padding,
            )
        )
    return cases


def _volume_patches(x: Array, same: bool) -> Array:
    """Return windows of 2 by 3 by 2 elements, with strides 2, 1 and 2."""
    if same:
        x = np.pad(x, [(0, 0), (0, 0), (1, 1), (0, 1), (0, 0)])
    n, p, r, c, d = x.shape
    result = np.empty((n, (p - 2) // 2 + 1, r - 2, (c - 2) // 2 + 1, 12 * d), x.dtype)
    for i, j, k in np.ndindex(*result.shape[1:4]):
        window = x[:, 2 * i : 2 * i + 2, j : j + 3, 2 * k : 2 * k + 2]
        result[:, i, j, k] = window.reshape(n, -1)
    return result


def _to_space(x: Array, block: int) -> Array:
    n, h, w, c = x.shape
    result = np.empty((n, h * block, w * block, c // block**2), x.dtype)
    for i in range(block):
        for j in range(block):
            at = (i * block + j) * result.shape[-1]
            result[:, i::block, j::block] = x[..., at : at + result.shape[-1]]
    return result


def _patches(x: Array, attrs: dict[str, Any]) -> Array:
    (_, kh, kw, _), (_, sh, sw, _), (_, rh, rw, _) = (
        attrs[key] for key in ("ksizes", "strides", "rates")
    )
    high, wide = (kh - 1) * rh + 1, (kw - 1) * rw + 1
    n, h, w, c = x.shape
    if attrs["padding"] == "SAME":
        rows, columns = -(-h // sh), -(-w // sw)
        down, across = max((rows - 1) * sh + high - h, 0), max((columns - 1) * sw + wide - w, 0)
        x = np.pad(
            x, [(0, 0), (down // 2, down - down // 2), (across // 2, across - across // 2), (0, 0)]
        )
    else:
        rows, columns = (h - high) // sh + 1, (w - wide) // sw + 1
    result = np.empty((n, rows, columns, kh * kw * c), x.dtype)
    for i in range(rows):
        for j in range(columns):
            window = x[:, i * sh : i * sh + high : rh, j * sw : j * sw + wide : rw]
            result[:, i, j] = window.reshape(n, -1)
    return result


CASES = [*_blocks()]

"""Padding, transposition, reversal, rolling and blocks against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from weft_testing.cases import (
    BOOL,
    NUMBERS,
    REALS,
    STRING,
    Array,
    Case,
    Raw,
    complex_normal,
)

ANY = (*NUMBERS, *BOOL)
X = 3 * complex_normal(3, 4, 2)
IMAGES = 3 * complex_normal(2, 4, 6, 3)


def text(*shape: int) -> Array:
    count = int(np.prod(shape, dtype=np.int64))
    result = np.empty(count, object)
    result[:] = [b"s%d" % i for i in range(count)]
    return result.reshape(shape)


def each(
    op: str,
    x: Array,
    rest: list[Any],
    attrs: dict[str, Any],
    expected: Callable[..., Any],
    label: str = "",
) -> list[Case]:
    """A case with numbers, and one with strings."""
    strings = text(*x.shape)
    return [
        Case(op, [x, *rest], attrs, expected, dtypes=ANY, label=label),
        Case(op, [strings, *rest], attrs, expected, dtypes=STRING, label=f"{label}strings"),
    ]


def _ints(values: Any, dtype: Any = np.int32) -> Raw:
    return Raw(np.array(values, dtype))


def _zero(x: Array) -> Any:
    return b"" if x.dtype == object else 0


def _padding() -> list[Case]:
    cases: list[Case] = []
    margins = [[0, 2], [1, 0], [1, 1]]
    for dtype in (np.int32, np.int64):
        cases += each(
            "Pad",
            X,
            [_ints(margins, dtype)],
            {},
            lambda x, p: np.pad(x, p, constant_values=_zero(x)),
            np.dtype(dtype).name,
        )
    cases += each("Pad", X, [_ints([[0, 0]] * 3)], {}, lambda x, p: x, "nothing")
    cases += each("Pad", np.array(1.0), [_ints(np.zeros((0, 2)))], {}, lambda x, p: x, "scalar")
    cases.append(
        Case(
            "PadV2",
            [X, _ints(margins), np.array(2.5)],
            {},
            lambda x, p, value: np.pad(x, p, constant_values=value),
            dtypes=ANY,
        )
    )
    for mode, margins in (
        ("REFLECT", [[2, 1], [0, 3], [1, 1]]),
        ("REFLECT", [[0, 0], [3, 3], [0, 1]]),
        ("SYMMETRIC", [[3, 1], [0, 4], [2, 2]]),
        ("SYMMETRIC", [[0, 0], [4, 4], [0, 2]]),
    ):
        numpy_mode: Any = mode.lower()
        cases += each(
            "MirrorPad",
            X,
            [_ints(margins)],
            {"mode": mode},
            lambda x, p, m=numpy_mode: np.pad(x, p, m),
            f"{mode}{margins}",
        )
        grown = [n + sum(pair) for n, pair in zip(X.shape, margins, strict=True)]
        cases.append(
            Case(
                "MirrorPadGrad",
                [complex_normal(*grown), _ints(margins)],
                {"mode": mode},
                lambda x, p, m=numpy_mode: _mirror_transposed(x, p, m),
                dtypes=("float32", "float64", "complex64", "complex128", "int32", "int64"),
                label=f"{mode}{margins}",
            )
        )
    return cases


def _mirror_transposed(grad: Array, paddings: Array, mode: Any) -> Array:
    shape = [n - int(sum(pair)) for n, pair in zip(grad.shape, paddings, strict=True)]
    places = np.pad(np.arange(np.prod(shape)).reshape(shape), paddings, mode)
    total = np.zeros(int(np.prod(shape)), grad.dtype)
    np.add.at(total, places.reshape(-1), grad.reshape(-1))
    return total.reshape(shape)


def _orders() -> list[Case]:
    cases: list[Case] = []
    for perm in ([0, 1, 2], [2, 0, 1], [2, 1, 0], [1, 0, 2]):
        for dtype in (np.int32, np.int64):
            label = f"{perm}{np.dtype(dtype).name}"
            cases += each("Transpose", X, [_ints(perm, dtype)], {}, np.transpose, label)
            cases.append(
                Case(
                    "ConjugateTranspose",
                    [X, _ints(perm, dtype)],
                    {},
                    lambda x, perm: np.conj(np.transpose(x, perm)),
                    dtypes=NUMBERS,
                    label=label,
                )
            )
    cases += each("Transpose", np.array(2.0), [_ints(np.zeros(0))], {}, lambda x, p: x, "scalar")
    cases.append(
        Case(
            "InvertPermutation",
            [np.array([2, 0, 3, 1])],
            {},
            np.argsort,
            dtypes=("int32", "int64"),
        )
    )
    for flags in ([True, False, True], [False] * 3):
        cases += each(
            "Reverse",
            X,
            [Raw(np.array(flags))],
            {},
            lambda x, flags: np.flip(x, tuple(np.flatnonzero(flags))),
            str(flags),
        )
    for axes in ([0], [-1, 0], [1, 2, 0], []):
        cases += each(
            "ReverseV2", X, [_ints(axes)], {}, lambda x, axes: np.flip(x, tuple(axes)), str(axes)
        )
    for along, batch in ((1, 0), (0, 1), (2, 0), (1, 2)):
        lengths = [n % (X.shape[along] + 1) for n in range(1, X.shape[batch] + 1)]
        cases += each(
            "ReverseSequence",
            X,
            [_ints(lengths, np.int64)],
            {"seq_dim": along, "batch_dim": batch},
            lambda x, lengths, a=along, b=batch: _reversed(x, lengths, a, b),
            f"{along}by{batch}",
        )
    for shift, axis in ((1, 0), (-3, 1), (99, -1), ([1, 2], [0, 1]), ([1, 1], [2, 2])):
        cases += each(
            "Roll",
            X,
            [_ints(shift), _ints(axis)],
            {},
            lambda x, shift, axis: (
                np.roll(x, shift, tuple(np.atleast_1d(axis)))
                if axis.ndim
                else np.roll(x, int(shift), int(axis))
            ),
            f"{shift}at{axis}",
        )
    return cases


def _reversed(x: Array, lengths: Array, along: int, batch: int) -> Array:
    result = np.moveaxis(x, (batch, along), (0, 1)).copy()
    for row, n in zip(result, lengths, strict=True):
        row[:n] = row[:n][::-1].copy()
    return np.moveaxis(result, (0, 1), (batch, along))


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
        cases += each("SpaceToBatchND", IMAGES, vectors, {}, _space_to_batch, str(blocks))
    for blocks, crops in (([1, 2], [[0, 0], [0, 0]]), ([2, 1], [[1, 2], [0, 3]]), ([2], [[1, 0]])):
        vectors = [_ints(blocks), _ints(crops)]
        cases += each("BatchToSpaceND", IMAGES, vectors, {}, _batch_to_space, str(blocks))
    cases += each(
        "SpaceToDepth",
        IMAGES,
        [],
        {"block_size": 2},
        lambda x: np.concatenate([x[:, i::2, j::2] for i in range(2) for j in range(2)], axis=-1),
    )
    first = np.moveaxis(IMAGES, 3, 1)
    cases += each(
        "SpaceToDepth",
        first,
        [],
        {"block_size": 2, "data_format": "NCHW"},
        lambda x: np.concatenate([x[:, :, i::2, j::2] for i in range(2) for j in range(2)], 1),
        "NCHW",
    )
    deep = 3 * complex_normal(2, 3, 2, 8)
    cases += each("DepthToSpace", deep, [], {"block_size": 2}, lambda x: _to_space(x, 2))
    cases += each(
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
                    [IMAGES.real],
                    attrs,
                    lambda x, a=attrs: _patches(x, a),
                    dtypes=REALS,
                    label=f"{padding}{strides}{rates}",
                )
            )
    return cases


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


CASES = [*_padding(), *_orders(), *_blocks()]

"""Convolutions against loops over output positions."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
from weft_testing.cases import FLOATS, Array, Case, Raw, normal

LOOSE = {"float32": (2e-5, 2e-5), "float16": (4e-3, 2e-2), "bfloat16": (3e-2, 1e-1)}


class Reference:
    """A convolution, one output position at a time, in any number of spatial axes."""

    def __init__(self, attrs: dict[str, Any], depthwise: bool) -> None:
        self.format = attrs.get("data_format", "NHWC" if len(attrs["strides"]) == 4 else "NDHWC")
        self.channel = self.format.index("C")
        self.axes = [i for i, letter in enumerate(self.format) if letter not in "NC"]
        self.attrs = attrs
        self.depthwise = depthwise
        self.strides = [attrs["strides"][a] for a in self.axes]
        dilations = attrs.get("dilations", [1] * len(self.format))
        self.dilations = [dilations[a] for a in self.axes]

    def pads(self, sizes: Any, kernel: Any) -> list[tuple[int, int, int]]:
        found = []
        for i, axis in enumerate(self.axes):
            reach = self.dilations[i] * (kernel[i] - 1) + 1
            n, s = sizes[i], self.strides[i]
            if self.attrs["padding"] == "SAME":
                count = (n + s - 1) // s
                total = max(0, (count - 1) * s + reach - n)
                found.append((count, total // 2, total - total // 2))
            else:
                explicit = self.attrs.get("explicit_paddings") or [0] * 10
                low, high = explicit[2 * axis : 2 * axis + 2]
                found.append(((n + low + high - reach) // s + 1, low, high))
        return found

    def positions(
        self, sizes: Any, kernel: Any
    ) -> tuple[tuple[int, ...], Any, Iterator[tuple[Any, Any]]]:
        """The counts, the padding, and pairs of output position and window."""
        pads = self.pads(sizes, kernel)
        counts = tuple(count for count, _, _ in pads)

        def each() -> Iterator[tuple[Any, Any]]:
            for at in product(*map(range, counts)):
                window = [
                    slice(p * s, p * s + d * (k - 1) + 1, d)
                    for p, s, d, k in zip(at, self.strides, self.dilations, kernel, strict=True)
                ]
                yield (slice(None), *at), (slice(None), *window)

        return counts, [(0, 0), *[(low, high) for _, low, high in pads], (0, 0)], each()

    def last(self, value: Array) -> Array:
        return np.moveaxis(value, self.channel, -1)

    def first(self, value: Array) -> Array:
        return np.moveaxis(value, -1, self.channel)

    def spec(self, rank: int, depthwise: bool) -> tuple[str, str, str]:
        window = "hwd"[: rank - 2]
        if depthwise:
            return f"n{window}c", f"{window}co", "nco"
        return f"n{window}c", f"{window}co", "no"

    def forward(self, x: Array, filters: Array) -> Array:
        x = self.last(x)
        kernel = filters.shape[:-2]
        counts, padding, positions = self.positions(x.shape[1:-1], kernel)
        x = np.pad(x, padding)
        a, b, c = self.spec(x.ndim, self.depthwise)
        depth = filters.shape[-1] * (filters.shape[-2] if self.depthwise else 1)
        result = np.zeros((x.shape[0], *counts, depth))
        for at, window in positions:
            result[at] = np.einsum(f"{a},{b}->{c}", x[window], filters).reshape(-1, depth)
        return self.first(result)

    def by_input(self, sizes: Array, filters: Array, grad: Array) -> Array:
        last = [sizes[0], *[sizes[axis] for axis in self.axes], sizes[self.channel]]
        grad = self.last(grad)
        _, padding, positions = self.positions(last[1:-1], filters.shape[:-2])
        whole = np.pad(np.zeros(last), padding)
        a, b, c = self.spec(grad.ndim, self.depthwise)
        for at, window in positions:
            g = grad[at]
            g = g.reshape(-1, *filters.shape[-2:]) if self.depthwise else g
            whole[window] += np.einsum(f"{c},{b}->{a}", g, filters)
        inner = [slice(low, low + n) for (low, _), n in zip(padding, last, strict=True)]
        return self.first(whole[tuple(inner)])

    def by_filter(self, x: Array, sizes: Array, grad: Array) -> Array:
        x, grad = self.last(x), self.last(grad)
        _, padding, positions = self.positions(x.shape[1:-1], sizes[:-2])
        x = np.pad(x, padding)
        a, b, c = self.spec(x.ndim, self.depthwise)
        total = np.zeros(tuple(sizes))
        for at, window in positions:
            g = grad[at]
            g = g.reshape(-1, *sizes[-2:]) if self.depthwise else g
            total += np.einsum(f"{a},{c}->{b}", x[window], g)
        return total


def _trio(
    kind: str,
    x: tuple[int, ...],
    kernel: tuple[int, ...],
    label: str,
    dtypes: Any = ("float32", "float64"),
    **attrs: Any,
) -> list[Case]:
    """Forward, by input and by filter, for an input shape with the channels last."""
    depthwise = kind == "DepthwiseConv2dNative"
    suffix = "V2" if kind == "Conv3D" else ""
    ref = Reference(attrs, depthwise)
    shape = np.empty(x)
    shape = ref.first(shape).shape
    filters = normal(*kernel, seed=1)
    upstream = ref.forward(normal(*shape), filters).shape
    common: dict[str, Any] = {"dtypes": dtypes, "tolerance": LOOSE, "label": label}
    return [
        Case(kind, [normal(*shape), filters], attrs, ref.forward, **common),
        Case(
            f"{kind}BackpropInput{suffix}",
            [Raw(shape), filters, normal(*upstream, seed=2)],
            attrs,
            ref.by_input,
            **common,
        ),
        Case(
            f"{kind}BackpropFilter{suffix}",
            [normal(*shape), Raw(kernel), normal(*upstream, seed=2)],
            attrs,
            ref.by_filter,
            **common,
        ),
    ]


ONE = [1, 1, 1, 1]
FIRST = {"data_format": "NCHW"}
ROWS: tuple[tuple[tuple[int, ...], tuple[int, ...], str, dict[str, Any]], ...] = (
    ((2, 5, 6, 3), (3, 3, 3, 4), "same", {"strides": ONE, "padding": "SAME"}),
    ((1, 4, 3, 16), (3, 3, 16, 16), "deep", {"strides": ONE, "padding": "SAME"}),
    ((1, 5, 4, 17), (3, 2, 17, 2), "deep-stride", {"strides": [1, 2, 1, 1], "padding": "SAME"}),
    ((2, 5, 6, 3), (3, 2, 3, 4), "valid", {"strides": ONE, "padding": "VALID"}),
    ((2, 6, 7, 2), (3, 3, 2, 3), "stride", {"strides": [1, 2, 3, 1], "padding": "SAME"}),
    ((1, 7, 6, 2), (2, 3, 2, 3), "gaps", {"strides": [1, 3, 2, 1], "padding": "VALID"}),
    ((2, 5, 6, 3), (3, 3, 3, 2), "first", {"strides": [1, 1, 2, 2], "padding": "SAME"} | FIRST),
    ((2, 5, 6, 3), (3, 3, 3, 2), "first-unit", {"strides": ONE, "padding": "VALID"} | FIRST),
    (
        (1, 8, 9, 2),
        (3, 2, 2, 3),
        "dilated",
        {"strides": ONE, "padding": "SAME", "dilations": [1, 2, 3, 1]},
    ),
    (
        (1, 9, 9, 2),
        (3, 3, 2, 2),
        "dilated-stride",
        {"strides": [1, 2, 1, 1], "padding": "VALID", "dilations": [1, 2, 2, 1]},
    ),
    (
        (2, 5, 4, 2),
        (3, 3, 2, 2),
        "explicit",
        {
            "strides": [1, 2, 1, 1],
            "padding": "EXPLICIT",
            "explicit_paddings": [0, 0, 2, 1, 0, 3, 0, 0],
        },
    ),
    (
        (2, 4, 4, 2),
        (2, 2, 2, 3),
        "wide-explicit",
        {"strides": ONE, "padding": "EXPLICIT", "explicit_paddings": [0, 0, 3, 2, 1, 4, 0, 0]},
    ),
    ((2, 4, 5, 3), (1, 1, 3, 2), "point", {"strides": ONE, "padding": "SAME"}),
    ((2, 5, 5, 3), (1, 1, 3, 2), "point-stride", {"strides": [1, 2, 2, 1], "padding": "SAME"}),
    ((2, 2, 3, 2), (4, 5, 2, 2), "large-kernel", {"strides": ONE, "padding": "SAME"}),
)
DEPTHWISE_ROWS: tuple[tuple[tuple[int, ...], tuple[int, ...], str, dict[str, Any]], ...] = (
    ((2, 5, 6, 3), (3, 2, 3, 1), "same", {"strides": [1, 2, 2, 1], "padding": "SAME"}),
    ((2, 5, 6, 3), (3, 2, 3, 2), "several", {"strides": [1, 2, 2, 1], "padding": "SAME"}),
    ((1, 6, 5, 2), (3, 3, 2, 2), "first", {"strides": ONE, "padding": "VALID"} | FIRST),
    ((2, 4, 5, 1), (2, 2, 1, 1), "first-single", {"strides": ONE, "padding": "VALID"} | FIRST),
    (
        (1, 8, 8, 2),
        (3, 3, 2, 1),
        "dilated",
        {"strides": ONE, "padding": "SAME", "dilations": [1, 2, 3, 1]},
    ),
)
VOLUME_ROWS: tuple[tuple[tuple[int, ...], tuple[int, ...], str, dict[str, Any]], ...] = (
    ((1, 3, 4, 5, 2), (2, 3, 2, 2, 3), "same", {"strides": [1] * 5, "padding": "SAME"}),
    (
        (1, 4, 5, 4, 2),
        (2, 2, 3, 2, 2),
        "stride",
        {"strides": [1, 2, 1, 2, 1], "padding": "VALID"},
    ),
    (
        (1, 3, 4, 4, 2),
        (2, 2, 2, 2, 2),
        "first",
        {"strides": [1, 1, 2, 1, 2], "padding": "SAME", "data_format": "NCDHW"},
    ),
)
NARROW_TOO = ("same", "first")


def _all() -> Iterator[Case]:
    for kind, rows in (
        ("Conv2D", ROWS),
        ("DepthwiseConv2dNative", DEPTHWISE_ROWS),
        ("Conv3D", VOLUME_ROWS),
    ):
        for x, kernel, label, attrs in rows:
            dtypes = FLOATS if label in NARROW_TOO else ("float32", "float64")
            yield from _trio(kind, x, kernel, label, dtypes, **attrs)


CASES = list(_all())

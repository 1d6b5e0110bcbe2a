"""Pools against loops over windows."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
from weft_testing.cases import FLOATS, INTEGERS, Array, Case, Raw, integers, normal

WIDE = ("float32", "float64")


class Reference:
    """A pool, one window at a time."""

    def __init__(self, attrs: dict[str, Any]) -> None:
        self.attrs = attrs

    def windows(self, shape: Any) -> tuple[tuple[int, ...], Iterator[tuple[Any, Any]]]:
        """The output's shape, and pairs of output position and window clipped to the input."""
        spans = []
        for n, k, s in zip(shape, self.attrs["ksize"], self.attrs["strides"], strict=True):
            if self.attrs["padding"] == "SAME":
                count = -(-n // s)
                low = max(0, (count - 1) * s + k - n) // 2
            else:
                count, low = (n - k) // s + 1, 0
            starts = [p * s - low for p in range(count)]
            spans.append([slice(max(0, b), min(n, b + k)) for b in starts])
        counts = tuple(len(span) for span in spans)
        places = product(*[range(count) for count in counts])
        each = ((at, tuple(span[i] for span, i in zip(spans, at, strict=True))) for at in places)
        return counts, each

    def largest(self, x: Array) -> Array:
        counts, windows = self.windows(x.shape)
        y = np.zeros(counts, x.dtype)
        for at, window in windows:
            y[at] = x[window].max()
        return y

    def winner(self, x: Array, window: Any) -> tuple[int, ...]:
        inside = np.unravel_index(int(np.argmax(x[window])), x[window].shape)
        return tuple(int(i) + s.start for i, s in zip(inside, window, strict=True))

    def spread_largest(self, x: Array, y: Array, grad: Array) -> Array:
        result = np.zeros(x.shape, grad.dtype)
        for at, window in self.windows(x.shape)[1]:
            result[self.winner(x, window)] += grad[at]
        return result

    def pick_largest(self, x: Array, y: Array, grad: Array) -> Array:
        result = np.zeros(y.shape, grad.dtype)
        for at, window in self.windows(x.shape)[1]:
            result[at] = grad[self.winner(x, window)]
        return result

    def argmax(self, x: Array) -> tuple[Array, Array]:
        counts, windows = self.windows(x.shape)
        places = np.zeros(counts, np.int64)
        for at, window in windows:
            n, *rest = self.winner(x, window)
            batch = n if self.attrs.get("include_batch_in_index") else 0
            places[at] = np.ravel_multi_index((batch, *rest), x.shape)
        return self.largest(x), places

    def mean(self, x: Array) -> Array:
        counts, windows = self.windows(x.shape)
        y = np.zeros(counts)
        for at, window in windows:
            y[at] = x[window].mean()
        return y

    def spread_mean(self, sizes: Array, grad: Array) -> Array:
        result = np.zeros(tuple(sizes))
        for at, window in self.windows(sizes)[1]:
            result[window] += grad[at] / result[window].size
        return result

    def spread_argmax(self, x: Array, grad: Array, argmax: Array) -> Array:
        return self.spread_largest(x, grad, grad)


def _max(shape: tuple[int, ...], label: str, dtypes: Any, **attrs: Any) -> list[Case]:
    ref = Reference(attrs)
    op = "MaxPool" if len(shape) == 4 else "MaxPool3D"
    x = normal(*shape) if "float64" in dtypes else integers(-9, 9, *shape)
    if label == "ties":
        x = np.round(x)
    if label == "infinite":
        x = np.where(np.abs(x) < 1.5, -np.inf, np.copysign(np.inf, x))
    y = ref.largest(x)
    rest: dict[str, Any] = {"dtypes": dtypes, "label": label}
    smooth = label not in ("ties", "infinite") and "float64" in dtypes
    up = normal(*y.shape, seed=3) if "float64" in dtypes else integers(0, 5, *y.shape)
    at = normal(*shape, seed=4) if "float64" in dtypes else integers(0, 5, *shape)
    return [
        Case(op, [x], attrs, ref.largest, grad=None if smooth else False, **rest),
        Case(f"{op}Grad", [x, y, up], attrs, ref.spread_largest, grad=[2], **rest),
        Case(f"{op}GradGrad", [x, y, at], attrs, ref.pick_largest, grad=[2], **rest),
    ]


def _with_inputs(case: Case) -> Case:
    """The case of the op whose window is not in attributes but in inputs."""
    window = [Raw(np.array(case.attrs[key]), "int32") for key in ("ksize", "strides")]
    attrs = {k: v for k, v in case.attrs.items() if k not in ("ksize", "strides")}

    def expected(*inputs: Array) -> Any:
        assert case.expected is not None
        return case.expected(*inputs[:-2])

    return Case(
        f"{case.op}V2",
        [*case.inputs, *window],
        attrs,
        expected,
        dtypes=case.dtypes,
        label=case.label,
        grad=[0] if case.grad is None else case.grad,
    )


def _avg(shape: tuple[int, ...], label: str, dtypes: Any, **attrs: Any) -> list[Case]:
    ref = Reference(attrs)
    op = "AvgPool" if len(shape) == 4 else "AvgPool3D"
    x = normal(*shape)
    up = normal(*ref.mean(x).shape, seed=3)
    return [
        Case(op, [x], attrs, ref.mean, dtypes=dtypes, label=label),
        Case(f"{op}Grad", [Raw(shape), up], attrs, ref.spread_mean, dtypes=dtypes, label=label),
    ]


def _argmax(shape: tuple[int, ...], label: str, **attrs: Any) -> list[Case]:
    ref = Reference(attrs)
    x = normal(*shape)
    y, places = ref.argmax(x)
    return [
        Case("MaxPoolWithArgmax", [x], attrs, ref.argmax, dtypes=WIDE, label=label),
        Case(
            "MaxPoolGradWithArgmax",
            [x, normal(*y.shape, seed=3), Raw(places, "int64", constant=False)],
            attrs,
            ref.spread_argmax,
            dtypes=WIDE,
            label=label,
            grad=[1],
        ),
    ]


SHAPES: tuple[tuple[tuple[int, ...], str, dict[str, Any]], ...] = (
    ((2, 5, 6, 3), "same", {"ksize": [1, 3, 3, 1], "strides": [1, 2, 2, 1], "padding": "SAME"}),
    ((2, 5, 6, 3), "valid", {"ksize": [1, 2, 3, 1], "strides": [1, 2, 1, 1], "padding": "VALID"}),
    ((2, 4, 6, 2), "apart", {"ksize": [1, 2, 2, 1], "strides": [1, 2, 3, 1], "padding": "VALID"}),
    ((1, 2, 3, 2), "large", {"ksize": [1, 5, 4, 1], "strides": [1, 1, 1, 1], "padding": "SAME"}),
    ((1, 4, 4, 2), "one", {"ksize": [1, 1, 1, 1], "strides": [1, 1, 1, 1], "padding": "SAME"}),
    ((2, 3, 3, 4), "depth", {"ksize": [1, 1, 1, 2], "strides": [1, 1, 1, 2], "padding": "VALID"}),
    (
        (2, 3, 5, 6),
        "channels-first",
        {
            "ksize": [1, 1, 3, 2],
            "strides": [1, 1, 2, 2],
            "padding": "SAME",
            "data_format": "NCHW",
        },
    ),
)
VOLUME: dict[str, Any] = {
    "ksize": [1, 2, 3, 2, 1],
    "strides": [1, 2, 2, 1, 1],
    "padding": "SAME",
}


def _all() -> Iterator[Case]:
    for shape, label, attrs in SHAPES:
        yield from _max(shape, label, FLOATS if label == "same" else WIDE, **attrs)
        yield from _avg(shape, label, FLOATS if label == "same" else WIDE, **attrs)
        if label in ("same", "valid", "channels-first"):
            yield from map(_with_inputs, _max(shape, label, WIDE, **attrs))
    yield from _max((2, 5, 6, 3), "ties", WIDE, **SHAPES[0][2])
    yield from _max((2, 5, 6, 3), "infinite", WIDE, **SHAPES[0][2])
    yield from _max((2, 5, 6, 3), "integers", INTEGERS[:4], **SHAPES[0][2])
    yield from _max((1, 3, 4, 5, 2), "volume", WIDE, **VOLUME)
    yield from _avg((1, 3, 4, 5, 2), "volume", WIDE, **VOLUME)
    yield from _argmax((2, 5, 6, 3), "image", **SHAPES[0][2])
    yield from _argmax((2, 5, 6, 3), "batch", include_batch_in_index=True, **SHAPES[1][2])


CASES = list(_all())

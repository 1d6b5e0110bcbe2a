"""Calibration: measurement of the range of each value over samples, and its int8 scale."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from weft_graph.ir.node import Output
from weft_lite.convert import agreement
from weft_lite.convert.lowered import Array, Lowered, Value
from weft_lite.convert.writer import Writer
from weft_lite.schema.enums import DataType, OpKind
from weft_tensor import errors

TRAINED: Final = "trained"
"""The method that reads all ranges from fake-quant ops."""

RANGES: Final = ("extremes", "percentile", "average", TRAINED)
CUT: Final = 0.01
"""Percentage of elements that "percentile" leaves out at each end."""


class Scale(NamedTuple):
    """Scale and zero point of an int8 or int16 tensor."""

    scale: float
    zero: int

    def range(self) -> Range:
        """Return the range of real numbers that the type represents."""
        return Range((-128 - self.zero) * self.scale, (127 - self.zero) * self.scale)


class Range(NamedTuple):
    """The smallest and the largest number among a value's elements."""

    low: float
    high: float

    @property
    def is_point(self) -> bool:
        """True if the range is a single number."""
        return self.low == self.high

    def scale(self, dtype: DataType = DataType.INT8) -> Scale:
        """Return the scale that represents the range, and zero exactly; for int16, symmetric."""
        low, high = min(self.low, 0.0), max(self.high, 0.0)
        if dtype is DataType.INT16:
            return Scale(float(np.float32(max(-low, high) / 32767)) or 1.0, 0)
        step = float(np.float32((high - low) / 255)) or 1.0
        return Scale(step, int(np.clip(round(-128 - low / step), -128, 127)))


def require_method(method: str, calibrated: bool) -> None:
    """Check the method for ranges: it must be known, and may require calibration.

    Raises: InvalidArgumentError: the method is unknown, or calibration is missing.
    """
    if method not in RANGES:
        raise errors.InvalidArgumentError(f"ranges must be one of {RANGES}, not {method!r}")
    if method == TRAINED and calibrated:
        raise errors.InvalidArgumentError(
            "ranges='trained' uses the ranges of fake-quant ops and accepts no calibration"
        )
    if method not in (RANGES[0], TRAINED) and not calibrated:
        raise errors.InvalidArgumentError(f"ranges={method!r} needs calibration")


def collect_samples(
    calibration: Iterable[Mapping[str, Any]],
    inputs: Mapping[str, Output],
    bounds: Sequence[tuple[int, ...]],
) -> list[list[Array]]:
    """Return the values of all inputs in each sample.

    Raises: InvalidArgumentError: there are no samples, or an input is missing or has another shape.
    """
    samples = []
    for sample in calibration:
        missing = set(inputs) - sample.keys()
        if missing:
            raise errors.InvalidArgumentError(f"a calibration sample lacks {sorted(missing)}")
        samples.append(agreement.complete(sample, inputs, bounds))
    if not samples:
        raise errors.InvalidArgumentError("the calibration set is empty")
    return samples


def value_names(
    lowered: Lowered, keep_float: Iterable[str], inputs: Collection[str]
) -> frozenset[str]:
    """Return the names of the values that stay in float.

    Args:
      lowered: the graph.
      keep_float: names of inputs, of results, or of ops, which stand for all their results.
      inputs: the public names of the inputs.
    Raises: InvalidArgumentError: a name is unknown.
    """
    name_lists: dict[str, set[str]] = {}
    for key, value in zip(inputs, lowered.inputs, strict=True):
        name_lists[key] = name_lists[value.name] = {value.name}
    for graph in lowered.graphs():
        for op in graph.ops:
            for out in op.outputs:
                name_lists.setdefault(op.name, set()).add(out.name)
                name_lists.setdefault(out.name, set()).add(out.name)
    names = {name.removesuffix(":0") for name in keep_float}
    unknown = names - name_lists.keys()
    if unknown:
        raise errors.InvalidArgumentError(
            "keep_float has names that are not inputs, results or ops of the converted graph: "
            f"{sorted(unknown)}"
        )
    return frozenset().union(*(name_lists[name] for name in names))


def measure(
    lowered: Lowered,
    samples: Sequence[Sequence[Array]],
    method: str = "extremes",
    names: Collection[str] = (),
    activations: str = "int8",
) -> dict[Value, Range]:
    """Measure the ranges of inputs and float32 results by running a file that outputs them all.

    The samples run in turn, so variables have the values that the samples before left.

    Args:
      lowered: the graph.
      samples: values of its inputs.
      method: one of `RANGES`.
      names: names of values that stay in float, and need no range.
      activations: the type that the ranges are for, "int8" or "int16".
    Returns: the ranges; values without a range stay in float: those in `names`, empty or infinite
      values, and masked scores (see `_mask`).
    Raises: InvalidArgumentError: another value is NaN for some sample; the message lists all.
    """
    if method == TRAINED:
        return {}
    computed = [out for op in lowered.ops for out in op.outputs if out.dtype is DataType.FLOAT32]
    content = Writer(Lowered(lowered.inputs, computed, lowered.ops, lowered.bodies)).content([])
    values = [*lowered.inputs, *computed]
    spans: dict[Value, list[_Span]] = {}
    results = agreement.run_in_turn(content, samples)
    for sample, computed_arrays in zip(samples, results, strict=True):
        for value, array in zip(values, [*sample, *computed_arrays], strict=True):
            if array.size and value.name not in names:
                spans.setdefault(value, []).append(_span(array, method))
    _require_numbers(spans)
    ranges = {value: _join(span, method) for value, span in spans.items()}
    ranges = {value: item for value, item in ranges.items() if np.isfinite(item).all()}
    steps = np.iinfo(activations).max
    masked = [v for v in _scores(lowered) & ranges.keys() if _mask(spans[v], ranges[v], steps)]
    return {value: item for value, item in ranges.items() if value not in masked}


class _Span(NamedTuple):
    """The range of a value in a sample.

    Attributes:
      extremes: the smallest and the largest element.
      chosen: the range by the method.
      halves: the ranges of the elements below and above the middle of `extremes`.
    """

    extremes: Range
    chosen: Range
    halves: Sequence[Range]


def _span(array: Array, method: str) -> _Span:
    """Return the range of an array, by the method."""
    extremes = _extremes(array)
    if not np.isfinite(extremes).all():
        return _Span(extremes, extremes, [])
    upper = array > extremes.low / 2 + extremes.high / 2
    halves = [_extremes(half) for half in (array[~upper], array[upper]) if half.size]
    if method != "percentile":
        return _Span(extremes, extremes, halves)
    low, high = np.percentile(array, [CUT, 100 - CUT])
    return _Span(extremes, Range(float(low), float(high)), halves)


def _extremes(array: Array) -> Range:
    """Return the smallest and the largest element."""
    return Range(float(array.min()), float(array.max()))


_COMBINING: Final = {
    OpKind.Add, OpKind.Sub, OpKind.Mul, OpKind.Div, OpKind.Maximum, OpKind.Minimum, OpKind.Select,
    OpKind.Concat, OpKind.Pack, OpKind.Pad, OpKind.Reshape, OpKind.Squeeze, OpKind.ExpandDims,
    OpKind.Transpose, OpKind.Slice, OpKind.StridedSlice, OpKind.Tile, OpKind.BroadcastTo,
}  # fmt: skip
"""Kinds of ops that combine scores with the large numbers of a mask."""

_COMPARING: Final = (OpKind.Softmax, OpKind.LogSoftmax, OpKind.Max, OpKind.ArgMax, OpKind.TopK)
"""Kinds of ops whose results are not affected by large negative elements."""


def _scores(lowered: Lowered) -> set[Value]:
    """Return the values whose large negative elements do not affect results.

    These are the inputs of comparing ops such as Softmax, and the values from which combining ops
    such as Add compute these inputs.
    """
    scores: set[Value] = set()
    for graph in lowered.graphs():
        for op in reversed(graph.ops):
            if op.kind in _COMPARING or (op.kind in _COMBINING and op.outputs[0] in scores):
                scores.update(value for value in op.inputs if value is not None)
    return scores


def _mask(spans: Sequence[_Span], joined: Range, steps: int) -> bool:
    """Return True if a mask value widens a range so much that int8 cannot resolve the scores.

    An example is scores from -5 to 5 in which a mask replaces elements by -1e9. The scores are then
    at one end of the range, or at both ends, and spread over fewer than 8 of its `steps`.
    """
    middle = joined.low / 2 + joined.high / 2
    halves = [half for span in spans for half in span.halves]
    lower = [half for half in halves if half.high <= middle]
    upper = [half for half in halves if half.low > middle]
    if len(lower) + len(upper) < len(halves):
        return False  # elements in the middle
    spreads = [side.high - side.low for side in map(union, filter(None, (lower, upper)))]
    step = joined.high / steps - joined.low / steps
    return any(0 < spread < 8 * step for spread in spreads)


def _join(spans: Sequence[_Span], method: str) -> Range:
    """Join the ranges of samples; return the extremes if only outliers vary."""
    extremes = union([span.extremes for span in spans])
    if not np.isfinite(extremes).all():
        return extremes
    selected = [span.chosen for span in spans]
    joined = (
        Range(*map(float, np.mean(selected, axis=0))) if method == "average" else union(selected)
    )
    return extremes if joined.is_point else joined


def union(ranges: Sequence[Range]) -> Range:
    """Return the smallest range that includes all ranges."""
    return Range(min(item.low for item in ranges), max(item.high for item in ranges))


def _require_numbers(spans: Mapping[Value, Sequence[_Span]]) -> None:
    """Check that no value is NaN for any sample."""
    nan_names = sorted(
        value.name
        for value, span in spans.items()
        if np.isnan([span.extremes for span in span]).any()
    )
    if nan_names:
        raise errors.InvalidArgumentError(
            f"calibration: these values are NaN for some sample: {nan_names}; pass samples "
            "for which "
            "they are finite, or name them in keep_float"
        )

"""Kernels of candidate samplers, over the random streams of the session."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft_exec.kernels import philox
from weft_exec.kernels.random import stream_of
from weft_exec.kernels.registry import KernelFunction, kernel
from weft_exec.resources.file_access import check_path, open_checked
from weft_exec.resources.resources import Resource
from weft_tensor import errors
from weft_tensor.os_errors import convert_os_errors

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

Array = np.ndarray[Any, Any]


class _Distribution:
    """A distribution over classes, with sampling and probabilities."""

    def draw(self, uniform: Array) -> Array:
        """Return one class for each uniform number in [0, 1)."""
        raise NotImplementedError

    def probability(self, classes: Array) -> Array:
        """Return the probability of each class."""
        raise NotImplementedError


class _Uniform(_Distribution):
    def __init__(self, limit: int) -> None:
        self._limit = limit

    def draw(self, uniform: Array) -> Array:
        return np.asarray(uniform * self._limit, np.float64).astype(np.int64)

    def probability(self, classes: Array) -> Array:
        return np.full(classes.shape, 1.0 / self._limit, np.float64)


class _LogUniform(_Distribution):
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._log_range = np.log1p(float(limit))

    def draw(self, uniform: Array) -> Array:
        result = np.exp(uniform * self._log_range).astype(np.int64) - 1
        return np.asarray(result % self._limit)

    def probability(self, classes: Array) -> Array:
        wide = classes.astype(np.float64)
        return np.asarray(np.log((wide + 2) / (wide + 1)) / self._log_range)


class _Weighted(_Distribution):
    """Classes with probabilities proportional to weights, sampled by inversion."""

    def __init__(self, weights: Array) -> None:
        self._sums = np.cumsum(weights, dtype=np.float64)
        self._weights = weights / max(self._sums[-1], np.finfo(np.float64).tiny)

    def draw(self, uniform: Array) -> Array:
        result = np.searchsorted(self._sums, uniform * self._sums[-1], side="right")
        return np.asarray(np.minimum(result, len(self._sums) - 1), np.int64)

    def probability(self, classes: Array) -> Array:
        is_inside = (classes >= 0) & (classes < len(self._weights))
        return np.where(is_inside, self._weights[np.where(is_inside, classes, 0)], 0.0)


def _sample_classes(words: philox.Words, count: int, unique: bool, source: _Distribution) -> Any:
    """Return the sampled classes, and the number of draws that were needed."""

    def fresh(number: int) -> Array:
        uniform = np.empty(number, np.float64)
        philox.fill_uniform(words, uniform, np)
        return source.draw(uniform)

    samples = fresh(count)
    if not unique:
        return samples, count
    while True:
        first = np.sort(np.unique(samples, return_index=True)[1])
        if len(first) >= count:
            return samples[first[:count]], int(first[count - 1]) + 1
        samples = np.concatenate([samples, fresh(len(samples))])


def _expected(probability: Array, tries: int, count: int, unique: bool) -> Array:
    """Return the expected count of classes in a sample of `count` that took `tries` draws."""
    if not unique:
        return (probability * count).astype(np.float32)
    return np.asarray(-np.expm1(tries * np.log1p(-probability))).astype(np.float32)


def _check_columns(op: str, true_classes: Any, columns: int) -> None:
    if true_classes.ndim != 2 or true_classes.shape[1] != columns:
        raise errors.InvalidArgumentError(
            f"{op} requires true_classes of shape [batch, {columns}], got "
            f"{list(true_classes.shape)}"
        )


def _sampler(node: Node, device: Device, source_of: Callable[[Array], Any]) -> KernelFunction:
    stream = stream_of(node, device.resources)
    count, unique = node.attrs["num_sampled"], node.attrs["unique"]
    columns = node.attrs["num_true"]

    def run(true_classes: Any) -> Any:
        _check_columns(node.type, true_classes, columns)
        source = source_of(true_classes)
        sampled, tries = stream.run(_sample_classes, count, unique, source)
        of_true = _expected(source.probability(true_classes), tries, count, unique)
        of_sampled = _expected(source.probability(sampled), tries, count, unique)
        return sampled, of_true, of_sampled

    return run


@kernel("UniformCandidateSampler", "LogUniformCandidateSampler")
def _make_plain(node: Node, device: Device) -> KernelFunction:
    kind = _Uniform if node.type == "UniformCandidateSampler" else _LogUniform
    source = kind(node.attrs["range_max"])
    return _sampler(node, device, lambda _: source)


@kernel("FixedUnigramCandidateSampler")
def _make_fixed(node: Node, device: Device) -> KernelFunction:
    attrs = node.attrs
    counts = list(attrs["unigrams"]) or _read_counts(attrs["vocab_file"])
    full = [0.0] * attrs["num_reserved_ids"] + counts
    limit = attrs["range_max"]
    if len(full) != limit:
        raise errors.InvalidArgumentError(
            f"FixedUnigramCandidateSampler requires range_max to be the number of counts and "
            f"reserved classes, {len(full)}, got {limit}"
        )
    weights = np.array(full)
    reserved = attrs["num_reserved_ids"]
    weights[reserved:] **= attrs["distortion"]
    weights[np.arange(limit) % attrs["num_shards"] != attrs["shard"]] = 0
    possible = int(np.count_nonzero(weights))
    if not possible or (attrs["unique"] and possible < attrs["num_sampled"]):
        raise errors.InvalidArgumentError(
            f"cannot sample {attrs['num_sampled']} classes: only {possible} have a nonzero count"
        )
    source = _Weighted(weights)
    return _sampler(node, device, lambda _: source)


def _read_counts(file: str) -> list[float]:
    """Return the last column of a CSV file."""
    check_path(file)
    with convert_os_errors("reading vocab_file", file), open(file, opener=open_checked) as text:
        lines = text.read().splitlines()
    try:
        return [float(line.rsplit(",", 1)[-1]) for line in lines if line.strip()]
    except ValueError as cause:
        raise errors.InvalidArgumentError(
            f"vocab_file {file!r} requires a number in the last column: {cause}"
        ) from cause


class _LearnedDistribution(Resource):
    """The number of occurrences of each class among the true classes of earlier steps."""

    kind = "learned class counts"

    def __init__(self, name: str, limit: int) -> None:
        super().__init__(name)
        self._counts = np.ones(limit)
        self._lock = threading.Lock()

    def learn(self, true_classes: Array) -> _Weighted:
        """Return the current distribution, and then count `true_classes`.

        Raises: InvalidArgumentError: a class is out of range.
        """
        limit = len(self._counts)
        if true_classes.size and not 0 <= true_classes.min() <= true_classes.max() < limit:
            raise errors.InvalidArgumentError(
                f"true_classes must be in [0, {limit}), got values from {true_classes.min()} "
                f"to {true_classes.max()}"
            )
        with self._lock:
            source = _Weighted(self._counts)
            self._counts += np.bincount(true_classes.reshape(-1), minlength=limit)
        return source


@kernel("LearnedUnigramCandidateSampler")
def _make_learned(node: Node, device: Device) -> KernelFunction:
    name, limit = f"_learned/{node.name}", node.attrs["range_max"]
    own_resources = device.resources.own
    learned = own_resources.lookup_or_create(
        "", name, _LearnedDistribution, lambda: _LearnedDistribution(name, limit)
    )
    return _sampler(node, device, learned.learn)


@kernel("AllCandidateSampler")
def _make_all(node: Node, device: Device) -> KernelFunction:
    count, columns = node.attrs["num_sampled"], node.attrs["num_true"]

    def run(true_classes: Any) -> Any:
        _check_columns(node.type, true_classes, columns)
        expected_counts = np.ones(true_classes.shape, np.float32)
        return np.arange(count, dtype=np.int64), expected_counts, np.ones(count, np.float32)

    return run


_TABLE: Final = 1 << 16
"""Maximum number of pairs of classes for which all pairs are compared."""


def _hits(true_classes: Array, sampled: Array) -> tuple[Array, Array]:
    """Return the rows of true classes and the positions of equal candidates, in order."""
    if true_classes.size * sampled.size <= _TABLE:
        rows, _, columns = np.nonzero(true_classes[:, :, None] == sampled)
        return rows, columns
    order = np.argsort(sampled, kind="stable")
    flat, ordered = true_classes.reshape(-1), sampled[order]
    first = np.searchsorted(ordered, flat, "left")
    counts = np.searchsorted(ordered, flat, "right") - first
    row = np.repeat(np.arange(flat.size), counts)
    steps = np.arange(row.size) - np.repeat(np.cumsum(counts) - counts, counts)
    return row // true_classes.shape[1], order[first[row] + steps]


@kernel("ComputeAccidentalHits")
def _make_hits(node: Node, device: Device) -> KernelFunction:
    def run(true_classes: Any, sampled: Any) -> Any:
        rows, columns = _hits(true_classes, sampled)
        weights = np.full(len(rows), -np.finfo(np.float32).max, np.float32)
        return rows.astype(np.int32), columns.astype(np.int64), weights

    return run

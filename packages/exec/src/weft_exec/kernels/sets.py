"""Kernels of sets along the last axis, and of distances between sequences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from weft_exec.kernels.common import Array, new_array
from weft_exec.kernels.registry import KernelFunction, kernel
from weft_exec.kernels.sparse_parts import Sparse, check_sparse, flatten_positions, make_keys
from weft_tensor import errors
from weft_tensor.shape import format_dims

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

_OPERATIONS: Final[dict[str, Any]] = {
    "a-b": np.setdiff1d,
    "b-a": lambda a, b: np.setdiff1d(b, a),
    "intersection": np.intersect1d,
    "union": np.union1d,
}
_MOST_AT_ONCE: Final = 1 << 22
"""Maximum number of elements of the table for a batch of sequences."""


def _check_sets(node: Node, indices: Any, values: Any, shape: Any, *, argument: str) -> Sparse:
    """Return a sparse tensor whose rows are sets.

    Raises: InvalidArgumentError: its parts do not match, or its indices must be in order and are
      not.
    """
    sparse = check_sparse(indices, values, shape, argument=argument)
    if not sparse.sizes:
        raise errors.InvalidArgumentError(f"{argument}shape must have rank 1 or more, got rank 0")
    if node.attrs["validate_indices"]:
        (key,) = make_keys(sparse.sizes, sparse.places)
        steps = np.flatnonzero(key[1:] <= key[:-1])
        if steps.size:
            index = int(steps[0]) + 1
            word = "repeated" if key[index] == key[index - 1] else "out of order"
            raise errors.InvalidArgumentError(
                f"{argument}indices[{index}] = {indices[index].tolist()} is {word}"
            )
    return sparse


def _to_sparse(values: Any) -> Sparse:
    """Convert a dense tensor to a sparse one that stores all elements."""
    if values.ndim < 2:
        raise errors.InvalidArgumentError(
            f"sets need rank 2 or more, got shape {format_dims(values.shape)}"
        )
    indices = np.indices(values.shape).reshape(values.ndim, -1).T
    return Sparse(indices, values.reshape(-1), values.shape)


@kernel("DenseToDenseSetOperation", "DenseToSparseSetOperation", "SparseToSparseSetOperation")
def _set_operation(node: Node, device: Device) -> KernelFunction:
    kind = node.attrs["set_operation"]
    operation = _OPERATIONS.get(kind)
    if operation is None:
        raise errors.InvalidArgumentError(
            f"set_operation must be one of {', '.join(_OPERATIONS)}, got {kind!r}"
        )
    first, second = node.type.removesuffix("SetOperation").split("To")

    def run(*inputs: Any) -> Any:
        remaining = inputs[1:] if first == "Dense" else inputs[3:]
        a = (
            _to_sparse(inputs[0])
            if first == "Dense"
            else _check_sets(node, *inputs[:3], argument="set1_")
        )
        b = (
            _to_sparse(remaining[0])
            if second == "Dense"
            else _check_sets(node, *remaining, argument="set2_")
        )
        if a.sizes[:-1] != b.sizes[:-1] or len(a.sizes) < 2:
            raise errors.InvalidArgumentError(
                "sets need equal sizes of rank 2 or more except for the last axis, got "
                f"{format_dims(a.sizes)} and {format_dims(b.sizes)}"
            )
        return _combined(operation, a, b)

    return run


def _combined(operation: Any, a: Sparse, b: Sparse) -> tuple[Array, Array, Array]:
    groups = np.concatenate((a.places[:, :-1], b.places[:, :-1]))
    values = np.concatenate((a.values, b.values))
    (group,) = make_keys(a.sizes[:-1], groups)
    _, first, group = np.unique(group, return_index=True, return_inverse=True)
    different, code = np.unique(values, return_inverse=True)
    pair = group * max(len(different), 1) + code
    result = operation(pair[: len(a.values)], pair[len(a.values) :])
    group, code = np.divmod(result, max(len(different), 1))
    counts = np.bincount(group, minlength=len(first))
    indices = np.empty((len(result), len(a.sizes)), np.int64)
    indices[:, :-1] = groups[first][group]
    indices[:, -1] = np.arange(len(result)) - (np.cumsum(counts) - counts)[group]
    widest = int(counts.max()) if counts.size else 0
    return indices, different[code], np.array([*a.sizes[:-1], widest], np.int64)


@kernel("SetSize")
def _set_size(node: Node, device: Device) -> KernelFunction:
    def run(indices: Any, values: Any, shape: Any) -> Any:
        sets = _check_sets(node, indices, values, shape, argument="set_")
        lead = sets.sizes[:-1]
        result = new_array(device, lead, np.dtype(np.int32))
        result[...] = 0
        group = flatten_positions(sets.places[:, :-1], lead)
        _, code = np.unique(sets.values, return_inverse=True)
        matches = np.unique(np.stack([group, code], 1), axis=0)
        np.add.at(result.reshape(-1), matches[:, 0], 1)
        return result

    return run


# --------------------------------------------------------------------------- distances


class _Sequences(NamedTuple):
    """The elements of sequences as integer codes, one sequence after the other."""

    codes: Array
    starts: Array
    lengths: Array


@kernel("EditDistance", heavy=True)
def _edit_distance(node: Node, device: Device) -> KernelFunction:
    normalize: bool = node.attrs["normalize"]

    def run(*inputs: Any) -> Any:
        a = check_sparse(*inputs[:3], argument="hypothesis_")
        b = check_sparse(*inputs[3:], argument="truth_")
        if len(a.sizes) != len(b.sizes) or not a.sizes:
            raise errors.InvalidArgumentError(
                "hypothesis and truth must have the same rank of at least 1, got shapes "
                f"{format_dims(a.sizes)} and {format_dims(b.sizes)}"
            )
        lead = tuple([max(n, m) for n, m in zip(a.sizes[:-1], b.sizes[:-1], strict=True)])
        result = new_array(device, lead, np.dtype(np.float32))
        result[...] = 0
        groups = np.concatenate((a.places[:, :-1], b.places[:, :-1]))
        different, group = np.unique(flatten_positions(groups, lead), return_inverse=True)
        _, codes = np.unique(np.concatenate((a.values, b.values)), return_inverse=True)
        count = len(a.values)
        sequences = _sequences(a, group[:count], codes[:count], len(different))
        truth = _sequences(b, group[count:], codes[count:], len(different))
        matches = np.zeros(len(different), np.float32)
        for batch in _batches(sequences.lengths, truth.lengths):
            matches[batch] = _distances(sequences, truth, batch)
        if normalize:
            matches = np.where(matches == 0, matches, matches / truth.lengths.astype(np.float32))
        result.reshape(-1)[different] = matches
        return result

    return run


def _sequences(sparse: Sparse, group: Array, codes: Array, count: int) -> _Sequences:
    order = np.lexsort((sparse.places[:, -1], group))
    lengths = np.bincount(group, minlength=count)
    return _Sequences(codes[order], np.cumsum(lengths) - lengths, lengths)


def _batches(a: Array, b: Array) -> Iterator[Array]:
    """Yield batches of pairs of sequences with similar lengths; a table limits their size."""
    longest = np.maximum(a, b)
    order = np.argsort(longest, kind="stable")
    start = 0
    while start < len(order):
        minimum = int(longest[order[start]])
        similar_end = np.searchsorted(longest[order], 2 * minimum + 8, side="right")
        end = min(int(similar_end), start + max(_MOST_AT_ONCE // (2 * minimum + 8), 1))
        yield order[start:end]
        start = end


def _pad(sequences: _Sequences, array: Array, filler: int) -> Array:
    lengths = sequences.lengths[array]
    width = int(lengths.max()) if lengths.size else 0
    steps = np.arange(width)
    is_within = steps < lengths[:, None]
    index = np.where(is_within, sequences.starts[array][:, None] + steps, 0)
    if not len(sequences.codes):
        return np.full(index.shape, filler)
    return np.where(is_within, sequences.codes[index], filler)


def _distances(sequences: _Sequences, truth: _Sequences, array: Array) -> Array:
    """Compute Levenshtein distances of all pairs, for one element of `sequences` at a time.

    An element of the table is the minimum of its upper and left neighbors plus costs. Values from
    the left grow by one with each step, so they are computed as a running minimum.
    """
    a, b = _pad(sequences, array, -1), _pad(truth, array, -2)
    lengths, steps = sequences.lengths[array], np.arange(b.shape[1] + 1)
    row = np.broadcast_to(steps, (len(array), len(steps))).copy()
    for i in range(a.shape[1]):
        new = row + 1
        new[:, 1:] = np.minimum(new[:, 1:], row[:, :-1] + (b != a[:, i : i + 1]))
        new = np.minimum.accumulate(new - steps, axis=1) + steps
        row = np.where((i < lengths)[:, None], new, row)
    selected: Array = row[np.arange(len(array)), truth.lengths[array]]
    return selected

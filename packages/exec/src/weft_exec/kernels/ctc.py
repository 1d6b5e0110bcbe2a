"""Kernels of connectionist temporal classification (CTC): loss and decoders.

All are vectorized over the batch and over states or beams. They loop only over time.
Probabilities are represented by float64 logarithms, so long sequences neither underflow nor lose
precision.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from weft_exec.kernels.registry import KernelFunction, kernel
from weft_tensor import errors
from weft_tensor.shape import format_dims

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

Array = np.ndarray[Any, Any]


def _log_softmax(x: Array) -> Array:
    """Return the log-probabilities of the classes in float64."""
    x = x.astype(np.float64)
    if not x.shape[-1]:
        return x
    x = x - x.max(-1, keepdims=True)
    return np.asarray(x - np.log(np.exp(x).sum(-1, keepdims=True)))


def _log_sum(*terms: Array) -> Array:
    """Return log(sum(exp(term))), -inf where all terms are -inf."""
    top = np.maximum.reduce(terms)
    # -inf minus -inf would be NaN.
    safe = np.where(np.isneginf(top), 0.0, top)
    total = np.exp(terms[0] - safe)
    for term in terms[1:]:
        total += np.exp(term - safe)
    return np.asarray(np.log(total) + safe)


def _check_inputs(op: str, x: Any, lengths: Any) -> None:
    if x.ndim != 3:
        raise errors.InvalidArgumentError(
            f"{op} requires inputs of shape [max_time, batch, classes], got {format_dims(x.shape)}"
        )
    if lengths.shape != x.shape[1:2]:
        raise errors.InvalidArgumentError(
            f"{op} requires sequence_length of shape {format_dims(x.shape[1:2])}, got "
            f"{format_dims(lengths.shape)}"
        )
    if not x.shape[2]:
        raise errors.InvalidArgumentError(f"{op} requires at least 1 class, the blank, got 0")
    if lengths.size and not (lengths.min() >= 0 and lengths.max() <= x.shape[0]):
        raise errors.InvalidArgumentError(
            f"{op} requires sequence lengths from 0 to max_time {x.shape[0]}, got "
            f"{lengths.min()} to {lengths.max()}"
        )


def _trim_to_longest(x: Any, lengths: Any) -> Any:
    """Cut the inputs at the end of the longest sequence."""
    return x[: int(lengths.max(initial=0))]


# --------------------------------------------------------------------------------- labels


class _Labels(NamedTuple):
    """The labels of a batch, one sequence in each row.

    Attributes:
      values: shape (B, U), padded with -1.
      counts: the number of labels of each sequence, shape (B,).
    """

    values: Array
    counts: Array


def _labels(op: str, indices: Any, values: Any, batch: int, node: Node, classes: int) -> _Labels:
    """Return the labels of a sparse matrix, without entries that are not labels."""
    if indices.ndim != 2 or indices.shape[1] != 2 or values.shape != indices.shape[:1]:
        raise errors.InvalidArgumentError(
            f"{op} requires labels_indices of shape [N, 2] and N labels_values, got "
            f"{format_dims(indices.shape)} and {format_dims(values.shape)}"
        )
    rows = indices[:, 0]
    if rows.size and not (rows[0] >= 0 and rows[-1] < batch and (np.diff(rows) >= 0).all()):
        raise errors.InvalidArgumentError(
            f"{op} requires labels of sequences 0 to {batch - 1} in this order, got sequences "
            f"{rows[:20].tolist()}"
        )
    if values.size and values.min() < 0:
        raise errors.InvalidArgumentError(f"{op} requires labels of 0 or more, got {values.min()}")
    if node.attrs["preprocess_collapse_repeated"]:
        first = np.ones(len(values), np.bool_)
        first[1:] = (values[1:] != values[:-1]) | (rows[1:] != rows[:-1])
        rows, values = rows[first], values[first]
    if op == "CTCLoss":
        rows, values = _strip_nulls(op, rows, values, classes)
    elif values.size and not (values.min() > 0 and values.max() < classes):
        raise errors.InvalidArgumentError(
            f"{op} requires labels from 1 to {classes - 1}, as 0 is the blank, got "
            f"{values.min()} to {values.max()}"
        )
    counts = np.bincount(rows, minlength=batch)
    starts = np.cumsum(counts) - counts
    table = np.full((batch, int(counts.max(initial=0))), -1, np.intp)
    table[rows, np.arange(len(rows)) - starts[rows]] = values
    return _Labels(table, counts)


def _strip_nulls(op: str, rows: Array, values: Array, classes: int) -> tuple[Array, Array]:
    """Return the labels before the end of each sequence: a value of at least `blank`."""
    null = values >= classes - 1
    if not null.any():
        return rows, values
    bad = (rows[1:] == rows[:-1]) & null[:-1] & ~null[1:]
    if bad.any():
        index = int(np.argmax(bad)) + 1
        raise errors.InvalidArgumentError(
            f"{op} requires labels below the blank {classes - 1}, got {values[index - 1]} "
            f"before {values[index]} in sequence {rows[index]}"
        )
    return rows[~null], values[~null]


def _enough_time(op: str, labels: _Labels, lengths: Array, ignore: bool) -> Array:
    """Return a mask of the sequences that are long enough for their labels.

    Adjacent equal labels also need a blank between them. Without enough time for it, the loss is
    infinite.
    """
    is_long_enough = np.asarray(labels.counts <= lengths)
    if not is_long_enough.all() and not ignore:
        index = int(np.argmin(is_long_enough))
        raise errors.InvalidArgumentError(
            f"{op} requires a sequence_length of {labels.counts[index]} or more for the labels of "
            f"sequence {index}, got {lengths[index]}"
        )
    return is_long_enough


# ----------------------------------------------------------------------------------- loss


class _Lattice:
    """The states of a batch (blank, label, ..., blank), with transitions and emissions.

    Attributes:
      symbols: the class that a state emits, shape (B, S).
      stay: 0 for states that may be repeated, else -inf; None if all may be repeated.
      skip: 0 for states that can be entered from two states earlier, else -inf.
      last: True for states in which a sequence may end.
    """

    def __init__(self, labels: _Labels, blank: int, merge: bool) -> None:
        batch, width = labels.values.shape
        self.symbols = np.full((batch, 2 * width + 1), blank, np.intp)
        self.symbols[:, 1::2] = np.where(labels.values < 0, blank, labels.values)
        state = np.arange(2 * width + 1)
        label = np.broadcast_to(state % 2 == 1, self.symbols.shape)
        skip = label.copy()
        skip[:, :2] = False
        if merge:
            # Equal labels need a blank between them, or they collapse to one (Graves et al., 2006).
            skip[:, 2:] &= self.symbols[:, 2:] != self.symbols[:, :-2]
        self.stay = None if merge else np.where(label, -np.inf, 0.0)
        self.skip = np.where(skip, 0.0, -np.inf)
        end = 2 * labels.counts[:, None]
        self.last = (state == end) | ((state == end - 1) & (end > 0))

    def forward(self, emitted: Array) -> Array:
        """Return the log-probability of all paths to each state at each time, (T, B, S)."""
        times, batch, states = emitted.shape
        alpha = np.full((times, batch, states + 2), -np.inf)  # two states that no path comes from
        if times:
            alpha[0, :, 2:4] = emitted[0, :, :2]
        paths = np.empty((batch, states))
        for t in range(1, times):
            previous = alpha[t - 1]
            np.add(previous[:, :-2], self.skip, out=paths)
            np.logaddexp(paths, previous[:, 1:-1], out=paths)
            np.logaddexp(paths, self._stay_paths(previous[:, 2:]), out=paths)
            np.add(paths, emitted[t], out=alpha[t, :, 2:])
        return alpha[:, :, 2:]

    def backward(self, emitted: Array, lengths: Array) -> Array:
        """Return the log-probability of all paths from a state to the end, less its emission."""
        beta = np.empty(emitted.shape)
        end = np.where(self.last, 0.0, -np.inf)
        is_last = lengths == np.arange(1, len(emitted) + 1)[:, None]
        following = np.full((len(lengths), emitted.shape[2] + 2), -np.inf)
        skip = np.full(self.skip.shape, -np.inf)
        skip[:, :-2] = self.skip[:, 2:]
        for t in range(len(emitted) - 1, -1, -1):
            paths = beta[t]
            np.add(following[:, 2:], skip, out=paths)
            np.logaddexp(paths, following[:, 1:-1], out=paths)
            np.logaddexp(paths, self._stay_paths(following[:, :-2]), out=paths)
            np.copyto(paths, end, where=is_last[t][:, None])
            np.add(paths, emitted[t], out=following[:, :-2])
        return beta

    def _stay_paths(self, adjacent: Array) -> Array:
        """Return the log-probabilities of staying in a state, from an adjacent time step."""
        return adjacent if self.stay is None else np.add(adjacent, self.stay)


def _gradient(
    lattice: _Lattice, passed: Array, log_y: Array, is_within: Array, blank: int
) -> Array:
    """Return the gradient of the logits: the probability of classes minus emitting states."""
    grad = np.exp(log_y)
    times, batch, classes = grad.shape
    flat = grad.reshape(times * batch, classes)
    flat[:, blank] -= passed[:, :, ::2].sum(-1).reshape(-1)
    rows = np.arange(0, times * batch * classes, classes).reshape(times, batch, 1)
    positions = rows + lattice.symbols[:, 1::2]
    np.subtract.at(grad.reshape(-1), positions.reshape(-1), passed[:, :, 1::2].reshape(-1))
    grad *= is_within[:, :, None]
    return grad


@kernel("CTCLoss", "CTCLossV2", heavy=True)
def _loss(node: Node, device: Device) -> KernelFunction:
    op, exact = node.type, node.outputs[0].dtype.numpy
    merge = node.attrs["ctc_merge_repeated"]
    ignore = node.attrs["ignore_longer_outputs_than_inputs"]

    def run(x: Any, indices: Any, values: Any, lengths: Any) -> tuple[Any, Any]:
        _check_inputs(op, x, lengths)
        shape, x = x.shape, _trim_to_longest(x, lengths)
        times, batch, classes = x.shape
        blank = classes - 1 if op == "CTCLoss" else 0
        labels = _labels(op, indices, values, batch, node, classes)
        is_counted = _enough_time(op, labels, lengths, ignore) & (lengths > 0)
        if not batch or not times:
            return np.zeros(batch, exact), np.zeros(shape, exact)
        log_y = _log_softmax(x)
        lattice = _Lattice(labels, blank, merge)
        emitted = np.take_along_axis(log_y, lattice.symbols[None], 2)
        passed = lattice.forward(emitted)
        ends = np.take_along_axis(passed, np.maximum(lengths - 1, 0)[None, :, None], 0)[0]
        log_likelihood = (
            _log_sum(*np.where(lattice.last, ends, -np.inf).T) if ends.shape[1] else ends[:, 0]
        )
        passed += lattice.backward(emitted, lengths)
        passed -= np.where(np.isneginf(log_likelihood), 0.0, log_likelihood)[:, None]
        np.exp(passed, out=passed)
        is_within = (np.arange(times)[:, None] < lengths) & is_counted
        grad = np.zeros(shape, exact)
        grad[:times] = _gradient(lattice, passed, log_y, is_within, blank)
        loss = np.where(is_counted, -log_likelihood, 0.0)
        return loss.astype(exact), grad

    return run


# ------------------------------------------------------------------------------- decoders


def _sparse(table: Array, array: Array) -> tuple[Array, Array, Array]:
    """Return a masked table as a sparse matrix, with the entries of each row moved to the left."""
    rows, columns = np.nonzero(array)
    counts = array.sum(1)
    places = (np.cumsum(array, 1) - 1)[rows, columns]
    indices = np.stack([rows, places], 1).astype(np.int64)
    shape = np.array([len(table), counts.max(initial=0)], np.int64)
    return indices, table[rows, columns].astype(np.int64), shape


@kernel("CTCGreedyDecoder")
def _greedy(node: Node, device: Device) -> KernelFunction:
    op, merge, blank = node.type, node.attrs["merge_repeated"], node.attrs["blank_index"]

    def run(x: Any, lengths: Any) -> tuple[Any, ...]:
        _check_inputs(op, x, lengths)
        x = _trim_to_longest(x, lengths)
        times, _, classes = x.shape
        index = blank + classes if blank < 0 else blank
        if not 0 <= index < classes:
            raise errors.InvalidArgumentError(
                f"{op} requires blank_index from {-classes} to {classes - 1}, got {blank}"
            )
        best = x.argmax(2).T
        is_within = np.arange(times) < lengths[:, None]
        mask = is_within & (best != index)
        if merge:
            mask[:, 1:] &= best[:, 1:] != best[:, :-1]
        top = np.where(is_within, x.max(2).T, 0).sum(1, dtype=np.float64)
        return (*_sparse(best, mask), -top[:, None].astype(x.dtype))

    return run


class _Beams:
    """The prefixes that a beam search keeps for each sequence, best first.

    Attributes:
      blank, label: log-probabilities of all paths to a prefix that end in a blank, or in its last
        label, shape (B, K); -inf for unused beams.
      last: the last label; -1 for the empty prefix.
      own, parent: the hashes of the prefix, and of the prefix without its last label.
      origins, appended: for each time, the previous beam and the appended label, or -1.
    """

    def __init__(self, batch: int, width: int) -> None:
        self.blank = np.full((batch, width), -np.inf)
        self.blank[:, :1] = 0.0
        self.label = np.full((batch, width), -np.inf)
        self.last = np.full((batch, width), -1, np.intp)
        self.prefix_hash = np.zeros((batch, width), np.uint64)
        self.parent = np.full((batch, width), ~np.uint64(0), np.uint64)
        self.origins: list[Array] = []
        self.appended: list[Array] = []

    def step(self, log_y: Array, running: Array) -> None:
        """Process one time step of the running sequences.

        The blank's log-probability is the last.
        """
        batch, width = self.blank.shape
        total = _log_sum(self.blank, self.label)
        labels = _best_labels(log_y[:, :-1], 2 * width + 1)
        scores = np.take_along_axis(log_y, labels, 1)
        is_possible = total > -np.inf
        child = (self.parent[:, None, :] == self.prefix_hash[:, :, None]) & is_possible[:, :, None]
        child &= is_possible[:, None, :] & (self.last >= 0)[:, None, :]
        blank, label = self._extend_unchanged(log_y, total, child)
        grown = self._grow(labels, scores, total, child)
        candidates = np.concatenate([_log_sum(blank, label), grown.reshape(batch, -1)], 1)
        order = _largest_positions(candidates, width)
        is_surviving = order < width
        slot = np.where(is_surviving, order, (order - width) // max(labels.shape[1], 1))
        choice = np.where(is_surviving, 0, (order - width) % max(labels.shape[1], 1))
        added = np.take_along_axis(labels, choice, 1) if labels.size else np.full_like(order, -1)
        added = np.where(is_surviving, -1, added)
        best = np.take_along_axis(candidates, order, 1)
        text = np.take_along_axis(self.prefix_hash, slot, 1)
        updates = {
            "blank": np.where(is_surviving, np.take_along_axis(blank, slot, 1), -np.inf),
            "label": np.where(is_surviving, np.take_along_axis(label, slot, 1), best),
            "last": np.where(is_surviving, np.take_along_axis(self.last, slot, 1), added),
            "prefix_hash": np.where(is_surviving, text, _mix_hash(text, added)),
            "parent": np.where(is_surviving, np.take_along_axis(self.parent, slot, 1), text),
        }
        for key, value in updates.items():
            setattr(self, key, np.where(running[:, None], value, getattr(self, key)))
        self.origins.append(np.where(running[:, None], slot, np.arange(width)))
        self.appended.append(np.where(running[:, None], added, -1))

    def _extend_unchanged(self, log_y: Array, total: Array, child: Array) -> tuple[Array, Array]:
        """Return log-probabilities of unchanged prefixes: after a blank, or a repeated label."""
        repeated = self.last[:, :, None] == self.last[:, None, :]
        previous = np.where(repeated, self.blank[:, :, None], total[:, :, None])
        previous = np.where(child, previous, -np.inf).max(1)  # a prefix has one parent
        score = np.take_along_axis(log_y, np.maximum(self.last, 0), 1)
        label = np.where(self.last < 0, -np.inf, _log_sum(self.label, previous) + score)
        return total + log_y[:, -1:], label

    def _grow(self, labels: Array, scores: Array, total: Array, child: Array) -> Array:
        """Return the prefixes extended by each label, except those that are already in the beam."""
        is_repeat = labels[:, None, :] == self.last[:, :, None]
        stem = np.where(is_repeat, self.blank[:, :, None], total[:, :, None])
        grown = stem + scores[:, None, :]
        row, origin, label_index = np.nonzero(child)
        hit = labels[row] == self.last[row, label_index][:, None]
        result, column = np.nonzero(hit)
        grown[row[result], origin[result], column] = -np.inf
        return grown

    def paths(self, count: int) -> tuple[Array, Array, Array]:
        """Return the best prefixes, (B, count, T), a mask of labels, and log-probabilities."""
        total = _log_sum(self.blank, self.label)
        order = np.argsort(-total, 1, kind="stable")[:, :count]
        score = np.take_along_axis(total, order, 1)
        result = np.full((*order.shape, len(self.origins)), -1, np.intp)
        for t in range(len(self.origins) - 1, -1, -1):
            result[:, :, t] = np.take_along_axis(self.appended[t], order, 1)
            order = np.take_along_axis(self.origins[t], order, 1)
        return result, result >= 0, score


def _mix_hash(array: Array, label: Array) -> Array:
    """Return the hash of an extended prefix; 64 bits make collisions unlikely."""
    x = array * np.uint64(0x9E3779B97F4A7C15) + (label + 1).astype(np.uint64)
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)))


def _best_labels(log_y: Array, count: int) -> Array:
    """Return the most probable labels: enough to extend a prefix by labels unlike its last."""
    if log_y.shape[1] <= count:
        return np.broadcast_to(np.arange(log_y.shape[1]), log_y.shape)
    return np.sort(np.argpartition(-log_y, count - 1, 1)[:, :count], 1)


def _largest_positions(x: Array, count: int) -> Array:
    """Return the positions of the largest entries of each row, largest first."""
    if x.shape[1] > count:
        positions = np.argpartition(-x, count - 1, 1)[:, :count]
    else:
        positions = np.broadcast_to(np.arange(x.shape[1]), x.shape)
    order = np.argsort(-np.take_along_axis(x, positions, 1), 1, kind="stable")
    return np.take_along_axis(positions, order, 1)


@kernel("CTCBeamSearchDecoder", heavy=True)
def _beam_search(node: Node, device: Device) -> KernelFunction:
    op, attrs = node.type, node.attrs
    width, paths, merge = attrs["beam_width"], attrs["top_paths"], attrs["merge_repeated"]

    def run(x: Any, lengths: Any) -> tuple[Any, ...]:
        _check_inputs(op, x, lengths)
        x = _trim_to_longest(x, lengths)
        times, batch, _ = x.shape
        beams = _Beams(batch, width)
        log_y = _log_softmax(x)
        for t in range(times):
            beams.step(log_y[t], t < lengths)
        result, is_label, score = beams.paths(paths)
        if np.isneginf(score).any():
            raise errors.InvalidArgumentError(
                f"{op} requires top_paths of at most the number of possible sequences, got {paths}"
            )
        if merge and times:
            is_label = is_label & ~_repeated_labels(result, is_label)
        parts = [_sparse(result[:, p], is_label[:, p]) for p in range(paths)]
        lists = [part[i] for i in range(3) for part in parts]
        return (*lists, score.astype(x.dtype))

    return run


def _repeated_labels(array: Array, is_label: Array) -> Array:
    """Return a mask of labels that equal the previous label of their path."""
    times = np.where(is_label, np.arange(array.shape[2]), -1)
    last_label = np.maximum.accumulate(times, 2)[:, :, :-1]
    earlier = np.take_along_axis(array, np.maximum(last_label, 0), 2)
    result = np.zeros(array.shape, np.bool_)
    result[:, :, 1:] = (last_label >= 0) & (earlier == array[:, :, 1:])
    return result & is_label

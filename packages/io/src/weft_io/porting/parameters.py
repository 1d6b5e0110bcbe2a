"""Comparison of parameters with another implementation: missing, extra or transposed ones."""

from __future__ import annotations

__all__ = ["Status", "compare_parameters"]

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from itertools import permutations
from typing import Any, Final, NamedTuple

import numpy as np

from weft_io.porting.parameter_files import Array, Parameter, Parameters, read_parameters
from weft_io.porting.tables import format_table
from weft_tensor import errors

_SYNONYMS: Final = {
    "b": "bias",
    "beta": "bias",
    "biases": "bias",
    "embeddings": "weight",
    "embedding": "weight",
    "gamma": "weight",
    "kernel": "weight",
    "kernels": "weight",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
    "offset": "bias",
    "scale": "weight",
    "w": "weight",
    "weights": "weight",
}
"""Last parts of names that mean the same in different systems."""

_MAX_RANK: Final = 5
"""Highest rank of a tensor whose axes are permuted to compare it: 120 permutations."""


class Status(Enum):
    """The result of a comparison of two parameters.

    Args:
      value: the words for it.

    Examples:
      >>> wf.porting.Status.MISSING.value
      'missing'
    """

    EQUAL = "equal"
    """Equal shapes, and equal values where both sides have values."""
    TRANSPOSED = "transposed"
    """The axes are in another order."""
    VALUES = "values differ"
    """Equal shapes, but other values."""
    SHAPE = "shape differs"
    """The same name, but the shapes are not permutations of each other."""
    MISSING = "missing"
    """The other implementation has it, this one does not."""
    EXTRA = "extra"
    """Only this implementation has it."""


_MATCHING_STATUSES: Final = (Status.EQUAL, Status.TRANSPOSED)


class ParameterMatch(NamedTuple):
    """A row of a comparison.

    Attributes:
      status: the result.
      ours, theirs: the parameters; None if the side has none.
      axes: with `Status.TRANSPOSED`, `np.transpose(theirs, axes)` has the axes of ours.
      error: the largest absolute difference after the transposition; None without values.
    """

    status: Status
    ours: Parameter | None
    theirs: Parameter | None
    axes: tuple[int, ...] = ()
    error: float | None = None


class ParameterComparison(NamedTuple):
    """The comparison of all parameters of two implementations.

    Attributes:
      matches: one row for each parameter of either side, in the order of ours.
    """

    matches: Sequence[ParameterMatch]

    @property
    def agrees(self) -> bool:
        """Return True if all parameters are equal, up to transpositions."""
        return all(match.status in _MATCHING_STATUSES for match in self.matches)

    def of(self, status: Status) -> list[ParameterMatch]:
        """Return the rows with a status."""
        return [match for match in self.matches if match.status is status]

    def counts(self, depth: int = 1) -> dict[str, tuple[int, int]]:
        """Return the number of elements by scope: of ours, and of the parameters matched to them.

        Args:
          depth: number of parts of a scope's name. Parameters that only they have are counted under
            their own scopes.
        """
        result: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        for match in self.matches:
            named = match.ours or match.theirs
            assert named is not None
            scope = "/".join(_parts(named.name)[:-1][:depth])
            for side, parameter in enumerate((match.ours, match.theirs)):
                result[scope][side] += parameter.num_elements if parameter is not None else 0
        return {scope: (ours, theirs) for scope, (ours, theirs) in result.items()}

    def __str__(self) -> str:
        counts = [
            (scope or "(no scope)", f"{ours:,}", f"{theirs:,}", "" if ours == theirs else "differs")
            for scope, (ours, theirs) in self.counts().items()
        ]
        rows = [
            (_name(match.ours), _name(match.theirs), _verdict(match))
            for match in self.matches
            if match.status is not Status.EQUAL
        ]
        parts = [format_table(("scope", "ours", "theirs", ""), counts)]
        if rows:
            parts.append(format_table(("ours", "theirs", "result"), rows))
        else:
            parts.append(f"all {len(self.matches)} parameters are equal")
        return "\n\n".join(parts)


def compare_parameters(
    ours: Any,
    theirs: Any,
    names: Mapping[str, str] | None = None,
    session: Any = None,
    rtol: float = 1e-5,
) -> ParameterComparison:
    """Compare the parameters of two implementations of a model.

    Parameters are matched in this order: by `names`; by equal names; by names that are equal up to
    separators, case and synonyms ("dense/kernel" and "dense.weight"); by equal values; and last by
    shape, where each side has the same number of unmatched parameters with this shape, in order.

    Args:
      ours, theirs: a graph, a mapping of arrays, or the path of a checkpoint, ONNX model, GraphDef,
        safetensors or npz file.
      names: their names by our names, where they are known.
      session: with a graph, the session that has the values of its variables. Without values on
        both sides, only shapes are compared.
      rtol: maximum difference of equal values, relative to the largest absolute value.
    Raises:
      NotFoundError: a file does not exist, or `names` has a name that a side lacks.
      InvalidArgumentError, DataLossError: a file cannot be read.

    Examples:
      >>> ours = {"dense/kernel": np.ones([2, 3]), "dense/bias": np.zeros(3)}
      >>> theirs = {"dense.weight": np.ones([3, 2]), "head.bias": np.zeros(5)}
      >>> for match in wf.porting.compare_parameters(ours, theirs).matches:
      ...     print(match.status.value)
      transposed
      extra
      missing
    """
    our_parameters, their_parameters = read_parameters(ours, session), read_parameters(theirs)
    pairs = _match(our_parameters, their_parameters, names or {}, rtol)
    matched = set(pairs.values())
    rows = [
        _compare(parameter, their_parameters[pairs[name]], rtol)
        if name in pairs
        else ParameterMatch(Status.EXTRA, parameter, None)
        for name, parameter in our_parameters.items()
    ]
    rows += [
        ParameterMatch(Status.MISSING, None, parameter)
        for name, parameter in their_parameters.items()
        if name not in matched
    ]
    return ParameterComparison(rows)


def _match(
    ours: Parameters, theirs: Parameters, names: Mapping[str, str], rtol: float
) -> dict[str, str]:
    """Return names of theirs by names of ours."""
    _check_names(ours, theirs, names)
    pairs = dict(names)
    for key in (str, _normalize_name):
        index: dict[Any, list[str]] = defaultdict(list)
        for name in _find_unmatched(theirs, pairs.values()):
            index[key(name)].append(name)
        for name in _find_unmatched(ours, pairs):
            candidates = index.get(key(name), [])
            if len(candidates) == 1 and _axes(ours[name], theirs[candidates[0]]):
                pairs[name] = candidates.pop()
    pairs.update(_match_values(ours, theirs, pairs, rtol))
    shapes: dict[tuple[int, ...], tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    for side, parameters, matched in ((0, ours, [*pairs]), (1, theirs, [*pairs.values()])):
        for name in _find_unmatched(parameters, matched):
            shapes[tuple(sorted(parameters[name].shape))][side].append(name)
    for our_names, their_names in shapes.values():
        if len(our_names) == len(their_names):
            pairs.update(zip(our_names, their_names, strict=True))
    return pairs


def _match_values(
    ours: Parameters, theirs: Parameters, pairs: Mapping[str, str], rtol: float
) -> dict[str, str]:
    """Return further pairs of parameters whose values are equal in some order of axes.

    Only parameters with similar sums are compared: a sum does not depend on the order of axes.
    """
    sums = {
        name: _sums(parameter)
        for name in _find_unmatched(theirs, pairs.values())
        if (parameter := theirs[name]).read is not None
    }
    result: dict[str, str] = {}
    for name in _find_unmatched(ours, pairs):
        if ours[name].read is None:
            continue
        our_sums = _sums(ours[name])
        for their_name, values in sums.items():
            if not np.allclose(our_sums, values, rtol=10 * rtol, atol=0.0):
                continue
            if _compare(ours[name], theirs[their_name], rtol).status in _MATCHING_STATUSES:
                result[name] = their_name
                del sums[their_name]
                break
    return result


def _sums(parameter: Parameter) -> tuple[float, float, float]:
    """Return the number of elements, and the sums of their magnitudes and squares."""
    assert parameter.read is not None
    value = np.abs(_as_floats(parameter.read()))
    return float(value.size), float(value.sum()), float((value * value).sum())


def _check_names(ours: Parameters, theirs: Parameters, names: Mapping[str, str]) -> None:
    for owner, parameters, used in (("our", ours, names), ("their", theirs, names.values())):
        lost = sorted(set(used) - set(parameters))
        if lost:
            raise errors.NotFoundError(
                f"names has {', '.join(lost[:5])}, which {owner} {len(parameters)} parameters lack"
            )


def _find_unmatched(parameters: Parameters, matched: Any) -> list[str]:
    matched_names = set(matched)
    return [name for name in parameters if name not in matched_names]


def _parts(name: str) -> list[str]:
    return name.replace(".", "/").split("/")


def _normalize_name(name: str) -> tuple[str, ...]:
    *scopes, last = [part.lower() for part in _parts(name.removesuffix(":0"))]
    return (*scopes, _SYNONYMS.get(last, last))


def _axes(ours: Parameter, theirs: Parameter) -> list[tuple[int, ...]]:
    """Return the permutations of axes that transform their shape to ours, identity first."""
    rank = len(ours.shape)
    if sorted(ours.shape) != sorted(theirs.shape):
        return []
    identity = tuple(range(rank))
    orders: Iterable[tuple[int, ...]] = [identity]
    if rank <= _MAX_RANK:
        orders = permutations(identity)  # the identity comes first
    return [axes for axes in orders if tuple(theirs.shape[i] for i in axes) == ours.shape]


def _compare(ours: Parameter, theirs: Parameter, rtol: float) -> ParameterMatch:
    orders = _axes(ours, theirs)
    if not orders:
        return ParameterMatch(Status.SHAPE, ours, theirs)
    identity = tuple(range(len(ours.shape)))
    if ours.read is None or theirs.read is None:
        if identity in orders:
            return ParameterMatch(Status.EQUAL, ours, theirs)
        return ParameterMatch(Status.TRANSPOSED, ours, theirs, orders[0])
    our_values, their_values = _as_floats(ours.read()), _as_floats(theirs.read())
    tolerance = rtol * float(np.max(np.abs(our_values), initial=0.0))
    distances = {axes: _distance(our_values, their_values.transpose(axes)) for axes in orders}
    axes = min(distances, key=lambda axes: (not distances[axes] <= tolerance, axes))
    if distances[axes] <= tolerance:
        if axes == identity:
            return ParameterMatch(Status.EQUAL, ours, theirs, (), distances[axes])
        return ParameterMatch(Status.TRANSPOSED, ours, theirs, axes, distances[axes])
    best = identity if identity in distances else min(distances, key=lambda axes: distances[axes])
    axes = () if best == identity else best
    return ParameterMatch(Status.VALUES, ours, theirs, axes, distances[best])


def _as_floats(value: Array) -> Array:
    value = np.asarray(value)
    return value if value.dtype.kind == "c" else value.astype(np.float64)


def _distance(a: Array, b: Array) -> float:
    if np.array_equal(a, b, equal_nan=True):
        return 0.0
    return float(np.max(np.abs(a - b), initial=0.0))


def _name(parameter: Parameter | None) -> str:
    return "–" if parameter is None else f"{parameter.name} {list(parameter.shape)}"


def _verdict(match: ParameterMatch) -> str:
    words = match.status.value
    if match.axes:
        words += f": transpose theirs by {list(match.axes)}"
    if match.status is Status.VALUES:
        words += f" by up to {match.error:.3g}"
    return words

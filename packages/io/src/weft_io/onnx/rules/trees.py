"""Ensembles of trees, evaluated for all rows and trees at once, one level at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from weft_graph.functions.body import FunctionGraph
from weft_graph.functions.call import add_call
from weft_graph.functions.substitutes import mark
from weft_graph.functions.trace import trace
from weft_graph.ir.builder import constant
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.node import Output
from weft_graph.ops.broadcasting import broadcast_to
from weft_graph.ops.comparison import (
    equal,
    greater,
    greater_equal,
    less,
    less_equal,
    logical_and,
    logical_or,
    not_equal,
)
from weft_graph.ops.gather import gather
from weft_graph.ops.join import stack
from weft_graph.ops.masks import where_v2
from weft_graph.ops.reduction import (
    argmax,
    reduce_any,
    reduce_max,
    reduce_mean,
    reduce_min,
    reduce_sum,
)
from weft_graph.ops.shapes import expand_dims, shape
from weft_graph.ops.trees import TESTS, WALK
from weft_io.onnx.operation import Operation, cast, like
from weft_io.onnx.registry import importer
from weft_io.onnx.rules.scores import select_labels, transform_scores
from weft_tensor import dtypes, errors

_MODES: Final = (*TESTS, "MEMBER")
_COMPARISONS: Final = (less_equal, less, greater_equal, greater, equal, not_equal)
_OF_KERNELS: Final = (dtypes.float32, dtypes.float64)
_LEAF: Final = -1
_DEEPEST: Final = 1000
"""Maximum depth of a tree, because each level adds about ten nodes."""

Array = np.ndarray[Any, Any]


@dataclass
class Trees:
    """Trees as columns: a row is an inner node or a leaf; the successor of a leaf is itself.

    Attributes:
      feature: the tested feature.
      split: the threshold.
      mode: index in LEQ, LT, GTE, GT, EQ, NEQ, MEMBER; -1 for leaves.
      if_true, if_false: the successor rows.
      missing: True if a NaN passes the test.
      members: for MEMBER, the values that pass, padded with NaN.
      roots: the row of each tree's root.
      weights: weights of leaves, (rows, targets); NaN if a leaf has no weight for a target.
    """

    feature: Array
    split: Array
    mode: Array
    if_true: Array
    if_false: Array
    missing: Array
    members: Array
    roots: Array
    weights: Array

    def depth(self) -> int:
        """Return the maximum number of tests between a root and a leaf.

        Raises: InvalidArgumentError: there is a cycle. ResourceExhaustedError: the trees are too
          deep.
        """
        rows, steps = np.unique(self.roots), 0
        while np.any(self.mode[rows] != _LEAF):
            inner = rows[self.mode[rows] != _LEAF]
            rows = np.unique(np.concatenate([self.if_true[inner], self.if_false[inner]]))
            steps += 1
            if steps > len(self.mode):
                raise errors.InvalidArgumentError("a tree has a cycle")
            if steps > _DEEPEST:
                raise errors.ResourceExhaustedError(f"a tree is more than {_DEEPEST} tests deep")
        return steps

    def leaves(self, x: Output) -> Output:
        """Return the leaf that each sample reaches in each tree, (samples, trees).

        If all tests have the same mode, this is a function call that a kernel may replace.
        """
        missing = self.missing & (self.mode != _LEAF)
        vectors = self.feature, self.split, self.if_true, self.if_false, missing, self.roots
        values = [x, *map(constant, vectors)]
        kinds = set(self.mode.tolist()) - {_LEAF}
        test = kinds.pop() if len(kinds) == 1 else len(TESTS)
        dtype = x.dtype.base_dtype
        if test >= len(TESTS) or dtype not in _OF_KERNELS or dtype is not values[2].dtype:
            return self._down(*values)

        def arguments(graph: FunctionGraph) -> tuple[list[Output], dict[str, Any]]:
            return [graph.add_input_like(value, value.node.type) for value in values], {}

        attrs = mark(WALK, T=dtype, test=TESTS[test], depth=self.depth())
        graph = get_default_graph()
        with graph.functions.reserve_name("Trees") as name:
            function, _ = trace(self._down, arguments, name, graph, ordered=False, attrs=attrs)
            graph.functions.add(function)
        return add_call(function, values)[1][0]

    def _down(
        self,
        x: Output,
        feature: Output,
        split: Output,
        if_true: Output,
        if_false: Output,
        missing: Output,
        roots: Output,
    ) -> Output:
        """Return the leaves, by one step per level."""
        rows = broadcast_to(roots, stack([shape(x)[0], len(self.roots)]))
        used = sorted(set(self.mode.tolist()) - {_LEAF})
        for _ in range(self.depth()):
            value = gather(x, gather(feature, rows), batch_dims=1, axis=1)
            passed: Any = None
            for item in used:
                if item == len(TESTS):
                    members = gather(constant(self.members), rows)
                    test = reduce_any(equal(members, expand_dims(value, -1)), -1)
                else:
                    test = _COMPARISONS[item](value, gather(split, rows))
                mode = None if passed is None else gather(constant(self.mode), rows)
                passed = test if mode is None else where_v2(equal(mode, item), test, passed)
            if self.missing.any():
                lost = logical_and(not_equal(value, value), gather(missing, rows))
                passed = logical_or(passed, lost)
            rows = where_v2(passed, gather(if_true, rows), gather(if_false, rows))
        return rows

    def scores(self, x: Output, aggregate: str) -> Output:
        """Aggregate the leaf weights of all trees, (samples, targets)."""
        rule = {"SUM": reduce_sum, "AVERAGE": reduce_mean, "MIN": reduce_min, "MAX": reduce_max}
        if aggregate not in rule:
            raise errors.InvalidArgumentError(
                f"aggregate_function must be one of {list(rule)}, got {aggregate!r}"
            )
        has_weight = ~np.isnan(self.weights)
        identity = {"MIN": np.inf, "MAX": -np.inf}.get(aggregate, 0)
        weights = np.where(has_weight, self.weights, self.weights.dtype.type(identity))
        leaves = self.leaves(x)
        result = rule[aggregate](gather(constant(weights), leaves), 1)
        if not identity or has_weight[self.mode == _LEAF].all():
            return result
        return where_v2(
            reduce_any(gather(constant(has_weight), leaves), 1), result, like(0, result)
        )


def _members(values: Sequence[float], mode: Array, dtype: Any) -> Array:
    """Return the members of each node, one row per node; NaN separates them in the file."""
    lists: list[list[float]] = [[]]
    for value in values:
        if np.isnan(value):
            lists.append([])
        else:
            lists[-1].append(value)
    width = max((len(item) for item in lists), default=0)
    result = np.full((len(mode), max(width, 1)), np.nan, dtype)
    for row, item in zip(np.flatnonzero(mode == _MODES.index("MEMBER")), lists, strict=False):
        result[row, : len(item)] = item
    return result


@importer("TreeEnsemble", domain="ai.onnx.ml")
def _tree_ensemble(operation: Operation) -> Output:
    read = operation.required
    modes, splits = np.asarray(read("nodes_modes")), np.asarray(read("nodes_splits"))
    weights = np.asarray(read("leaf_weights"))
    count, leaves = len(modes), len(weights)
    mode = np.concatenate([modes.astype(np.int64), np.full(leaves, _LEAF)])
    ids = np.arange(count + leaves)

    def per_node(nodes: str, leafs: str) -> Array:
        successors = np.asarray(read(nodes)) + count * np.asarray(read(leafs))
        return np.concatenate([successors, ids[count:]])

    table = np.full((count + leaves, read("n_targets")), np.nan, weights.dtype)
    table[ids[count:], np.asarray(read("leaf_targetids"))] = weights
    missing = operation.attribute("nodes_missing_value_tracks_true") or [0] * count
    members = operation.attribute("membership_values")
    trees = Trees(
        _pad(read("nodes_featureids"), leaves, np.int64),
        _pad(splits, leaves, splits.dtype),
        mode,
        per_node("nodes_truenodeids", "nodes_trueleafs"),
        per_node("nodes_falsenodeids", "nodes_falseleafs"),
        _pad(missing, leaves, bool),
        _members([] if members is None else members, mode, splits.dtype),
        np.asarray(read("tree_roots"), np.int64),
        table,
    )
    _check(trees)
    aggregate = ("AVERAGE", "SUM", "MIN", "MAX")[operation.attribute("aggregate_function", 1)]
    scores = trees.scores(operation[0], aggregate)
    kinds = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
    return transform_scores(scores, kinds[operation.attribute("post_transform", 0)])


def _pad(values: Any, num_zeros: int, dtype: Any) -> Array:
    return np.concatenate([np.asarray(values, dtype), np.zeros(num_zeros, dtype)])


def _check(trees: Trees) -> None:
    """Raise InvalidArgumentError if a successor is out of range."""
    count = len(trees.mode)
    for name in ("if_true", "if_false", "roots"):
        rows = getattr(trees, name)
        if np.any(rows < 0) or np.any(rows >= count):
            raise errors.InvalidArgumentError(
                f"a node of a tree refers to a node that does not exist ({name})"
            )
    sizes = {len(trees.feature), len(trees.split), count, len(trees.if_true), len(trees.missing)}
    if len(sizes) != 1 or np.any(trees.feature < 0):
        raise errors.InvalidArgumentError("the attributes of the trees differ in length")


def _former(operation: Operation, prefix: str, targets: int) -> Trees:
    """Return the trees of the ops that preceded TreeEnsemble."""
    read = operation.required
    ids = list(zip(read("nodes_treeids"), read("nodes_nodeids"), strict=True))
    row_of: Mapping[tuple[int, int], int] = {item: row for row, item in enumerate(ids)}
    names = [text.removeprefix("BRANCH_") for text in read("nodes_modes")]
    mode = np.array([_LEAF if item == "LEAF" else _MODES.index(item) for item in names])
    values = operation.attribute("nodes_values_as_tensor")
    split = np.asarray(read("nodes_values") if values is None else values)
    split = split if split.dtype == np.float64 and values is not None else split.astype(np.float32)

    def attribute_array(name: str) -> Array:
        result = [
            row if mode[row] == _LEAF else row_of.get((tree, successors), -1)
            for row, ((tree, _), successors) in enumerate(zip(ids, read(name), strict=True))
        ]
        return np.array(result, np.int64)

    table = np.full((len(ids), targets), np.nan, split.dtype)
    weights = operation.attribute(f"{prefix}_weights_as_tensor")
    weights = read(f"{prefix}_weights") if weights is None else weights
    columns = (f"{prefix}_treeids", f"{prefix}_nodeids", f"{prefix}_ids")
    for tree, node, target, weight in zip(*(read(name) for name in columns), weights, strict=True):
        if target < 0:
            raise errors.InvalidArgumentError(f"a leaf has the target {target}")
        row = row_of[tree, node]
        table[row, target] = weight if np.isnan(table[row, target]) else table[row, target] + weight
    _, first = np.unique([tree for tree, _ in ids], return_index=True)
    missing = operation.attribute("nodes_missing_value_tracks_true") or [0] * len(ids)
    trees = Trees(
        np.where(mode == _LEAF, 0, np.asarray(read("nodes_featureids"))),
        split,
        mode,
        attribute_array("nodes_truenodeids"),
        attribute_array("nodes_falsenodeids"),
        np.asarray(missing, bool),
        np.full((len(ids), 1), np.nan, split.dtype),
        np.sort(first).astype(np.int64),
        table,
    )
    _check(trees)
    return trees


def _base(operation: Operation, scores: Output) -> Output:
    base = operation.attribute("base_values_as_tensor")
    base = operation.attribute("base_values") if base is None else base
    return scores if base is None or not len(base) else scores + cast(constant(base), scores.dtype)


def _rows(operation: Operation, trees: Trees) -> Output:
    return cast(operation[0], dtypes.from_numpy(trees.split.dtype))


@importer("TreeEnsembleRegressor", domain="ai.onnx.ml")
def _regressor(operation: Operation) -> Output:
    trees = _former(operation, "target", operation.required("n_targets"))
    scores = trees.scores(_rows(operation, trees), operation.attribute("aggregate_function", "SUM"))
    result = transform_scores(
        _base(operation, scores), operation.attribute("post_transform", "NONE")
    )
    return cast(result, dtypes.float32)


@importer("TreeEnsembleClassifier", domain="ai.onnx.ml")
def _classifier(operation: Operation) -> list[Output]:
    targets = max(operation.required("class_ids")) + 1
    labels = operation.attribute("classlabels_strings") or operation.attribute("classlabels_int64s")
    trees = _former(operation, "class", max(targets, len(labels or ())))
    scores = trees.scores(_rows(operation, trees), "SUM")
    if len(set(operation.required("class_ids"))) == 1 and len(labels or ()) == 2:
        return _binary(operation, _base_of_one(operation, scores))
    result = transform_scores(
        _base(operation, scores), operation.attribute("post_transform", "NONE")
    )
    return [select_labels(operation, argmax(result, 1)), cast(result, dtypes.float32)]


def _base_of_one(operation: Operation, scores: Output) -> Output:
    column = scores[:, operation.required("class_ids")[0]]
    base = operation.attribute("base_values")
    return column + like(base[0], column) if base else column


def _binary(operation: Operation, score: Output) -> list[Output]:
    """Return the results for two classes if only the second one has weights."""
    kind = operation.attribute("post_transform", "NONE")
    if kind == "LOGISTIC":
        second = transform_scores(score, kind)
        class_scores = stack([1.0 - second, second], axis=1)
        return [
            select_labels(operation, argmax(class_scores, 1)),
            cast(class_scores, dtypes.float32),
        ]
    shares = kind in ("NONE", "PROBIT")
    class_scores = stack([1.0 - score if shares else -score, score], axis=1)
    chosen = cast(greater(score, like(0.5 if shares else 0.0, score)), dtypes.int64)
    result = class_scores if kind == "NONE" else transform_scores(class_scores, kind)
    return [select_labels(operation, chosen), cast(result, dtypes.float32)]

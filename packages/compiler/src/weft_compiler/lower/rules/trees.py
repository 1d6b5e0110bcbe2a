"""Inference of tree ensembles; each sample descends each tree separately."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from weft_compiler.ir.expressions import (
    INDEX,
    Expr,
    Variable,
    apply,
    cast,
    index,
    where,
)
from weft_compiler.ir.indices import clamp_index, minus, plus, times
from weft_compiler.ir.loops import Unique, load, nest
from weft_compiler.ir.program import (
    Assign,
    Body,
    Buffer,
    Let,
    Statement,
    Store,
    Var,
    While,
)
from weft_compiler.lower.registry import Operation, lowers, require
from weft_compiler.lower.values import StatementDefinition, Value
from weft_graph.ops.trees import TESTS, WALK
from weft_tensor import dtypes

_PRIMITIVES: Final = dict(
    zip(
        TESTS,
        ("less_equal", "less", "greater_equal", "greater", "equal", "not_equal"),
        strict=True,
    )
)
_ROWS: Final = 16
"""Samples that descend one tree before the next tree, while its nodes are in the L1 cache."""
_FEATURE, _FAILED, _PASSED, _MISSING = range(4)
"""The columns of the table of nodes."""
_DEEPEST: Final = 1000
"""Maximum number of levels of a tree to compile."""

Array = np.ndarray[Any, Any]


@lowers(WALK)
def _tree_leaves(op: Operation) -> Value:
    x, split = op.inputs[0], op.inputs[2]
    vectors = [input_.constant for input_ in op.inputs[1:]]
    require(all(vector is not None for vector in vectors), "the trees are not constants")
    feature, _, if_true, if_false, missing, roots = vectors
    require(
        all(item.shape == split.shape for item in (feature, if_true, if_false, missing))
        and split.rank == roots.ndim == 1,
        "the arrays of tree nodes do not match",
    )
    width = int(feature.max()) + 1 if feature.size else 0
    require(
        x.rank == 2 and width <= x.shape[1], "the samples have fewer features than the trees test"
    )
    table, starts = _table(feature, if_true, if_false, missing, roots, op.attr("depth"))
    nodes = Value(f"{op.name}_nodes", dtypes.int32, table.shape, constant=table)
    first = Value(f"{op.name}_roots", dtypes.int32, starts.shape, constant=starts)
    (samples, _), trees = x.shape, len(roots)
    compare, has_missing = _PRIMITIVES[op.attr("test")], bool(missing.any())

    def write(
        unique: Unique,
        leaves: Buffer,
        buffer: Buffer,
        nodes_of: Buffer,
        limits: Buffer,
        tree_of: Buffer,
    ) -> Sequence[Statement]:
        def walk(sample: Expr, tree: Expr) -> Body:
            position, node = (Variable(INDEX, unique(name)) for name in ("at", "node"))

            def column(kind: int) -> Expr:
                return cast(load(nodes_of, nodes.shape, (node, index(kind))), INDEX)

            value = Variable(x.dtype, unique("value"))
            passed: Expr = apply(compare, value, load(limits, split.shape, (node,)))
            if has_missing:
                lost = apply("not_equal", column(_MISSING), index(0))
                passed = apply("bit_or", passed, apply("bit_and", apply("is_nan", value), lost))
            known_value = clamp_index(column(_FEATURE), x.shape[1])
            down = (
                Let(node.name, clamp_index(position, len(table))),
                Let(value.name, load(buffer, x.shape, (sample, known_value))),
                Assign(position.name, where(passed, column(_PASSED), column(_FAILED))),
            )
            return (
                Var(position.name, cast(load(tree_of, first.shape, (tree,)), INDEX)),
                While(apply("greater_equal", position, index(0)), down),
                Store(leaves.name, (sample, tree), minus(-1, position)),
            )

        blocks, remaining = divmod(samples, _ROWS)
        return (
            *nest(
                unique, [blocks, trees, _ROWS], lambda b, t, r: walk(plus(times(b, _ROWS), r), t)
            ),
            *nest(unique, [trees, remaining], lambda t, r: walk(plus(r, blocks * _ROWS), t)),
        )

    definition = StatementDefinition([x, nodes, split, first], write)
    return Value(op.name, op.dtype(), (samples, trees), definition)


def _table(
    feature: Array, if_true: Array, if_false: Array, missing: Array, roots: Array, depth: int
) -> tuple[Array, Array]:
    """Return the nodes as a table, and the roots; in both, leaf n is encoded as -1 - n.

    Raises: Unsupported: a child does not exist, or a path is longer than `depth`.
    """
    count = len(feature)
    ways = np.stack([if_false, if_true], 1)
    require(0 < count < 2**31 and depth <= _DEEPEST, "the trees have too many nodes, or none")
    for item in (ways, roots):
        require(
            not item.size or (item.min() >= 0 and item.max() < count),
            "nodes refer to children that do not exist",
        )
    require(bool(feature.min() >= 0), "a feature index is negative")
    inner = (ways != np.arange(count)[:, None]).any(1)
    deep = np.zeros(count, np.int64)
    for _ in range(depth + 1):
        deep = np.where(inner, 1 + deep[ways].max(1), 0)
    require(bool((deep[roots] <= depth).all()), "paths are longer than the given depth")

    def encoded(rows: Array) -> Array:
        return np.where(inner[rows], rows, -1 - rows)

    table = np.stack([feature, *encoded(ways).T, missing], 1).astype(np.int32)
    return np.ascontiguousarray(table), encoded(roots).astype(np.int32)

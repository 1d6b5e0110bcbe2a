"""Traversal of an ensemble of trees as one op, which exists only in executables.

In a graph, it is a call of a function whose body descends one level at a time. If a kernel exists,
the op replaces the call (`weft_graph/passes/inline.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from weft_graph.ir.costs import Cost, Sizes
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.traits import Traits
from weft_graph.ops.cost_rules import dims_at
from weft_tensor.shape import Dims

WALK: Final = "_TreeLeaves"

TESTS: Final = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ")
"""Comparison ops of a value and the split of a node."""


def _leaves_shape(node: NodeSpec) -> Sequence[Dims]:
    rows, roots = node.inputs[0].dims, node.inputs[6].dims
    return ((None if rows is None else rows[0], None if roots is None else roots[0]),)


def _walk_cost(sizes: Sizes) -> Cost:
    """Return a rough estimate: a few lookups in each of about ten levels."""
    samples, trees = dims_at(sizes.outputs, 0, 2)
    return Cost(100.0 * samples * trees, float(sizes.all_bytes))


register_op(
    WALK,
    (
        "x: T",
        "feature: int64",
        "split: T",
        "if_true: int64",
        "if_false: int64",
        "missing: bool",
        "roots: int64",
    ),
    ("leaves: int64",),
    {
        "T": "{float32, float64}",
        "test": "{" + ", ".join(map(repr, TESTS)) + "}",
        "depth": "int >= 0",
    },
    _leaves_shape,
    traits=Traits(cost=_walk_cost, differentiable=False),
    doc="""
    The leaf that each sample of `x`, (samples, features), reaches in each tree: (samples, trees).
    `roots` has the root of each tree. The other vectors have an entry per node: the feature to
    compare with the split, the child nodes (a leaf is its own child), and True if a NaN passes the
    test. `depth` is the largest number of tests.
    """,
)

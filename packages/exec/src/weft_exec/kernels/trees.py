"""The kernel of tree ensembles: all samples and trees, one level at a time.

Each level takes five lookups and a test for all walks that have not reached a leaf. Trees that were
grown leaf by leaf are several times as deep as most of their leaves, so walks that have ended are
dropped every few levels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft_exec.kernels.common import new_array
from weft_exec.kernels.registry import KernelFunction, kernel
from weft_graph.ops.trees import TESTS, WALK
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

Array = np.ndarray[Any, Any]

_UFUNCS: Final = dict(
    zip(
        TESTS,
        (np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal),
        strict=True,
    )
)
_AT_ONCE: Final = 1 << 14
"""Maximum number of concurrent walks, so that their data fits the cache."""
_LEVELS: Final = 4
"""Number of levels after which ended walks are dropped."""


class _Nodes:
    """The nodes of all trees, checked and laid out for lookups.

    Args:
      vectors: `feature`, `split`, `if_true`, `if_false`, `missing` and `roots`, as in the op.

    Raises: InvalidArgumentError: sizes do not match, or an index is out of range.
    """

    def __init__(self, *vectors: Array) -> None:
        feature, split, if_true, if_false, missing, roots = vectors
        self.of = vectors
        count = len(feature) if feature.ndim == 1 else -1
        if any(vector.shape != (count,) for vector in vectors[:-1]) or roots.ndim != 1:
            shapes = ", ".join(str(list(vector.shape)) for vector in vectors)
            raise errors.InvalidArgumentError(
                f"trees require vectors of the same length, and roots, got the shapes {shapes}"
            )
        for item in (if_true, if_false, roots):
            if item.size and not 0 <= item.min() <= item.max() < count:
                raise errors.InvalidArgumentError(
                    f"a tree of {count} nodes refers to node {item.max()} or {item.min()}"
                )
        self.feature, self.split, self.roots = feature, split, roots
        self.missing = missing if missing.any() else None
        self.width = int(feature.max()) + 1 if count else 0
        if count and feature.min() < 0:
            raise errors.InvalidArgumentError(f"features must be at least 0, got {feature.min()}")
        # Both successors of a node side by side: for a failed and for a passed test.
        self.following = np.stack([if_false, if_true], 1).reshape(-1)
        indices = np.arange(count)
        self.is_inner = (if_true != indices) | (if_false != indices)


@kernel(WALK)
def _tree_leaves(node: Node, device: Device) -> KernelFunction:
    test, depth = _UFUNCS[node.attrs["test"]], node.attrs["depth"]
    last: _Nodes | None = None

    def run(x: Array, *vectors: Array) -> Array:
        nonlocal last
        nodes = last
        if nodes is None or any(a is not b for a, b in zip(vectors, nodes.of, strict=True)):
            nodes = _Nodes(*vectors)
            # Constants are the same arrays in each step.
            last = None if any(vector.flags.writeable for vector in vectors) else nodes
        if x.ndim != 2 or x.shape[1] < nodes.width:
            raise errors.InvalidArgumentError(
                f"trees require a matrix of at least {nodes.width} features, got {list(x.shape)}"
            )
        samples, trees = x.shape[0], len(nodes.roots)
        leaves = new_array(device, (samples, trees), np.dtype(np.int64))
        step = max(_AT_ONCE // max(trees, 1), 1)
        for start in range(0, samples if trees else 0, step):
            _walk(nodes, test, depth, x[start : start + step], leaves[start : start + step])
        return leaves

    return run


def _walk(nodes: _Nodes, test: Any, depth: int, x: Array, leaves: Array) -> None:
    """Store the leaf that each row of `x` reaches in each tree.

    Args:
      leaves: receives the leaves, shape (rows, trees), in C order.
    """
    rows, trees = leaves.shape
    flat = x.reshape(-1)
    row = np.repeat(np.arange(0, rows * x.shape[1], x.shape[1]), trees)
    index = np.tile(nodes.roots, rows)
    array: Array | None = None
    arrived = leaves.reshape(-1)
    for level in range(depth):
        value = flat.take(nodes.feature.take(index) + row)
        passed = test(value, nodes.split.take(index))
        if nodes.missing is not None:
            passed |= np.isnan(value) & nodes.missing.take(index)
        index = nodes.following.take(2 * index + passed)
        if level % _LEVELS == _LEVELS - 1:
            inner_rows = nodes.is_inner.take(index).nonzero()[0]
            if len(inner_rows) * 4 > len(index) * 3:
                continue
            _store_rows(arrived, array, index)
            array = inner_rows if array is None else array[inner_rows]
            index, row = index[inner_rows], row[inner_rows]
            if not len(index):
                return
    _store_rows(arrived, array, index)


def _store_rows(arrived: Array, array: Array | None, index: Array) -> None:
    if array is None:
        arrived[:] = index
    else:
        arrived[array] = index

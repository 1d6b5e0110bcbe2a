"""Pooling over regions of random sizes (Graham 2014), and its gradients."""

from __future__ import annotations

__all__ = ["fractional_avg_pool", "fractional_max_pool"]

from collections.abc import Sequence
from math import floor
from typing import Any, NamedTuple

from weft_graph.ir.builder import convert_to_tensor, create
from weft_graph.ir.node import Output
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.random_seed import get_seed
from weft_graph.ir.traits import Traits
from weft_graph.ops import cost_rules
from weft_graph.ops.shape_rules import vector_as_dims, with_rank
from weft_graph.ops.windows import require_rank
from weft_tensor import errors
from weft_tensor.shape import Dims, merge_dims

# ------------------------------------------------------------------------- shape rules


def pooled_size(size: int, ratio: float) -> int:
    """Return the number of regions along an axis.

    Raises: InvalidArgumentError: the number of regions is 0.
    """
    count = floor(size / ratio)
    if size and not count:
        raise errors.InvalidArgumentError(
            f"pooling_ratio must be at most the size of its axis, got {ratio} for {size}"
        )
    return count


def _rule(node: NodeSpec) -> Sequence[Dims]:
    ratio = node.attrs["pooling_ratio"]
    if len(ratio) != 4 or ratio[0] != 1 or ratio[3] != 1 or min(ratio) < 1:
        raise errors.InvalidArgumentError(
            "fractional pools require a pooling_ratio of 4 numbers of at least 1, 1 for the batch "
            f"and the channels, got {list(ratio)}"
        )
    x = require_rank("a fractional pool", "value", node.inputs[0].dims, 4)
    sizes = [None if n is None else pooled_size(n, r) for n, r in zip(x, ratio, strict=True)]
    ends = [None if n is None else n + 1 for n in sizes[1:3]]
    return tuple(sizes), (ends[0],), (ends[1],)


def _max_grad_rule(node: NodeSpec) -> Sequence[Dims]:
    x, y, grad, rows, columns = [value.dims for value in node.inputs]
    require_rank("FractionalMaxPoolGrad", "orig_output", merge_dims(y, grad), 4)
    for dims in (rows, columns):
        with_rank(dims, 1, "FractionalMaxPoolGrad: a pooling sequence")
    return (require_rank("FractionalMaxPoolGrad", "orig_input", x, 4),)


def _avg_grad_rule(node: NodeSpec) -> Sequence[Dims]:
    sizes = vector_as_dims(node.inputs[0], "orig_input_tensor_shape")
    require_rank("FractionalAvgPoolGrad", "out_backprop", node.inputs[1].dims, 4)
    for value in node.inputs[2:]:
        with_rank(value.dims, 1, "FractionalAvgPoolGrad: a pooling sequence")
    return (require_rank("FractionalAvgPoolGrad", "orig_input_tensor_shape", sizes, 4),)


# ------------------------------------------------------------------------ declarations

_T = {"T": "{float32, float64, int32, int64}"}
_OVERLAPPING = {"overlapping": "bool = false"}
_ATTRS = {
    "pooling_ratio": "list(float) >= 4",
    "pseudo_random": "bool = false",
    **_OVERLAPPING,
    "deterministic": "bool = false",
    "seed": "int = 0",
    "seed2": "int = 0",
    **_T,
}

for _kind in ("Avg", "Max"):
    register_op(
        f"Fractional{_kind}Pool",
        ("value: T",),
        ("output: T", "row_pooling_sequence: int64", "col_pooling_sequence: int64"),
        _ATTRS,
        _rule,
        traits=Traits(random=True, cost=cost_rules.per_input(2)),
        doc="The mean or the maximum of regions of random sizes.",
    )
register_op(
    "FractionalMaxPoolGrad",
    (
        "orig_input: T",
        "orig_output: T",
        "out_backprop: T",
        "row_pooling_sequence: int64",
        "col_pooling_sequence: int64",
    ),
    ("output: T",),
    _OVERLAPPING | _T,
    _max_grad_rule,
    traits=Traits(cost=cost_rules.per_input(3)),
    doc="The gradient of FractionalMaxPool, for the first maximum of each region.",
)
register_op(
    "FractionalAvgPoolGrad",
    (
        "orig_input_tensor_shape: int64",
        "out_backprop: T",
        "row_pooling_sequence: int64",
        "col_pooling_sequence: int64",
    ),
    ("output: T",),
    _OVERLAPPING | _T,
    _avg_grad_rule,
    traits=Traits(cost=cost_rules.per_output(2)),
    doc="The gradient of FractionalAvgPool, spread over each region.",
)

# --------------------------------------------------------------------------- functions


class PooledImage(NamedTuple):
    """A pooled image and the starts of the regions, followed by the size of the image."""

    output: Output
    row_pooling_sequence: Output
    col_pooling_sequence: Output


def _pool(
    op: str, value: Any, ratio: Any, flags: dict[str, Any], seeds: tuple[int, int], name: str | None
) -> PooledImage:
    seed, seed2 = seeds
    if not flags["deterministic"] and not (seed or seed2):
        first, second = get_seed(None)
        seed, seed2 = first or 0, second or 0
    attrs = {"pooling_ratio": list(ratio), **flags, "seed": seed, "seed2": seed2}
    return PooledImage(*create(op, [convert_to_tensor(value)], attrs, name).outputs)


def fractional_avg_pool(
    value: Any,
    pooling_ratio: Sequence[float],
    pseudo_random: bool = False,
    overlapping: bool = False,
    deterministic: bool = False,
    seed: int = 0,
    seed2: int = 0,
    name: str | None = None,
) -> PooledImage:
    """Return the means of random regions of an image, whose sizes differ by at most 1.

    Args:
      value: float32, float64, int32 or int64, shape (N, H, W, C).
      pooling_ratio: four numbers: 1, H / H', W / W', 1; the ratios are at least 1.
      pseudo_random: derive all sizes from one random number, which spreads them evenly; otherwise
        their order is random.
      overlapping: let a region contain the first row and column of the next one.
      deterministic: use the same regions in each run.
      seed, seed2: random seeds; default to those of the graph.
    Returns: a named tuple of the `output`, shape (N, H', W', C), and of `row_pooling_sequence` and
      `col_pooling_sequence`, int64, the starts of the regions and the end of the last one.
    Raises: InvalidArgumentError: the ratio is invalid.

    Examples:
      >>> image = wf.reshape(wf.range(16.0), [1, 4, 4, 1])
      >>> found = wf.nn.fractional_avg_pool(image, [1, 2, 2, 1])
      >>> wf.Session().run(found.output)[0, :, :, 0]
      array([[ 2.5,  4.5],
             [10.5, 12.5]], dtype=float32)
    """
    flags = {
        "pseudo_random": pseudo_random,
        "overlapping": overlapping,
        "deterministic": deterministic,
    }
    return _pool("FractionalAvgPool", value, pooling_ratio, flags, (seed, seed2), name)


def fractional_max_pool(
    value: Any,
    pooling_ratio: Sequence[float],
    pseudo_random: bool = False,
    overlapping: bool = False,
    deterministic: bool = False,
    seed: int = 0,
    seed2: int = 0,
    name: str | None = None,
) -> PooledImage:
    """Return the maxima of random regions of an image.

    Args:
      value: float32, float64, int32 or int64, shape (N, H, W, C).
      pooling_ratio, pseudo_random, overlapping, deterministic: as for `fractional_avg_pool`.
      seed, seed2: random seeds; default to those of the graph.
    Returns: as `fractional_avg_pool`.
    Raises: InvalidArgumentError: the ratio is invalid.

    Examples:
      >>> image = wf.reshape(wf.range(16.0), [1, 4, 4, 1])
      >>> found = wf.nn.fractional_max_pool(image, [1, 2, 2, 1])
      >>> wf.Session().run(found.output)[0, :, :, 0]
      array([[ 5.,  7.],
             [13., 15.]], dtype=float32)
    """
    flags = {
        "pseudo_random": pseudo_random,
        "overlapping": overlapping,
        "deterministic": deterministic,
    }
    return _pool("FractionalMaxPool", value, pooling_ratio, flags, (seed, seed2), name)

"""Approximate top-k functions, which are exact in weft.

Programs request a least fraction of the true results. The search is exact: it uses `top_k`.
"""

from __future__ import annotations

__all__ = ["approx_max_k", "approx_min_k", "approx_top_k"]

from typing import Any

from weft_graph.ir.builder import convert_to_tensor, create, out
from weft_graph.ir.default_graph import name_scope
from weft_graph.ir.node import Output
from weft_graph.ops.shape_rules import normal_axis
from weft_tensor import errors


def approx_max_k(
    operand: Any,
    k: int,
    reduction_dimension: int = -1,
    recall_target: float = 0.95,
    reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
    name: str | None = None,
) -> tuple[Output, Output]:
    """Return the k largest elements along an axis in descending order; the result is exact.

    Args:
      operand: floating, shape (..., n, ...); the rank is known unless the axis is -1.
      k: number of elements, at most n.
      reduction_dimension: the axis; negative values count from the end.
      recall_target: the least fraction of true results, in (0, 1]; no effect.
      reduction_input_size_override, aggregate_to_topk: no effect, because the result is exact.
    Returns: values and int32 positions along the axis, shape (..., k, ...).
    Raises: InvalidArgumentError: `k`, the axis or `recall_target` is out of range.

    Examples:
      >>> values, indices = wf.nn.approx_max_k([1.0, 5.0, 3.0], k=2)
      >>> wf.Session().run(values)
      array([5., 3.], dtype=float32)
    """
    with name_scope(name, "approx_max_k"):
        return _find_top(operand, k, reduction_dimension, recall_target, largest=True)


def approx_min_k(
    operand: Any,
    k: int,
    reduction_dimension: int = -1,
    recall_target: float = 0.95,
    reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
    name: str | None = None,
) -> tuple[Output, Output]:
    """Return the k smallest elements along an axis in ascending order; the result is exact.

    Args:
      operand, k, reduction_dimension, recall_target: as for `approx_max_k`.
      reduction_input_size_override, aggregate_to_topk: no effect, because the result is exact.
    Returns: values and int32 positions along the axis, shape (..., k, ...).
    Raises: InvalidArgumentError: as `approx_max_k`.

    Examples:
      >>> values, indices = wf.nn.approx_min_k([1.0, 5.0, 3.0], k=2)
      >>> wf.Session().run(indices)
      array([0, 2], dtype=int32)
    """
    with name_scope(name, "approx_min_k"):
        return _find_top(operand, k, reduction_dimension, recall_target, largest=False)


def approx_top_k(
    input: Any,
    k: int,
    reduction_dimension: int = -1,
    recall_target: float = 0.95,
    is_max_k: bool = True,
    reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
    name: str | None = None,
) -> tuple[Output, Output]:
    """Return the result of `approx_max_k` or `approx_min_k`.

    Args:
      input, k, reduction_dimension, recall_target: as for `approx_max_k`.
      is_max_k: return the largest elements instead of the smallest ones.
      reduction_input_size_override, aggregate_to_topk: no effect, because the result is exact.
    Returns: values and int32 positions along the axis, shape (..., k, ...).
    Raises: InvalidArgumentError: as `approx_max_k`.

    Examples:
      >>> values, indices = wf.approx_top_k([1.0, 5.0, 3.0], k=1, is_max_k=False)
      >>> wf.Session().run(values)
      array([1.], dtype=float32)
    """
    with name_scope(name, "approx_top_k"):
        return _find_top(input, k, reduction_dimension, recall_target, largest=is_max_k)


def _find_top(
    operand: Any, k: int, axis: int, recall: float, *, largest: bool
) -> tuple[Output, Output]:
    if not 0 < recall <= 1:
        raise errors.InvalidArgumentError(f"recall_target must be in (0, 1], got {recall}")
    value = convert_to_tensor(operand)
    if not value.dtype.is_floating:
        raise errors.InvalidTypeError(f"operand must be floating, got {value.dtype.name}")
    order = _swap_permutation(value, axis)
    if order is not None:
        value = out("Transpose", [value, order])
    values, indices = create("TopKV2", [value if largest else out("Neg", [value]), k]).outputs
    if not largest:
        values = out("Neg", [values])
    if order is None:
        return values, indices
    return out("Transpose", [values, order]), out("Transpose", [indices, order])


def _swap_permutation(value: Output, axis: int) -> list[int] | None:
    """Return the permutation that swaps an axis and the last axis; None for the last axis."""
    if axis == -1:
        return None
    if value.dims is None:
        raise errors.InvalidArgumentError(
            f"operand must have a known rank for reduction_dimension {axis}"
        )
    order = list(range(len(value.dims)))
    dim = normal_axis(axis, len(order), "reduction_dimension")
    order[dim], order[-1] = order[-1], order[dim]
    return order

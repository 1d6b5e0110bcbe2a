"""Limiting the norms of gradients."""

from __future__ import annotations

__all__ = ["clip_by_average_norm", "clip_by_global_norm", "clip_by_norm", "global_norm"]

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft_graph.ir.builder import constant_of, convert_to_tensor, out
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.indexed_slices import IndexedSlices
from weft_graph.ir.node import Output
from weft_tensor import errors
from weft_tensor.nesting import format_value
from weft_tensor.shape import merge_dims

Tensor = Output | IndexedSlices


def clip_by_norm(t: Any, clip_norm: Any, axes: Any = None, name: str | None = None) -> Tensor:
    """Compute `t * clip_norm / max(norm(t), clip_norm)`: scale down if the L2 norm is too large.

    Args:
      t: floating or complex, any shape, or IndexedSlices.
      clip_norm: scalar of the same dtype, positive; the largest norm.
      axes: integers; the norm is taken over these axes, all by default.
    Returns: shape and dtype of `t`; its gradient is finite where `t` is zero.
    Raises: InvalidArgumentError: `clip_norm` broadcasts `t` to another shape.

    Examples:
      >>> wf.Session().run(wf.clip_by_norm([3.0, 4.0], 1.0))
      array([0.6, 0.8], dtype=float32)
    """
    values = _values(t)
    with get_default_graph().name_scope(name or "clip_by_norm"):
        limit = convert_to_tensor(clip_norm, values.dtype)
        total = out("Sum", [values * values, _axes(values, axes)], {"keep_dims": True})
        positive = total > 0
        # The derivative of the root is infinite at zero, so zero never reaches it.
        safe = out("SelectV2", [positive, total, out("OnesLike", [total])])
        norm = out("SelectV2", [positive, out("Sqrt", [safe]), total])
        clipped = values * limit / out("Maximum", [norm, limit])
        merge_dims(values.dims, clipped.dims)
        return _restore_structure(t, clipped)


def clip_by_average_norm(t: Any, clip_norm: Any, name: str | None = None) -> Tensor:
    """Scale `t` down if its L2 norm divided by the number of elements exceeds `clip_norm`.

    Args:
      t: floating, any shape, or IndexedSlices.
      clip_norm: scalar of the same dtype, positive.
    Returns: shape and dtype of `t`.

    Examples:
      >>> wf.Session().run(wf.clip_by_average_norm([3.0, 4.0], 10.0))
      array([3., 4.], dtype=float32)
    """
    values = _values(t)
    with get_default_graph().name_scope(name or "clip_by_average_norm"):
        limit = convert_to_tensor(clip_norm, values.dtype)
        size = out("Size", [values], {"out_type": "int32"})
        count = out("Cast", [size], {"DstT": values.dtype.base_dtype})
        inverse = out("Rsqrt", [out("Sum", [values * values, _axes(values, None)])])
        scale = limit * out("Minimum", [inverse * count, 1.0 / limit])
        return _restore_structure(t, values * scale)


def global_norm(t_list: Sequence[Any], name: str | None = None) -> Output | None:
    """Return the L2 norm of all elements of all tensors together.

    Args:
      t_list: floating, any shapes, IndexedSlices or None, which is ignored.
    Returns: a scalar; None if all items of the list are None.
    Raises: InvalidTypeError: `t_list` is not a list of tensors.

    Examples:
      >>> wf.Session().run(wf.global_norm([wf.constant([3.0]), wf.constant([4.0])]))
      np.float32(5.0)
    """
    values = [_values(t) for t in _as_list(t_list) if t is not None]
    if not values:
        return None
    graph = values[0].graph
    with graph.name_scope(name or "global_norm") as scope:
        halves = []
        for value in values:
            with graph.colocate_with(value):
                halves.append(out("L2Loss", [value]))
        half = halves[0] if len(halves) == 1 else out("AddN", [halves])
        return out("Sqrt", [half * 2.0], name=scope + "global_norm")


def clip_by_global_norm(
    t_list: Sequence[Any], clip_norm: Any, use_norm: Any = None, name: str | None = None
) -> tuple[list[Tensor | None], Output | None]:
    """Scale all tensors by `clip_norm / max(global_norm, clip_norm)`.

    Args:
      t_list: floating, any shapes, IndexedSlices or None.
      clip_norm: scalar, positive; the largest global norm.
      use_norm: scalar, the global norm if it is known already.
    Returns: the scaled list (None items stay None) and the global norm. All are NaN if the norm is
      not finite.
    Raises: InvalidTypeError: `t_list` is not a list of tensors.
    Source: Pascanu et al. 2012, "On the difficulty of training recurrent neural networks".

    Examples:
      >>> clipped, norm = wf.clip_by_global_norm([wf.constant([3.0]), wf.constant([4.0])], 10.0)
      >>> wf.Session().run(norm)
      np.float32(5.0)
    """
    items = _as_list(t_list)
    norm = global_norm(items, name) if use_norm is None else convert_to_tensor(use_norm)
    if norm is None:
        return [None for _ in items], None
    graph = norm.graph
    with graph.name_scope(name or "clip_by_global_norm"):
        limit = convert_to_tensor(clip_norm, norm.dtype)
        scale = limit * out("Minimum", [1.0 / norm, 1.0 / limit])
        nan = constant_of(np.array(math.nan, norm.dtype.base_dtype.numpy))
        scale = out("SelectV2", [out("IsFinite", [norm]), scale, nan])
        clipped: dict[int, Output] = {}
        results: list[Tensor | None] = []
        for item in items:
            if item is None:
                results.append(None)
                continue
            value = _values(item)
            scaled = clipped.get(id(value))
            if scaled is None:
                with graph.colocate_with(value):
                    scaled = clipped[id(value)] = value * _cast(scale, value)
            results.append(_restore_structure(item, scaled))
    return results, norm


def _as_list(t_list: Any) -> list[Any]:
    if isinstance(t_list, str | bytes | Output) or not isinstance(t_list, Sequence):
        raise errors.InvalidTypeError(
            f"t_list must be a list of tensors, got {format_value(t_list)}"
        )
    return list(t_list)


def _values(t: Any) -> Output:
    return t.values if isinstance(t, IndexedSlices) else convert_to_tensor(t)


def _restore_structure(t: Any, values: Output) -> Tensor:
    if isinstance(t, IndexedSlices):
        return IndexedSlices(values, t.indices, t.dense_shape)
    return values


def _cast(scale: Output, like: Output) -> Output:
    target = like.dtype.base_dtype
    return scale if scale.dtype is target else out("Cast", [scale], {"DstT": target})


def _axes(values: Output, axes: Any) -> Output:
    if axes is not None:
        return convert_to_tensor(axes)
    if values.dims is None:
        return out("Range", [0, out("Rank", [values]), 1])
    return constant_of(np.arange(len(values.dims), dtype=np.int32))

"""Comparison of Jacobians computed by gradients and by finite differences.

Both have one row per real number in x and one column per real number in y; a complex number is
two, its real part first.
"""

from __future__ import annotations

__all__ = ["compute_gradient", "compute_gradient_error"]

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft_autodiff.gradients.backprop import gradients
from weft_graph.ir import builder
from weft_graph.ir.indexed_slices import IndexedSlices
from weft_graph.ir.node import Output
from weft_graph.ir.thread_stacks import session_for
from weft_tensor import errors
from weft_tensor.dtypes import DType

Array = np.ndarray[Any, Any]
Jacobians = tuple[Array, Array]


def compute_gradient(
    x: Any,
    x_shape: Any,
    y: Any,
    y_shape: Any,
    x_init_value: Any = None,
    delta: float = 1e-3,
    init_targets: Any = None,
    extra_feed_dict: Mapping[Any, Any] | None = None,
) -> Any:
    """Return the Jacobian of `y` with respect to `x`, by gradients and by central differences.

    Args:
      x: floating or complex tensor, or a list of them.
      x_shape: its shape, or a list of shapes.
      y: floating or complex tensor that depends on x.
      y_shape: its shape.
      x_init_value: array or list of arrays, the point; uniform in [0, 1) by default.
      delta: step of the central differences.
      init_targets: node or list of nodes to run first.
      extra_feed_dict: values for other tensors that y depends on.
    Returns: the two Jacobians, each of shape (reals in x, reals in y); a list of such pairs when x
      is a list.
    Raises:
      FailedPreconditionError: there is no default session.
      InvalidArgumentError: the shape of `x_init_value` is not `x_shape`.

    Examples:
      >>> x = wf.constant([1.0, 2.0])
      >>> with wf.Session():
      ...     by_gradients, by_differences = wf.test.compute_gradient(x, [2], 3.0 * x, [2])
      >>> by_gradients
      array([[3., 0.],
             [0., 3.]], dtype=float32)
    """
    single = not isinstance(x, list | tuple)
    xs = [x] if single else list(x)
    shapes = [x_shape] if single else list(x_shape)
    starts = [x_init_value] if single or x_init_value is None else list(x_init_value)
    if x_init_value is None:
        starts = [None] * len(xs)
    y = builder.convert_to_tensor(y)
    session = session_for(y.graph, None, "compute_gradient")
    for target in _as_list(init_targets):
        session.run(target)
    points = [_start(x, shape, start) for x, shape, start in zip(xs, shapes, starts, strict=True)]
    feeds = dict(extra_feed_dict or {}) | dict(zip(xs, points, strict=True))
    probe = _Probe(session, y, _as_sizes(y_shape), feeds)
    pairs = [
        (probe.theoretical(x, point), probe.numeric(x, point, delta))
        for x, point in zip(xs, points, strict=True)
    ]
    return pairs[0] if single else pairs


def compute_gradient_error(
    x: Any,
    x_shape: Any,
    y: Any,
    y_shape: Any,
    x_init_value: Any = None,
    delta: float = 1e-3,
    init_targets: Any = None,
    extra_feed_dict: Mapping[Any, Any] | None = None,
) -> float:
    """Return the largest difference between the two Jacobians of `compute_gradient`.

    Args:
      x, x_shape, y, y_shape, x_init_value, delta, init_targets, extra_feed_dict: as for
        `compute_gradient`.
    Returns: the largest absolute difference of two elements; NaN if an element is NaN; 0.0 if the
      Jacobians are empty.
    Raises:
      FailedPreconditionError: there is no default session.
      InvalidArgumentError: the shape of `x_init_value` is not `x_shape`.

    Examples:
      >>> x = wf.constant([1.0, 2.0])
      >>> with wf.Session():
      ...     wf.test.compute_gradient_error(x, [2], wf.square(x), [2], delta=1e-2) < 1e-3
      True
    """
    pairs = compute_gradient(
        x, x_shape, y, y_shape, x_init_value, delta, init_targets, extra_feed_dict
    )
    if isinstance(pairs, tuple):
        pairs = [pairs]
    largest = 0.0
    for theoretical, numeric in pairs:
        if theoretical.size:
            # NaN must not be lost: comparisons with NaN are false.
            largest = float(np.maximum(largest, np.abs(theoretical - numeric).max()))
    return largest


class _Probe:
    """Evaluation of y and of its gradients at one point, as functions of one x."""

    def __init__(
        self, session: Any, y: Output, y_shape: tuple[int, ...], feeds: dict[Any, Any]
    ) -> None:
        self.session = session
        self.y = y
        shape_matches = y.shape.is_fully_defined() and y.shape.num_elements() == np.prod(y_shape)
        self.y_shape = _as_sizes(y.shape) if shape_matches else y_shape
        self.feeds = feeds

    def theoretical(self, x: Any, point: Array) -> Array:
        """Return the Jacobian row by row: one gradient for each real number in y."""
        dtype = self.y.dtype.base_dtype
        with self.y.graph.as_default():
            seed = builder.constant(np.ones(self.y_shape, dtype.numpy))
            grad = gradients(self.y, x, builder.out("Identity", [seed]))[0]
        columns = np.zeros(self.y_shape, dtype.numpy)
        reals = _as_reals(columns, dtype)
        jacobian = np.zeros((_as_reals(point, x.dtype).size, reals.size), reals.dtype)
        if grad is None:
            return jacobian
        for column in range(reals.size):
            reals[column] = 1
            gradient = self._dense(grad, point, {**self.feeds, seed: columns.copy()})
            jacobian[:, column] = _as_reals(gradient, x.dtype)
            reals[column] = 0
        return jacobian

    def _dense(self, grad: Output | IndexedSlices, point: Array, feeds: dict[Any, Any]) -> Array:
        if isinstance(grad, IndexedSlices):
            values, indices = self.session.run([grad.values, grad.indices], feeds)
            dense = np.zeros_like(point)
            np.add.at(dense, indices, values)
            return dense
        result: Array = np.asarray(self.session.run(grad, feeds), point.dtype)
        return result

    def numeric(self, x: Any, point: Array, delta: float) -> Array:
        """Return the Jacobian column by column: one central difference per real number in x."""
        shifted = point.copy()
        reals = _as_reals(shifted, x.dtype)
        rows = []
        for row in range(reals.size):
            start = reals[row].copy()
            reals[row] = start + reals.dtype.type(delta)
            above, high = reals[row], self._y(x, shifted)
            reals[row] = start - reals.dtype.type(delta)
            below, low = reals[row], self._y(x, shifted)
            # The actual step: rounding makes it differ from twice delta.
            rows.append((high - low) / (np.float64(above) - np.float64(below)))
            reals[row] = start
        dtype = _as_reals(np.zeros(1, self.y.dtype.base_dtype.numpy), self.y.dtype).dtype
        width = _as_reals(np.zeros(self.y_shape, self.y.dtype.base_dtype.numpy), self.y.dtype).size
        return np.array(rows).reshape(reals.size, width).astype(dtype)

    def _y(self, x: Any, value: Array) -> Array:
        result = np.asarray(self.session.run(self.y, {**self.feeds, x: value.copy()}))
        return _as_reals(result, self.y.dtype).astype(np.float64)


def _start(x: Any, shape: Any, value: Any) -> Array:
    dtype = x.dtype.base_dtype
    sizes = _as_sizes(shape)
    if value is not None:
        point = np.array(value, dtype.numpy)
        if point.shape != sizes:
            raise errors.InvalidArgumentError(
                f"x_init_value must have the shape {list(sizes)}, got {list(point.shape)}"
            )
        return point
    rng = np.random.random_sample(sizes)
    if dtype.is_complex:
        return np.asarray(rng + 1j * np.random.random_sample(sizes), dtype.numpy)
    return np.asarray(rng, dtype.numpy)


def _as_reals(array: Array, dtype: DType) -> Array:
    """Return a flat view of an array's real numbers, with alternating real and imaginary parts."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(dtype.base_dtype.real_dtype.numpy)


def _as_sizes(shape: Any) -> tuple[int, ...]:
    sizes: Sequence[int] = shape.as_list() if hasattr(shape, "as_list") else shape
    return tuple(int(size) for size in sizes)


def _as_list(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]

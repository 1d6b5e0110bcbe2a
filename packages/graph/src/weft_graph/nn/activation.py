"""Activations, dropout and small layers composed of single nodes."""

from __future__ import annotations

__all__ = ["crelu", "dropout", "relu_layer", "silu", "swish", "xw_plus_b", "zero_fraction"]

import warnings
from collections.abc import Callable
from typing import Any

from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.composite import AppliesOps
from weft_graph.ir.node import Output
from weft_graph.nn.scope import scope, static_number
from weft_graph.ops import casting, elementary, nn, random, reduction, shapes
from weft_tensor import dtypes, errors


def crelu(features: Any, name: str | None = None, axis: int = -1) -> Output:
    """Concatenate relu(x) and relu(-x) along an axis; floating.

    Args:
      features: floating, any shape.
    Returns: shape and dtype of `features`.
    Source: Shang et al. 2016.

    Examples:
      >>> wf.Session().run(wf.nn.crelu([-1.0, 2.0]))
      array([0., 2., 1., 0.], dtype=float32)
    """
    with scope(name, "CRelu") as full:
        features = convert_to_tensor(features)
        doubled = out("ConcatV2", [[features, out("Neg", [features])], axis])
        return nn.relu(doubled, name=full)


def swish(features: Any, name: str | None = None, beta: Any = 1.0) -> Output:
    """Compute x * sigmoid(beta * x), elementwise; floating, any shape.

    Args:
      features: x, floating, any shape.
      beta: same dtype, rank 0.
    Returns: shape and dtype of `features`.
    Source: Ramachandran et al. 2017.

    Examples:
      >>> np.round(wf.Session().run(wf.nn.swish([0.0, 1.0])), 3)
      array([0.   , 0.731], dtype=float32)
    """
    features = convert_to_tensor(features)
    with scope(name, "swish") as full:
        scaled = features if static_number(beta) == 1 else out("Mul", [features, beta])
        return out("Mul", [features, elementary.sigmoid(scaled)], name=full)


def silu(features: Any, beta: Any = 1.0) -> Output:
    """Compute x * sigmoid(beta * x), elementwise; another name of `swish`.

    Args:
      features: x, floating, any shape.
      beta: same dtype, rank 0.
    Returns: shape and dtype of `features`.
    Source: Elfwing et al. 2018.

    Examples:
      >>> np.round(wf.Session().run(wf.nn.silu([0.0, 1.0])), 3)
      array([0.   , 0.731], dtype=float32)
    """
    return swish(features, "silu", beta)


def xw_plus_b(x: Any, weights: Any, biases: Any, name: str | None = None) -> Output:
    """Compute x @ weights + biases.

    Args:
      x: floating, shape (N, I).
      weights: same dtype, shape (I, O).
      biases: same dtype, shape (O,).
    Returns: shape (N, O).
    Raises: InvalidArgumentError: sizes differ.

    Examples:
      >>> wf.Session().run(wf.nn.xw_plus_b([[1.0, 2.0]], [[3.0], [4.0]], [0.5]))
      array([[11.5]], dtype=float32)
    """
    with scope(name, "xw_plus_b") as full:
        return nn.bias_add(out("MatMul", [x, weights]), biases, name=full)


def relu_layer(x: Any, weights: Any, biases: Any, name: str | None = None) -> Output:
    """Compute relu(x @ weights + biases).

    Args:
      x: floating, shape (N, I).
      weights: same dtype, shape (I, O).
      biases: same dtype, shape (O,).
    Returns: shape (N, O).
    Raises: InvalidArgumentError: sizes differ.

    Examples:
      >>> wf.Session().run(wf.nn.relu_layer([[1.0, -2.0]], [[3.0], [4.0]], [0.5]))
      array([[0.]], dtype=float32)
    """
    with scope(name, "relu_layer") as full:
        return nn.relu(nn.bias_add(out("MatMul", [x, weights]), biases), name=full)


def zero_fraction(value: Any, name: str | None = None) -> Output:
    """Return the fraction of elements that are 0.

    Args:
      value: numeric, any shape.
    Returns: float32, rank 0.

    Examples:
      >>> wf.Session().run(wf.nn.zero_fraction([0, 1, 0, 2]))
      np.float32(0.5)
    """
    with scope(name, "zero_fraction") as full:
        value = convert_to_tensor(value)
        size = shapes.size(value, out_type=dtypes.int64)
        num_nonzero = reduction.count_nonzero(value, dtype=dtypes.int64)
        zeros = casting.cast(size - num_nonzero, dtypes.float32)
        return out("RealDiv", [zeros, casting.cast(size, dtypes.float32)], name=full)


# ---------------------------------------------------------------------------- dropout


def dropout(
    x: Any,
    keep_prob: Any = None,
    noise_shape: Any = None,
    seed: int | None = None,
    name: str | None = None,
    rate: Any = None,
) -> Output:
    """Set elements to 0 with probability `rate`, and scale the others by 1 / (1 - rate).

    Args:
      x: floating, any shape.
      keep_prob: 1 - rate; a number, or a tensor of rank 0.
      noise_shape: int32; shape of the random mask, which broadcasts to that of `x`.
      seed: seed of the random mask.
      rate: in [0, 1); a number, or a tensor of rank 0.
    Returns: shape and dtype of `x`.
    Raises: InvalidArgumentError: `rate` and `keep_prob` are both passed or both missing, or out of
      range.
    Source: Srivastava et al. 2014.

    Examples:
      >>> wf.nn.dropout(wf.ones([2, 3]), rate=0.5, seed=1).shape
      TensorShape([Dimension(2), Dimension(3)])
    """
    if (rate is None) == (keep_prob is None):
        raise errors.InvalidArgumentError(
            f"dropout requires one of rate and keep_prob, got {rate!r} and {keep_prob!r}"
        )
    if rate is None:
        keep = keep_prob if isinstance(keep_prob, int | float) else convert_to_tensor(keep_prob)
        rate = 1 - keep
    return _apply_dropout(x, rate, noise_shape, seed, name)


def dropout_v2(
    x: Any,
    rate: Any,
    noise_shape: Any = None,
    seed: int | None = None,
    name: str | None = None,
) -> Output:
    """Apply `dropout` with `rate`."""
    return _apply_dropout(x, rate, noise_shape, seed, name)


def _apply_dropout(
    x: Any, rate: Any, noise_shape: Any, seed: int | None, name: str | None
) -> Output:
    def sample(shape: Any, dtype: Any) -> Output:
        return random.random_uniform(shape, dtype=dtype, seed=seed)

    return apply_dropout(x, rate, sample, noise_shape, name)


def apply_dropout(
    x: Any, rate: Any, sample: Callable[..., Output], noise_shape: Any, name: str | None
) -> Output:
    """Apply dropout with the uniform numbers of `sample(shape=..., dtype=...)`."""
    if isinstance(x, AppliesOps):
        dropped: Output = x.map_elements(
            lambda flat: apply_dropout(flat, rate, sample, noise_shape, name)
        )
        return dropped
    with scope(name, "dropout") as full:
        x = convert_to_tensor(x)
        if not x.dtype.is_floating:
            raise errors.InvalidTypeError(f"dropout requires a floating x, got {x!r}")
        number = static_number(rate)
        if number is not None:
            if not 0 <= number < 1:
                raise errors.InvalidArgumentError(f"rate must be a number in [0, 1), got {number}")
            if number == 0:
                return convert_to_tensor(x)
            if number > 0.5:
                warnings.warn(
                    f"dropout drops {number:.0%} of all elements; check rate or keep_prob",
                    stacklevel=4,
                )
            scale: Any = 1 / (1 - number)
        else:
            rate = convert_to_tensor(rate, x.dtype)
            if rate.shape.ndims:
                raise errors.InvalidArgumentError(f"rate must have rank 0, got {rate!r}")
            scale = out("RealDiv", [1, out("Sub", [1, rate])])
        shape = _noise_shape(x, noise_shape)
        noise = sample(shape=shape, dtype=x.dtype.base_dtype)
        keep_mask = casting.cast(out("GreaterEqual", [noise, rate]), x.dtype.base_dtype)
        result = out("Mul", [out("Mul", [x, scale]), keep_mask], name=full)
        result.dims = x.dims
        return result


def _noise_shape(x: Output, noise_shape: Any) -> Any:
    if noise_shape is None:
        return shapes.shape(x)
    is_static = isinstance(noise_shape, list | tuple) and x.dims is not None
    if not is_static or len(noise_shape) != len(x.dims or ()):
        return noise_shape
    pairs = zip(noise_shape, x.dims or (), strict=True)
    return [size if noise_size is None else noise_size for noise_size, size in pairs]

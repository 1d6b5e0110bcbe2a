"""Random numbers.

Streams use Philox4x64-10, as specified in `weft_exec.kernels.philox`. An op with seeds returns the
same numbers in every session; without seeds they differ between sessions.
"""

from __future__ import annotations

__all__ = [
    "multinomial",
    "random_crop",
    "random_gamma",
    "random_normal",
    "random_poisson",
    "random_shuffle",
    "random_uniform",
    "truncated_normal",
]

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.constant_value import constant_value_as_dims
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.node import Output
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.random_seed import get_seed
from weft_graph.ir.traits import DRAWS, Traits
from weft_graph.ops import cost_rules
from weft_graph.ops.shape_rules import constant_int, same_shape, with_rank
from weft_tensor import dtypes, errors
from weft_tensor.shape import Dims, TensorShape, as_dims

# --------------------------------------------------------------------------- declarations


def _from_shape(node: NodeSpec) -> Sequence[Dims]:
    return (constant_value_as_dims(node.inputs[0]),)


def _integers_shape(node: NodeSpec) -> Sequence[Dims]:
    low, high = node.inputs[-2:]
    with_rank(low.dims, 0, "minval")
    with_rank(high.dims, 0, "maxval")
    return _stateless_shape(node) if len(node.inputs) == 4 else _from_shape(node)


def _stateless_shape(node: NodeSpec) -> Sequence[Dims]:
    seed = with_rank(node.inputs[1].dims, 1, "seed")
    if seed[0] not in (None, 2):
        raise errors.InvalidArgumentError(f"seed must have shape [2], got [{seed[0]}]")
    return _from_shape(node)


def _per_parameter(node: NodeSpec) -> Sequence[Dims]:
    (outer,), inner = _from_shape(node), node.inputs[1].dims
    return (None if outer is None or inner is None else (*outer, *inner),)


def _samples(node: NodeSpec) -> Sequence[Dims]:
    logits = with_rank(node.inputs[0].dims, 2, "logits")
    with_rank(node.inputs[1].dims, 0, "num_samples")
    return ((logits[0], constant_int(node.inputs[1])),)


_SEEDS = {"seed": "int = 0", "seed2": "int = 0"}
_SHAPE_TYPE = {"T": "{index_type}"}

for _op, _flops, _doc in (
    ("RandomUniform", 10, "Uniform numbers in [0, 1)."),
    ("RandomStandardNormal", 20, "Normal numbers of mean 0 and standard deviation 1."),
    ("TruncatedNormal", 25, "Standard normal numbers, with those beyond 2 redrawn."),
):
    register_op(
        _op,
        ("shape: T",),
        ("output: dtype",),
        _SEEDS | {"dtype": "{floating}"} | _SHAPE_TYPE,
        _from_shape,
        traits=Traits(random=True, differentiable=False, cost=cost_rules.random_draws(_flops)),
        doc=_doc,
    )
register_op(
    "RandomUniformInt",
    ("shape: T", "minval: Tout", "maxval: Tout"),
    ("output: Tout",),
    _SEEDS | {"Tout": "{int32, int64}"} | _SHAPE_TYPE,
    _integers_shape,
    traits=Traits(random=True, differentiable=False, cost=cost_rules.random_draws(10)),
    doc="Uniform integers in [minval, maxval).",
)
register_op(
    "RandomShuffle",
    ("value: T",),
    ("output: T",),
    _SEEDS | {"T": "type"},
    same_shape,
    traits=DRAWS,
    doc="The slices along the first axis in random order.",
)
register_op(
    "Multinomial",
    ("logits: T", "num_samples: int32"),
    ("output: output_dtype",),
    _SEEDS | {"T": "{realnumbertype}", "output_dtype": "{int32, int64} = int64"},
    _samples,
    traits=DRAWS,
    doc="Class indices sampled with the probabilities softmax(logits), per row.",
)
register_op(
    "RandomGamma",
    ("shape: S", "alpha: T"),
    ("output: T",),
    _SEEDS | {"S": "{index_type}", "T": "{float16, float32, float64}"},
    _per_parameter,
    traits=Traits(random=True, cost=cost_rules.random_draws(60)),
    doc="Gamma-distributed numbers of shape parameter alpha and rate 1.",
)
register_op(
    "RandomPoissonV2",
    ("shape: S", "rate: R"),
    ("output: dtype",),
    _SEEDS
    | {
        "S": "{index_type}",
        "R": "{float16, float32, float64, int32, int64} = float64",
        "dtype": "{float16, float32, float64, int32, int64} = int64",
    },
    _per_parameter,
    traits=Traits(random=True, differentiable=False, cost=cost_rules.random_draws(60)),
    doc="Poisson-distributed numbers.",
)
register_op(
    "RandomPoisson",
    ("shape: S", "rate: dtype"),
    ("output: dtype",),
    _SEEDS | {"S": "{index_type}", "dtype": "{float16, float32, float64}"},
    _per_parameter,
    traits=Traits(random=True, differentiable=False, cost=cost_rules.random_draws(60)),
    doc="Poisson-distributed numbers with the type of the rate.",
)

for _op, _flops in (
    ("StatelessRandomUniform", 10),
    ("StatelessRandomNormal", 20),
    ("StatelessTruncatedNormal", 25),
):
    register_op(
        _op,
        ("shape: T", "seed: Tseed"),
        ("output: dtype",),
        {
            "dtype": "{floating} = float32",
            "T": "{index_type} = int32",
            "Tseed": "{index_type} = int64",
        },
        _stateless_shape,
        traits=Traits(differentiable=False, cost=cost_rules.random_draws(_flops)),
        doc="Random numbers that depend only on the seed.",
    )
register_op(
    "StatelessRandomUniformInt",
    ("shape: T", "seed: Tseed", "minval: dtype", "maxval: dtype"),
    ("output: dtype",),
    {"dtype": "{int32, int64}", "T": "{index_type}", "Tseed": "{index_type} = int64"},
    _integers_shape,
    traits=Traits(differentiable=False, cost=cost_rules.random_draws(10)),
    doc="Uniform integers in [minval, maxval) that depend only on the seed.",
)

# --------------------------------------------------------------------------- helpers


def shape_tensor(shape: Any) -> Output:
    """Convert a shape to a vector: int32 for Python values that fit, else its own type."""
    if isinstance(shape, TensorShape) or shape is None:
        dims = as_dims(shape)
        if dims is None or None in dims:
            raise errors.InvalidArgumentError(f"the shape must be fully known, got {shape}")
        shape = dims
    if isinstance(shape, list | tuple) and not shape:
        return convert_to_tensor([], dtypes.int32, "shape")
    if isinstance(shape, int):
        shape = [shape]
    return convert_to_tensor(shape, name="shape")


def _seeds(seed: int | None) -> dict[str, Any]:
    first, second = get_seed(seed)
    return {"seed": first or 0, "seed2": second or 0}


@contextmanager
def _scope(name: str | None, default: str) -> Iterator[str]:
    """Open a scope for the parts of a result; yield the exact name of the result."""
    graph = get_default_graph()
    full = graph.unique_name(name or default, mark_as_used=False)
    if name and name.endswith("/"):
        full = name[:-1]
    with graph.name_scope(full + "/"):
        yield full + "/"


def _is(value: Any, number: float) -> bool:
    return isinstance(value, int | float) and value == number


def _scale_and_shift(
    op: str, inputs: Sequence[Any], attrs: Any, mean: Any, stddev: Any, name: str
) -> Output:
    """Return `op` times `stddev` plus `mean`, without redundant nodes."""
    dtype = attrs["dtype"]
    if _is(mean, 0) and _is(stddev, 1):
        return out(op, inputs, attrs, name)
    value = out(op, inputs, attrs)
    if not _is(stddev, 1):
        factor = convert_to_tensor(stddev, dtype, name="stddev")
        value = out("Mul", [value, factor], None, name if _is(mean, 0) else "mul")
    if not _is(mean, 0):
        value = out("AddV2", [value, convert_to_tensor(mean, dtype, name="mean")], None, name)
    return value


# --------------------------------------------------------------------------- functions


def random_uniform(
    shape: Any,
    minval: Any = 0,
    maxval: Any = None,
    dtype: Any = dtypes.float32,
    seed: int | None = None,
    name: str | None = None,
) -> Output:
    """Return uniform random numbers in [minval, maxval).

    Args:
      shape: shape of the result; integers or an integer tensor.
      minval: lower bound, inclusive.
      maxval: upper bound, exclusive; 1 by default, and required for integers.
      dtype: floating, int32 or int64.
      seed: seed of this op.
    Raises: InvalidArgumentError: `maxval` is missing for integers.

    Examples:
      >>> x = wf.Session().run(wf.random_uniform([1000], 0, 10, wf.int32, seed=1))
      >>> int(x.min()), int(x.max())
      (0, 9)
    """
    dtype = dtypes.as_dtype(dtype)
    if maxval is None:
        if dtype.is_integer:
            raise errors.InvalidArgumentError(f"random_uniform of {dtype.name} needs maxval")
        maxval = 1
    with _scope(name, "random_uniform") as scope:
        attrs: dict[str, Any]
        if dtype.is_integer:
            low = convert_to_tensor(minval, dtype, name="min")
            high = convert_to_tensor(maxval, dtype, name="max")
            size = shape_tensor(shape)
            return out("RandomUniformInt", [size, low, high], _seeds(seed), scope)
        size = shape_tensor(shape)
        attrs = {**_seeds(seed), "dtype": dtype}
        if isinstance(minval, int | float) and isinstance(maxval, int | float):
            return _scale_and_shift("RandomUniform", [size], attrs, minval, maxval - minval, scope)
        low = convert_to_tensor(minval, dtype, name="min")
        high = convert_to_tensor(maxval, dtype, name="max")
        value = out("RandomUniform", [size], attrs)
        scaled = out("Mul", [value, out("Sub", [high, low], None, "sub")], None, "mul")
        return out("AddV2", [scaled, low], None, scope)


def random_normal(
    shape: Any,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = dtypes.float32,
    seed: int | None = None,
    name: str | None = None,
) -> Output:
    """Return normal random numbers.

    Args:
      shape: shape of the result; integers or an integer tensor.
      mean, stddev: parameters of the distribution.
      dtype: floating.
      seed: seed of this op.

    Examples:
      >>> wf.random_normal([2, 3], stddev=0.1, seed=1).shape
      TensorShape([Dimension(2), Dimension(3)])
    """
    with _scope(name, "random_normal") as scope:
        size = shape_tensor(shape)
        attrs = {**_seeds(seed), "dtype": dtypes.as_dtype(dtype)}
        return _scale_and_shift("RandomStandardNormal", [size], attrs, mean, stddev, scope)


def truncated_normal(
    shape: Any,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = dtypes.float32,
    seed: int | None = None,
    name: str | None = None,
) -> Output:
    """Return normal random numbers; those beyond two standard deviations are redrawn.

    Args:
      shape: list of ints, or a vector of integers.
      mean, stddev: parameters of the distribution before truncation.
      dtype: floating.
      seed: an integer; with it the numbers are the same in every session.

    Examples:
      >>> x = wf.Session().run(wf.truncated_normal([1000], seed=1))
      >>> bool(abs(x).max() < 2.0)
      True
    """
    with _scope(name, "truncated_normal") as scope:
        size = shape_tensor(shape)
        attrs = {**_seeds(seed), "dtype": dtypes.as_dtype(dtype)}
        return _scale_and_shift("TruncatedNormal", [size], attrs, mean, stddev, scope)


def random_shuffle(value: Any, seed: int | None = None, name: str | None = None) -> Output:
    """Return the slices of `value` along the first axis in random order.

    Args:
      value: any type, at least one axis.
      seed: an integer.

    Examples:
      >>> x = wf.Session().run(wf.random_shuffle([1, 2, 3], seed=1))
      >>> sorted(x.tolist())
      [1, 2, 3]
    """
    return out("RandomShuffle", [value], _seeds(seed), name)


def random_crop(value: Any, size: Any, seed: int | None = None, name: str | None = None) -> Output:
    """Crop `value` to shape `size` at a uniformly random offset.

    Args:
      value: any type, shape (N0, N1, ...).
      size: int32, shape (rank,), each at most the size of `value`.
      seed: seed of this op.
    Raises: InvalidArgumentError: `size` is known to exceed the shape of `value`.

    Examples:
      >>> wf.random_crop(wf.zeros([28, 28, 3]), [24, 24, 3], seed=1).shape
      TensorShape([Dimension(24), Dimension(24), Dimension(3)])
    """
    with _scope(name, "random_crop") as scope:
        value = convert_to_tensor(value, name="value")
        crop_size = convert_to_tensor(size, dtypes.int32, name="size")
        if value.dims is not None and isinstance(size, list | tuple):
            pairs = zip(value.dims, size, strict=True)
            if any(actual is not None and actual < expected for actual, expected in pairs):
                raise errors.InvalidArgumentError(
                    f"random_crop needs a value of at least shape {list(size)}, got {value!r}"
                )
        shape = out("Shape", [value])
        room = out("AddV2", [out("Sub", [shape, crop_size]), 1])
        rank = out("Shape", [shape])
        draw = random_uniform(rank, maxval=dtypes.int32.max, dtype=dtypes.int32, seed=seed)
        return out("Slice", [value, out("FloorMod", [draw, room]), crop_size], None, scope)


def multinomial(
    logits: Any,
    num_samples: Any,
    seed: int | None = None,
    name: str | None = None,
    output_dtype: Any = None,
) -> Output:
    """Sample class indices with the probabilities softmax(logits).

    Args:
      logits: real, shape (B, C); unnormalized log-probabilities.
      num_samples: int32, shape (); samples per row, with replacement.
      seed: seed of this op.
      output_dtype: int32 or int64, the default.
    Returns: shape (B, num_samples).

    Examples:
      >>> wf.multinomial([[0.0, 0.0]], 5, seed=1).shape
      TensorShape([Dimension(1), Dimension(5)])
    """
    attrs = {**_seeds(seed), "output_dtype": dtypes.as_dtype(output_dtype or dtypes.int64)}
    samples = convert_to_tensor(num_samples, dtypes.int32, name="num_samples")
    return out("Multinomial", [logits, samples], attrs, name)


def categorical(
    logits: Any,
    num_samples: Any,
    dtype: Any = None,
    seed: int | None = None,
    name: str | None = None,
) -> Output:
    """Sample class indices; newer name of `multinomial`.

    Args:
      logits, num_samples, seed: as for `multinomial`.
      dtype: int32 or int64, the default.
    Returns: shape (B, num_samples).

    Examples:
      >>> wf.random.categorical([[0.0, 0.0]], 5, seed=1).shape
      TensorShape([Dimension(1), Dimension(5)])
    """
    return multinomial(logits, num_samples, seed, name, dtype)


def random_gamma(
    shape: Any,
    alpha: Any,
    beta: Any = None,
    dtype: Any = dtypes.float32,
    seed: int | None = None,
    name: str | None = None,
) -> Output:
    """Return gamma-distributed random numbers.

    Args:
      shape: shape of the samples for each pair of parameters.
      alpha: shape parameter, positive; for 0 the result is the smallest positive number.
      beta: rate, positive, broadcasting with `alpha`; 1 by default.
      dtype: float16, float32 or float64.
      seed: seed of this op.
    Returns: shape `shape + broadcast(alpha, beta).shape`.

    Examples:
      >>> wf.random_gamma([5], 2.0, seed=1).shape
      TensorShape([Dimension(5)])
    """
    with _scope(name, "random_gamma") as scope:
        size = shape_tensor(shape)
        alpha = convert_to_tensor(alpha, dtype, name="alpha")
        if beta is None:
            return _raise_above_zero(out("RandomGamma", [size, alpha], _seeds(seed)), scope)
        beta = convert_to_tensor(beta, dtype, name="beta")
        unit = out("OnesLike", [beta])
        alpha = out("Mul", [alpha, unit])
        draws = out("RandomGamma", [size, alpha], _seeds(seed))
        return _raise_above_zero(out("RealDiv", [draws, beta]), scope)


def _raise_above_zero(draws: Output, name: str) -> Output:
    """Replace samples of 0, which underflowed and have no logarithm, by the smallest number."""
    smallest = np.finfo(draws.dtype.numpy).tiny
    return out("Maximum", [draws, smallest], None, name)


def random_poisson(
    lam: Any,
    shape: Any,
    dtype: Any = dtypes.float32,
    seed: int | None = None,
    name: str | None = None,
) -> Output:
    """Return Poisson-distributed random numbers.

    Args:
      lam: rates, not negative.
      shape: shape of the samples for each rate.
      dtype: element type of the result: floating, int32 or int64.
      seed: seed of this op.
    Returns: shape `shape + lam.shape`.

    Examples:
      >>> wf.random_poisson(2.0, [5], seed=1).shape
      TensorShape([Dimension(5)])
    """
    attrs = {**_seeds(seed), "dtype": dtypes.as_dtype(dtype)}
    return out("RandomPoissonV2", [shape_tensor(shape), lam], attrs, name)


# --------------------------------------------------------------------------- stateless


def stateless_random_uniform(
    shape: Any,
    seed: Any,
    minval: Any = 0,
    maxval: Any = None,
    dtype: Any = dtypes.float32,
    name: str | None = None,
) -> Output:
    """Return `random_uniform` as a function of `seed`: integers, shape (2,).

    Args:
      shape: list of ints, or a vector of integers.
      seed: integers, shape (2,).
      minval, maxval: the range.
      dtype: element type.

    Examples:
      >>> x, y = (wf.random.stateless_uniform([], [1, 2]) for _ in range(2))
      >>> wf.Session().run(wf.equal(x, y))
      np.True_
    """
    dtype = dtypes.as_dtype(dtype)
    if maxval is None:
        if dtype.is_integer:
            raise errors.InvalidArgumentError(f"random_uniform of {dtype.name} needs maxval")
        maxval = 1
    with _scope(name, "stateless_random_uniform") as scope:
        size = shape_tensor(shape)
        if dtype.is_integer:
            low = convert_to_tensor(minval, dtype, name="min")
            high = convert_to_tensor(maxval, dtype, name="max")
            return out("StatelessRandomUniformInt", [size, seed, low, high], None, scope)
        if isinstance(minval, int | float) and isinstance(maxval, int | float):
            width: Any = maxval - minval
        else:
            low = convert_to_tensor(minval, dtype, name="min")
            width = out("Sub", [convert_to_tensor(maxval, dtype, name="max"), low])
            minval = low
        attrs = {"dtype": dtype}
        return _scale_and_shift("StatelessRandomUniform", [size, seed], attrs, minval, width, scope)


def stateless_random_normal(
    shape: Any,
    seed: Any,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = dtypes.float32,
    name: str | None = None,
) -> Output:
    """Return `random_normal` as a function of `seed`: integers, shape (2,).

    Args:
      shape: list of ints, or a vector of integers.
      seed: integers, shape (2,).
      mean, stddev: parameters of the distribution.
      dtype: floating.

    Examples:
      >>> x, y = (wf.random.stateless_normal([], [1, 2]) for _ in range(2))
      >>> wf.Session().run(wf.equal(x, y))
      np.True_
    """
    with _scope(name, "stateless_random_normal") as scope:
        attrs = {"dtype": dtypes.as_dtype(dtype)}
        inputs = [shape_tensor(shape), seed]
        return _scale_and_shift("StatelessRandomNormal", inputs, attrs, mean, stddev, scope)


def stateless_truncated_normal(
    shape: Any,
    seed: Any,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = dtypes.float32,
    name: str | None = None,
) -> Output:
    """Return `truncated_normal` as a function of `seed`: integers, shape (2,).

    Args:
      shape: int32 or int64, shape (rank,).
      seed: int32 or int64, shape (2,).
      mean, stddev: scalars of type `dtype`.
      dtype: floating.
    Returns: shape `shape`, dtype `dtype`.

    Examples:
      >>> x = wf.random.stateless_truncated_normal([3], seed=[1, 2])
      >>> with wf.Session() as session:
      ...     np.array_equal(session.run(x), session.run(x))
      True
    """
    with _scope(name, "stateless_truncated_normal") as scope:
        attrs = {"dtype": dtypes.as_dtype(dtype)}
        inputs = [shape_tensor(shape), seed]
        return _scale_and_shift("StatelessTruncatedNormal", inputs, attrs, mean, stddev, scope)

"""Random numbers that depend only on a seed, and derivation of seeds."""

from __future__ import annotations

__all__ = [
    "stateless_binomial",
    "stateless_categorical",
    "stateless_gamma",
    "stateless_multinomial",
    "stateless_parameterized_truncated_normal",
    "stateless_poisson",
]

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.default_graph import name_scope
from weft_graph.ir.node import Output
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.traits import Traits
from weft_graph.ops import cost_rules, shape_rules
from weft_graph.ops.random import shape_tensor
from weft_tensor import dtypes
from weft_tensor.shape import Dims


def _check_seed(value: Output) -> None:
    (count,) = shape_rules.with_rank(value.dims, 1, "seed")
    shape_rules.merge_size(count, 2, "the size of seed and 2")


def _shape(node: NodeSpec) -> Sequence[Dims]:
    _check_seed(node.inputs[1])
    return (shape_rules.vector_as_dims(node.inputs[0], "shape"),)


def _samples(node: NodeSpec) -> Sequence[Dims]:
    logits = shape_rules.with_rank(node.inputs[0].dims, 2, "logits")
    shape_rules.with_rank(node.inputs[1].dims, 0, "num_samples")
    _check_seed(node.inputs[2])
    return ((logits[0], shape_rules.constant_int(node.inputs[1])),)


_INDEX = "{index_type}"
_ANY_NUMBER = "{float16, float32, float64, int32, int64}"
_TRAITS = Traits(differentiable=False, cost=cost_rules.random_draws(60))

register_op(
    "StatelessMultinomial",
    ("logits: T", "num_samples: int32", "seed: Tseed"),
    ("output: output_dtype",),
    {
        "T": "{realnumbertype}",
        "Tseed": f"{_INDEX} = int64",
        "output_dtype": "{int32, int64} = int64",
    },
    _samples,
    traits=Traits(differentiable=False),
    doc="Class indices sampled with the probabilities softmax(logits), per row.",
)
register_op(
    "StatelessRandomGammaV2",
    ("shape: T", "seed: Tseed", "alpha: dtype"),
    ("output: dtype",),
    {"dtype": "{float16, float32, float64}", "T": _INDEX, "Tseed": f"{_INDEX} = int64"},
    _shape,
    traits=_TRAITS,
    doc="Gamma-distributed numbers of shape parameter alpha and rate 1.",
)
register_op(
    "StatelessRandomPoisson",
    ("shape: T", "seed: Tseed", "lam: Rtype"),
    ("output: dtype",),
    {"Rtype": _ANY_NUMBER, "dtype": _ANY_NUMBER, "T": _INDEX, "Tseed": f"{_INDEX} = int64"},
    _shape,
    traits=_TRAITS,
    doc="Poisson-distributed numbers.",
)
register_op(
    "StatelessRandomBinomial",
    ("shape: S", "seed: Tseed", "counts: T", "probs: T"),
    ("output: dtype",),
    {
        "S": _INDEX,
        "Tseed": f"{_INDEX} = int64",
        "T": f"{_ANY_NUMBER} = float64",
        "dtype": f"{_ANY_NUMBER} = int64",
    },
    _shape,
    traits=_TRAITS,
    doc="Binomially distributed numbers.",
)
register_op(
    "StatelessParameterizedTruncatedNormal",
    ("shape: S", "seed: Tseed", "means: dtype", "stddevs: dtype", "minvals: dtype",
     "maxvals: dtype"),
    ("output: dtype",),
    {"S": _INDEX, "Tseed": f"{_INDEX} = int64", "dtype": "{float16, float32, float64}"},
    _shape,
    traits=_TRAITS,
    doc="Normal numbers between bounds.",
)  # fmt: skip


def stateless_multinomial(
    logits: Any,
    num_samples: Any,
    seed: Any,
    output_dtype: Any = dtypes.int64,
    name: str | None = None,
) -> Output:
    """Return `multinomial` as a function of `seed`.

    Args:
      logits: real, shape (B, C), logarithms of the probabilities up to a constant.
      num_samples: integer of rank 0, N.
      seed: integers, shape (2,).
      output_dtype: int32 or int64.
    Returns: class indices, shape (B, N).

    Examples:
      >>> wf.random.stateless_multinomial([[0.0, 1.0]], 5, seed=[1, 2]).shape
      TensorShape([Dimension(1), Dimension(5)])
    """
    attrs = {"output_dtype": dtypes.as_dtype(output_dtype)}
    return out("StatelessMultinomial", [logits, num_samples, seed], attrs, name)


def stateless_categorical(
    logits: Any,
    num_samples: Any,
    seed: Any,
    dtype: Any = dtypes.int64,
    name: str | None = None,
) -> Output:
    """Return `categorical` as a function of `seed`.

    Args:
      logits, num_samples, seed: as in `stateless_multinomial`.
      dtype: int32 or int64.
    Returns: class indices, shape (B, N).

    Examples:
      >>> wf.random.stateless_categorical([[0.0, 1.0]], 5, seed=[1, 2]).shape
      TensorShape([Dimension(1), Dimension(5)])
    """
    return stateless_multinomial(logits, num_samples, seed, dtype, name)


def stateless_gamma(
    shape: Any,
    seed: Any,
    alpha: Any,
    beta: Any = None,
    dtype: Any = dtypes.float32,
    name: str | None = None,
) -> Output:
    """Return `random_gamma` as a function of `seed`.

    Gradients flow to `beta` only.

    Args:
      shape: shape of the result, to which the parameters broadcast.
      seed: integers, shape (2,).
      alpha: shape parameters, positive.
      beta: rates, positive; 1 by default.
      dtype: float16, float32 or float64.
    Returns: shape `shape`.

    Examples:
      >>> wf.random.stateless_gamma([5], seed=[1, 2], alpha=2.0).shape
      TensorShape([Dimension(5)])
    """
    with name_scope(name, "stateless_random_gamma") as scope:
        inputs = [shape_tensor(shape), seed, convert_to_tensor(alpha, dtype)]
        if beta is None:
            return out("StatelessRandomGammaV2", inputs, name=scope)
        draws = out("StatelessRandomGammaV2", inputs)
        return out("RealDiv", [draws, convert_to_tensor(beta, dtype)], name=scope)


def stateless_poisson(
    shape: Any, seed: Any, lam: Any, dtype: Any = dtypes.int32, name: str | None = None
) -> Output:
    """Return `random_poisson` as a function of `seed`.

    Args:
      shape: shape of the result, to which the rates broadcast.
      seed: integers, shape (2,).
      lam: rates, not negative.
      dtype: element type of the result: floating, int32 or int64.
    Returns: shape `shape`.

    Examples:
      >>> wf.random.stateless_poisson([5], seed=[1, 2], lam=3.0).shape
      TensorShape([Dimension(5)])
    """
    attrs = {"dtype": dtypes.as_dtype(dtype)}
    return out("StatelessRandomPoisson", [shape_tensor(shape), seed, lam], attrs, name)


def stateless_binomial(
    shape: Any,
    seed: Any,
    counts: Any,
    probs: Any,
    output_dtype: Any = dtypes.int32,
    name: str | None = None,
) -> Output:
    """Return binomially distributed random numbers as a function of `seed`.

    Args:
      shape: shape of the result, to which the parameters broadcast.
      seed: integers, shape (2,).
      counts: numbers of trials, not negative.
      probs: probabilities of success, in [0, 1].
      output_dtype: element type of the result: floating, int32 or int64.
    Returns: shape `shape`.

    Examples:
      >>> wf.random.stateless_binomial([5], seed=[1, 2], counts=3.0, probs=0.5).shape
      TensorShape([Dimension(5)])
    """
    attrs = {"dtype": dtypes.as_dtype(output_dtype)}
    chances = convert_to_tensor(probs)
    tries = out("Cast", [convert_to_tensor(counts)], {"DstT": chances.dtype.base_dtype})
    inputs = [shape_tensor(shape), seed, tries, chances]
    return out("StatelessRandomBinomial", inputs, attrs, name)


def stateless_parameterized_truncated_normal(
    shape: Any,
    seed: Any,
    means: Any = 0.0,
    stddevs: Any = 1.0,
    minvals: Any = -2.0,
    maxvals: Any = 2.0,
    name: str | None = None,
) -> Output:
    """Return truncated normal random numbers as a function of `seed`.

    Args:
      shape: shape of the result, to which the parameters broadcast.
      seed: integers, shape (2,).
      means, stddevs: parameters of the distribution before truncation, of the same floating type.
      minvals, maxvals: bounds of the result (not of the standardized distribution).
    Returns: shape `shape`.

    Examples:
      >>> x = wf.random.stateless_parameterized_truncated_normal([99], [1, 2], 0.0, 1.0, 3.0, 4.0)
      >>> bool(3.0 <= wf.Session().run(wf.reduce_min(x)) <= 4.0)
      True
    """
    inputs = [shape_tensor(shape), seed, means, stddevs, minvals, maxvals]
    return out("StatelessParameterizedTruncatedNormal", inputs, name=name)


def stateless_split(seed: Any, num: int = 2, alg: str = "auto_select") -> Output:
    """Return several independent seeds derived from one.

    Args:
      seed: int32 or int64, shape (2,).
      num: number of seeds.
      alg: no effect, because there is only one algorithm.
    Returns: the dtype of `seed`, shape (num, 2).

    Examples:
      >>> seeds = wf.random.experimental.stateless_split([1, 2], num=3)
      >>> seeds.shape
      TensorShape([Dimension(3), Dimension(2)])
    """
    with name_scope(None, "split"):
        value = convert_to_tensor(seed)
        low, high = np.iinfo(value.dtype.numpy).min, np.iinfo(value.dtype.numpy).max
        bounds = [np.array(bound, value.dtype.numpy) for bound in (low, high)]
        return out("StatelessRandomUniformInt", [np.array([num, 2], np.int32), value, *bounds])


def stateless_fold_in(seed: Any, data: Any, alg: str = "auto_select") -> Output:
    """Return a seed derived from a seed and a number, such as a step.

    Args:
      seed: int32 or int64, shape (2,).
      data: int32 or int64, rank 0.
      alg: no effect, because there is only one algorithm.
    Returns: the dtype of `seed`, shape (2,).

    Examples:
      >>> wf.random.experimental.stateless_fold_in([1, 2], 3).shape
      TensorShape([Dimension(2)])
    """
    with name_scope(None, "fold_in"):
        value = convert_to_tensor(seed)
        number = out("Cast", [data], {"DstT": value.dtype.base_dtype})
        first = stateless_split(value, 1)[0, 0]
        return stateless_split(out("Pack", [[first, number]]), 1)[0]


def stateless_shuffle(
    value: Any, seed: Any, alg: str = "auto_select", name: str | None = None
) -> Output:
    """Return the slices along the first axis in an order that depends on `seed`.

    Args:
      value: any type, rank at least 1.
      seed: int32 or int64, shape (2,).
      alg: no effect, because there is only one algorithm.
    Returns: shape and dtype of `value`.

    Examples:
      >>> shuffled = wf.random.experimental.stateless_shuffle([1, 2, 3], seed=[1, 2])
      >>> sorted(wf.Session().run(shuffled).tolist())
      [1, 2, 3]
    """
    with name_scope(name, "stateless_shuffle") as scope:
        tensor = convert_to_tensor(value)
        shape_rules.with_rank_at_least(tensor.dims, 1, "value")
        count = out("Shape", [tensor])[:1]
        keys = out("StatelessRandomUniform", [count, seed], {"dtype": dtypes.float64})
        order = out("TopKV2", [keys, count[0]]).node.outputs[1]
        return out("GatherV2", [tensor, order, 0], name=scope)

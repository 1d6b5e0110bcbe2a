"""Random numbers with their state in a variable, and permutations of indices.

The state is three int64 numbers: a 128-bit counter, low half first, and the key. An op reads the
state and advances it by the numbers that it generates, so that streams never overlap.
"""

from __future__ import annotations

__all__ = ["random_index_shuffle"]

from collections.abc import Sequence
from typing import Any

from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.node import Output
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.traits import WRITES, Traits
from weft_graph.ops import shape_rules
from weft_tensor import errors
from weft_tensor.shape import Dims, broadcast_dims

STATE_SIZE = 3


def _samples_shape(node: NodeSpec) -> Sequence[Dims]:
    shape_rules.with_rank(node.inputs[1].dims, 0, "algorithm")
    return (shape_rules.vector_as_dims(node.inputs[2], "shape"),)


def _uniform_shape(node: NodeSpec) -> Sequence[Dims]:
    shape_rules.with_rank(node.inputs[3].dims, 0, "minval")
    shape_rules.with_rank(node.inputs[4].dims, 0, "maxval")
    return _samples_shape(node)


def _skip_shape(node: NodeSpec) -> Sequence[Dims]:
    shape_rules.with_rank(node.inputs[1].dims, 0, "algorithm")
    shape_rules.with_rank(node.inputs[2].dims, 0, "delta")
    return ()


def _read_and_skipped(node: NodeSpec) -> Sequence[Dims]:
    _skip_shape(node)
    return ((STATE_SIZE,),)


def _shuffle_shape(node: NodeSpec) -> Sequence[Dims]:
    index, seed, largest = (value.dims for value in node.inputs)
    inner = shape_rules.with_rank_at_least(seed, 1, "seed")
    if inner is not None:
        shape_rules.merge_size(inner[-1], 3, "the size of seed and 3")
        inner = inner[:-1]
    return (broadcast_dims(broadcast_dims(index, inner), largest),)


_SHAPE = "shape: shape_dtype"
_SHAPE_TYPE = {"shape_dtype": "{index_type} = int64"}
_STATE = ("resource: resource", "algorithm: int64", _SHAPE)
_FLOATS = {"dtype": "{floating} = float32"} | _SHAPE_TYPE
_INTEGERS = "{int32, int64, uint32, uint64}"
_NUMBER = "{float16, float32, float64, int32, int64}"

for _op, _inputs, _attrs, _doc in (
    ("StatefulUniform", _STATE, _FLOATS, "Uniform numbers in [0, 1)."),
    ("StatefulStandardNormalV2", _STATE, _FLOATS, "Standard normal numbers."),
    (
        "StatefulTruncatedNormal",
        _STATE,
        _FLOATS,
        "Standard normal numbers, with those beyond 2 redrawn.",
    ),
    (
        "StatefulUniformInt",
        (*_STATE, "minval: dtype", "maxval: dtype"),
        {"dtype": f"{_INTEGERS} = int64"} | _SHAPE_TYPE,
        "Uniform integers in [minval, maxval).",
    ),
    (
        "StatefulUniformFullInt",
        _STATE,
        {"dtype": f"{_INTEGERS} = uint64"} | _SHAPE_TYPE,
        "Uniform integers of the whole range of their type.",
    ),
    (
        "StatefulRandomBinomial",
        ("resource: resource", "algorithm: int64", "shape: S", "counts: T", "probs: T"),
        {"S": "{index_type}", "T": f"{_NUMBER} = float64", "dtype": f"{_NUMBER} = int64"},
        "Binomially distributed numbers.",
    ),
):
    _rule = _uniform_shape if _op == "StatefulUniformInt" else _samples_shape
    register_op(_op, _inputs, ("output: dtype",), _attrs, _rule, traits=WRITES, doc=_doc)
register_op(
    "RngSkip",
    ("resource: resource", "algorithm: int64", "delta: int64"),
    (),
    {},
    _skip_shape,
    traits=WRITES,
    doc="Advances the state as if delta numbers were generated.",
)
register_op(
    "RngReadAndSkip",
    ("resource: resource", "alg: int32", "delta: uint64"),
    ("value: int64",),
    {},
    _read_and_skipped,
    traits=WRITES,
    doc="Advances the state as if delta numbers were generated, and returns the previous state.",
)
register_op(
    "NonDeterministicInts",
    ("shape: shape_dtype",),
    ("output: dtype",),
    {"dtype": f"{_INTEGERS} = int64"} | _SHAPE_TYPE,
    lambda node: (shape_rules.vector_as_dims(node.inputs[0], "shape"),),
    traits=WRITES,
    doc="Random integers from the system's entropy, which differ in each run.",
)
register_op(
    "RandomIndexShuffle",
    ("index: dtype", "seed: Tseed", "max_index: dtype"),
    ("output: dtype",),
    {"rounds": "int = 4", "dtype": _INTEGERS, "Tseed": _INTEGERS},
    _shuffle_shape,
    traits=Traits(differentiable=False),
    doc="The position of index in a permutation of 0 .. max_index determined by the seed.",
)


def random_index_shuffle(
    index: Any, seed: Any, max_index: Any, rounds: int = 4, name: str | None = None
) -> Output:
    """Return the position of `index` in a random permutation of 0 .. `max_index`.

    The permutation is not materialized.

    Args:
      index: int32, int64, uint32 or uint64, from 0 to `max_index`.
      seed: integers of these types, shape (..., 3); each seed has a separate permutation.
      max_index: the largest index, of the type of `index`; the shapes of `index`, `seed` without
        its last axis, and `max_index` broadcast.
      rounds: number of mixing rounds; even, at least 4.
    Returns: the dtype of `index`, the broadcast shape.
    Raises: InvalidArgumentError: `rounds` is odd or below 4.

    Examples:
      >>> places = wf.random_index_shuffle(list(range(5)), [1, 2, 3], 4)
      >>> sorted(wf.Session().run(places).tolist())
      [0, 1, 2, 3, 4]
    """
    return _shuffle(index, seed, max_index, rounds, name)


def index_shuffle(index: Any, seed: Any, max_index: Any) -> Output:
    """Apply `random_index_shuffle` with 4 rounds.

    Args:
      index, seed, max_index: as in `random_index_shuffle`.
    Returns: the position of `index`.

    Examples:
      >>> places = wf.random.experimental.index_shuffle(list(range(5)), [1, 2, 3], 4)
      >>> sorted(wf.Session().run(places).tolist())
      [0, 1, 2, 3, 4]
    """
    return _shuffle(index, seed, max_index, 4, None)


def _shuffle(index: Any, seed: Any, max_index: Any, rounds: int, name: str | None) -> Output:
    if rounds < 4 or rounds % 2:
        raise errors.InvalidArgumentError(f"rounds must be even and at least 4, got {rounds}")
    value = convert_to_tensor(index)
    largest = convert_to_tensor(max_index, value.dtype.base_dtype)
    return out("RandomIndexShuffle", [value, seed, largest], {"rounds": rounds}, name)

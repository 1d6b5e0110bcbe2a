"""Candidate samplers: random classes to contrast with the true classes."""

from __future__ import annotations

__all__ = [
    "all_candidate_sampler",
    "fixed_unigram_candidate_sampler",
    "learned_unigram_candidate_sampler",
    "log_uniform_candidate_sampler",
    "uniform_candidate_sampler",
]

from collections.abc import Sequence
from typing import Any, NamedTuple

from weft_graph.ir.builder import create
from weft_graph.ir.node import Output
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.random_seed import get_seed
from weft_graph.ir.traits import NOT_DIFFERENTIABLE, Traits
from weft_graph.ops.shape_rules import merge_size, with_rank
from weft_tensor import errors
from weft_tensor.shape import Dims

# ------------------------------------------------------------------------ declarations


def _sampler_shape(node: NodeSpec) -> Sequence[Dims]:
    attrs = node.attrs
    batch, true = with_rank(node.inputs[0].dims, 2, "true_classes")
    true = merge_size(true, attrs["num_true"], "the columns of true_classes and num_true")
    count = attrs["num_sampled"]
    limit = attrs.get("range_max")
    if attrs["unique"] and limit is not None and count > limit:
        raise errors.InvalidArgumentError(
            f"cannot sample {count} distinct classes from a range of {limit}"
        )
    return ((count,), (batch, true), (count,))


def _hits_shape(node: NodeSpec) -> Sequence[Dims]:
    _, true = with_rank(node.inputs[0].dims, 2, "true_classes")
    merge_size(true, node.attrs["num_true"], "the columns of true_classes and num_true")
    with_rank(node.inputs[1].dims, 1, "sampled_candidates")
    return ((None,), (None,), (None,))


_SEEDS = {"seed": "int = 0", "seed2": "int = 0"}
_COUNTS = {"num_true": "int >= 1", "num_sampled": "int >= 1", "unique": "bool"}
_RANGE = {**_COUNTS, "range_max": "int >= 1", **_SEEDS}
_FIXED = {
    **_RANGE,
    "vocab_file": "string = ''",
    "distortion": "float = 1.0",
    "num_reserved_ids": "int = 0",
    "num_shards": "int >= 1 = 1",
    "shard": "int >= 0 = 0",
    "unigrams": "list(float) = []",
}

for _op, _attrs, _doc in (
    ("UniformCandidateSampler", _RANGE, "Classes sampled uniformly."),
    (
        "LogUniformCandidateSampler",
        _RANGE,
        "Classes k sampled in proportion to log((k + 2) / (k + 1)).",
    ),
    (
        "LearnedUnigramCandidateSampler",
        _RANGE,
        "Classes sampled by past frequency.",
    ),
    ("FixedUnigramCandidateSampler", _FIXED, "Classes sampled in proportion to counts."),
    ("AllCandidateSampler", {**_COUNTS, **_SEEDS}, "All classes, in order."),
):
    register_op(
        _op,
        ("true_classes: int64",),
        (
            "sampled_candidates: int64",
            "true_expected_count: float32",
            "sampled_expected_count: float32",
        ),
        _attrs,
        _sampler_shape,
        traits=Traits(random=True, differentiable=False, reads_files="vocab_file" in _attrs),
        doc=_doc,
    )
register_op(
    "ComputeAccidentalHits",
    ("true_classes: int64", "sampled_candidates: int64"),
    ("indices: int32", "ids: int64", "weights: float32"),
    {"num_true": "int", **_SEEDS},
    _hits_shape,
    traits=NOT_DIFFERENTIABLE,
    doc="The sampled classes that are true classes: row, index among the samples, and -FLT_MAX.",
)

# --------------------------------------------------------------------------- functions


class Candidates(NamedTuple):
    """The result of a candidate sampler.

    Attributes:
      sampled_candidates: int64, shape (num_sampled,).
      true_expected_count: float32, shape (N, num_true): expected count of each true class among the
        samples.
      sampled_expected_count: float32, shape (num_sampled,).
    """

    sampled_candidates: Output
    true_expected_count: Output
    sampled_expected_count: Output


def _sample(
    op: str, true_classes: Any, seed: int | None, name: str | None, **attrs: Any
) -> Candidates:
    first, second = get_seed(seed)
    attrs |= {"seed": first or 0, "seed2": second or 0}
    return Candidates(*create(op, [true_classes], attrs, name).outputs)


def uniform_candidate_sampler(
    true_classes: Any,
    num_true: int,
    num_sampled: int,
    unique: bool,
    range_max: int,
    seed: int | None = None,
    name: str | None = None,
) -> Candidates:
    """Sample classes uniformly from [0, range_max).

    Args:
      true_classes: int64, shape (N, num_true).
      num_sampled: number of classes to sample.
      unique: sample distinct classes.
      seed: seed of this op.
    Raises: InvalidArgumentError: `num_sampled` exceeds the number of classes with `unique`.

    Examples:
      >>> true = wf.constant([[0]], wf.int64)
      >>> sampled = wf.nn.uniform_candidate_sampler(true, 1, 3, unique=True, range_max=3)
      >>> np.sort(wf.Session().run(sampled.sampled_candidates))
      array([0, 1, 2])
    """
    return _sample(
        "UniformCandidateSampler",
        true_classes,
        seed,
        name,
        num_true=num_true,
        num_sampled=num_sampled,
        unique=unique,
        range_max=range_max,
    )


def log_uniform_candidate_sampler(
    true_classes: Any,
    num_true: int,
    num_sampled: int,
    unique: bool,
    range_max: int,
    seed: int | None = None,
    name: str | None = None,
) -> Candidates:
    """Sample class k with probability log((k + 2) / (k + 1)) / log(range_max + 1).

    This approximates the frequencies of words that are sorted by frequency.

    Args:
      true_classes, num_true, num_sampled, unique, range_max, seed: as for
        `uniform_candidate_sampler`.
    Raises: InvalidArgumentError: `num_sampled` exceeds the number of classes with `unique`.

    Examples:
      >>> true = wf.constant([[0]], wf.int64)
      >>> sampled = wf.nn.log_uniform_candidate_sampler(true, 1, 3, unique=True, range_max=3)
      >>> np.sort(wf.Session().run(sampled.sampled_candidates))
      array([0, 1, 2])
    """
    return _sample(
        "LogUniformCandidateSampler",
        true_classes,
        seed,
        name,
        num_true=num_true,
        num_sampled=num_sampled,
        unique=unique,
        range_max=range_max,
    )


def learned_unigram_candidate_sampler(
    true_classes: Any,
    num_true: int,
    num_sampled: int,
    unique: bool,
    range_max: int,
    seed: int | None = None,
    name: str | None = None,
) -> Candidates:
    """Sample classes by their frequencies in the session so far; each count starts at one.

    Args:
      true_classes, num_true, num_sampled, unique, range_max, seed: as for
        `uniform_candidate_sampler`.
    Raises: InvalidArgumentError: `num_sampled` exceeds the number of classes with `unique`.

    Examples:
      >>> true = wf.constant([[0]], wf.int64)
      >>> sampled = wf.nn.learned_unigram_candidate_sampler(true, 1, 3, unique=True, range_max=3)
      >>> np.sort(wf.Session().run(sampled.sampled_candidates))
      array([0, 1, 2])
    """
    return _sample(
        "LearnedUnigramCandidateSampler",
        true_classes,
        seed,
        name,
        num_true=num_true,
        num_sampled=num_sampled,
        unique=unique,
        range_max=range_max,
    )


def fixed_unigram_candidate_sampler(
    true_classes: Any,
    num_true: int,
    num_sampled: int,
    unique: bool,
    range_max: int,
    vocab_file: str = "",
    distortion: float = 1.0,
    num_reserved_ids: int = 0,
    num_shards: int = 1,
    shard: int = 0,
    unigrams: Sequence[float] = (),
    seed: int | None = None,
    name: str | None = None,
) -> Candidates:
    """Sample classes in proportion to counts raised to a power.

    Args:
      true_classes, num_true, num_sampled, unique, range_max, seed: as for
        `uniform_candidate_sampler`.
      vocab_file: a CSV file whose last column has the counts, in the order of classes.
      distortion: the power.
      num_reserved_ids: number of first classes that have no counts and are not sampled.
      num_shards, shard: sample only classes k with k mod num_shards == shard.
      unigrams: the counts, if not in a file.
    Raises: InvalidArgumentError: `vocab_file` and `unigrams` are both passed or both missing, or
      the shard is out of range.

    Examples:
      >>> true = wf.constant([[0]], wf.int64)
      >>> sampled = wf.nn.fixed_unigram_candidate_sampler(
      ...     true, 1, num_sampled=2, unique=False, range_max=3, unigrams=[0.0, 0.0, 1.0]
      ... )
      >>> wf.Session().run(sampled.sampled_candidates)
      array([2, 2])
    """
    if bool(vocab_file) == bool(list(unigrams)):
        raise errors.InvalidArgumentError(
            "fixed_unigram_candidate_sampler requires one of vocab_file and unigrams"
        )
    if not 0 <= shard < num_shards:
        raise errors.InvalidArgumentError(f"shard must be in [0, {num_shards}), got {shard}")
    return _sample(
        "FixedUnigramCandidateSampler",
        true_classes,
        seed,
        name,
        num_true=num_true,
        num_sampled=num_sampled,
        unique=unique,
        range_max=range_max,
        vocab_file=vocab_file,
        distortion=distortion,
        num_reserved_ids=num_reserved_ids,
        num_shards=num_shards,
        shard=shard,
        unigrams=list(unigrams),
    )


def all_candidate_sampler(
    true_classes: Any,
    num_true: int,
    num_sampled: int,
    unique: bool,
    seed: int | None = None,
    name: str | None = None,
) -> Candidates:
    """Return all classes in [0, num_sampled), for debugging.

    Args:
      true_classes, num_true, unique, seed: as for `uniform_candidate_sampler`.
      num_sampled: the number of classes.

    Examples:
      >>> true = wf.constant([[0]], wf.int64)
      >>> sampled = wf.nn.all_candidate_sampler(true, num_true=1, num_sampled=3, unique=True)
      >>> np.sort(wf.Session().run(sampled.sampled_candidates))
      array([0, 1, 2])
    """
    return _sample(
        "AllCandidateSampler",
        true_classes,
        seed,
        name,
        num_true=num_true,
        num_sampled=num_sampled,
        unique=unique,
    )


class AccidentalHits(NamedTuple):
    """Matches of sampled classes with true ones; see `compute_accidental_hits`."""

    indices: Output
    ids: Output
    weights: Output


def compute_accidental_hits(
    true_classes: Any,
    sampled_candidates: Any,
    num_true: int,
    seed: int | None = None,
    name: str | None = None,
) -> AccidentalHits:
    """Return the sampled classes that are true classes.

    Args:
      true_classes: int64, shape (N, num_true).
      sampled_candidates: int64, shape (S,).
    Returns: per hit, the row (int32), the index among the samples (int64), and the most negative
      float32, which disables a logit when added to it.

    Examples:
      >>> true, sampled = wf.constant([[0], [2]], wf.int64), wf.constant([2, 5], wf.int64)
      >>> rows, positions, _ = wf.nn.compute_accidental_hits(true, sampled, num_true=1)
      >>> wf.Session().run([rows, positions])
      [array([1], dtype=int32), array([0])]
    """
    first, second = get_seed(seed)
    attrs = {"num_true": num_true, "seed": first or 0, "seed2": second or 0}
    node = create("ComputeAccidentalHits", [true_classes, sampled_candidates], attrs, name)
    return AccidentalHits(*node.outputs)

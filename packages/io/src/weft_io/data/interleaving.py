"""Datasets that interleave other datasets, by index or at random."""

from __future__ import annotations

__all__ = [
    "Counter",
    "RandomDataset",
    "choose_from_datasets",
    "rejection_resample",
    "sample_from_datasets",
]

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from weft_graph.ir import nest
from weft_graph.ir.builder import convert_to_tensor
from weft_graph.ir.node import Output
from weft_graph.ops.casting import cast
from weft_graph.ops.comparison import greater_equal, less
from weft_graph.ops.control_flow import broader_dims
from weft_graph.ops.division import div_no_nan
from weft_graph.ops.gather import gather
from weft_graph.ops.reduction import cumsum, reduce_max, reduce_sum
from weft_graph.ops.segments import unsorted_segment_sum
from weft_graph.ops.shapes import size
from weft_io import arguments
from weft_io.data import specs
from weft_io.data.dataset import Dataset
from weft_io.data.dataset_methods import seeds
from weft_tensor import dtypes, errors

_SCALE = 2.0**-32


class RandomDataset(Dataset):
    """Random integers in [0, 2³²), without an end: int64, shape ().

    Args:
      seed: seed of the numbers; it is combined with the graph's seed as for random operations.

    Examples:
      >>> numbers = wf.data.experimental.RandomDataset(seed=1).batch(3)
      >>> wf.Session().run(numbers.make_one_shot_iterator().get_next()).shape
      (3,)
    """

    def __init__(self, seed: Any = None) -> None:
        form = specs.Spec(dtypes.int64, ())
        result = Dataset._create("RandomDataset", seeds(seed), specs.attrs_of(form), form)
        super().__init__(result._variant_tensor, form)


def _uniform(seed: Any) -> Dataset:
    """Return a dataset of numbers in [0, 1), with a saved position: float64, shape ()."""
    return RandomDataset(seed).map(lambda bits: cast(bits, dtypes.float64) * _SCALE)


def Counter(  # noqa: N802 (TensorFlow's name)
    start: Any = 0, step: Any = 1, dtype: Any = dtypes.int64
) -> Dataset:
    """Return a dataset of numbers without an end: `start`, `start` + `step`, ...

    Args:
      start, step: numbers, shape ().
      dtype: element type.

    Examples:
      >>> odd = wf.data.experimental.Counter(1, 2).batch(3)
      >>> wf.Session().run(odd.make_one_shot_iterator().get_next())
      array([1, 3, 5])
    """
    kind = dtypes.as_dtype(dtype)
    first = arguments.scalar(start, kind, "start")
    distance = arguments.scalar(step, kind, "step")
    return Dataset.from_tensors(0).repeat().scan(first, lambda value, _: (value + distance, value))


# ---------------------------------------------------------------------------- choosing


def choose_from_datasets(
    datasets: Sequence[Dataset], choice_dataset: Dataset, stop_on_empty_dataset: bool = False
) -> Dataset:
    """Select each element from the dataset that the next index names.

    Args:
      datasets: datasets whose elements have the same structure and types.
      choice_dataset: dataset of indices: int64, shape (). Indices of datasets that are at their end
        are skipped.
      stop_on_empty_dataset: end when a selected dataset is at its end.
    Raises: InvalidTypeError: structures or types differ, or `choice_dataset` does not contain int64
      scalars.

    Examples:
      >>> letters = [wf.data.Dataset.from_tensors(x).repeat() for x in "ab"]
      >>> numbers = wf.data.Dataset.from_tensor_slices(wf.constant([0, 1, 1], wf.int64))
      >>> chosen = wf.data.experimental.choose_from_datasets(letters, numbers).batch(9)
      >>> wf.Session().run(chosen.make_one_shot_iterator().get_next())
      array([b'a', b'b', b'b'], dtype=object)
    """
    inner = _datasets(datasets)
    spec = choice_dataset._element if isinstance(choice_dataset, Dataset) else choice_dataset
    if not isinstance(spec, specs.Spec) or spec.dtype is not dtypes.int64 or spec.dims:
        raise errors.InvalidTypeError(
            f"`choice_dataset` must be a dataset of scalar int64 tensors, got {choice_dataset!r}"
        )
    return _make_directed_interleave(choice_dataset, inner, stop_on_empty_dataset)


def _datasets(datasets: Any) -> list[Dataset]:
    result = arguments.to_list(datasets, "datasets")
    if not result:
        raise errors.InvalidArgumentError("`datasets` must be a non-empty list of datasets")
    for item in result:
        if not isinstance(item, Dataset):
            raise errors.InvalidTypeError(f"a Dataset is required, got {item!r}")
        specs.check_same_types(result[0]._element, item._element, "the elements of all datasets")
    return result


def _make_directed_interleave(selector: Dataset, inner: Sequence[Dataset], stop: bool) -> Dataset:
    form = reduce(
        lambda a, b: nest.map_structure(
            lambda x, y: x.with_dims(broader_dims(x.dims, y.dims)), a, b
        ),
        [item._element for item in inner],
    )
    inputs = [selector._variant_tensor, [item._variant_tensor for item in inner]]
    attrs = {**specs.attrs_of(form), "stop_on_empty_dataset": stop}
    result = Dataset._create("DirectedInterleaveDataset", inputs, attrs, form)
    for item in inner:
        result._options = result._options.merge(item._options)
    return result


def sample_from_datasets(
    datasets: Sequence[Dataset],
    weights: Any = None,
    seed: Any = None,
    stop_on_empty_dataset: bool = False,
) -> Dataset:
    """Draw each element from a randomly chosen dataset.

    Args:
      datasets: datasets whose elements have the same structure and types.
      weights: relative probability of each dataset: floating, shape (n,), or a dataset of such
        tensors; equal by default. The sum need not be 1.
      seed: seed of the draws.
      stop_on_empty_dataset: end when a selected dataset is at its end.
    Raises: InvalidArgumentError: the numbers of weights and datasets differ.

    Examples:
      >>> ones, twos = (wf.data.Dataset.from_tensors(n).repeat() for n in (1, 2))
      >>> mixed = wf.data.experimental.sample_from_datasets([ones, twos], weights=[1.0, 0.0])
      >>> wf.Session().run(mixed.batch(4).make_one_shot_iterator().get_next())
      array([1, 1, 1, 1], dtype=int32)
    """
    inner = _datasets(datasets)
    if isinstance(weights, Dataset):
        pairs = Dataset.zip((_uniform(seed), weights))
        return _make_directed_interleave(pairs.map(_draw_samples), inner, stop_on_empty_dataset)
    probabilities = [1.0] * len(inner) if weights is None else weights
    chances = convert_to_tensor(probabilities)
    if not chances.dtype.is_floating:
        raise errors.InvalidTypeError(f"`weights` must be floating, got {chances.dtype.name}")
    if chances.dims not in (None, (None,), (len(inner),)):
        raise errors.InvalidArgumentError(
            f"`weights` must have shape [{len(inner)}], one for each dataset, got "
            f"{list(chances.dims or ())}"
        )
    draws = _uniform(seed).map(lambda chance: _draw_samples(chance, chances))
    return _make_directed_interleave(draws, inner, stop_on_empty_dataset)


def _draw_samples(chance: Output, weights: Output) -> Output:
    """Return the index that a uniform number in [0, 1) selects by relative weights."""
    ends = cumsum(cast(weights, dtypes.float64))
    reached = greater_equal(chance * reduce_max(ends), ends)
    return reduce_sum(cast(reached, dtypes.int64))


def rejection_resample(
    class_func: Callable[..., Any], target_dist: Any, initial_dist: Any = None, seed: Any = None
) -> Callable[[Dataset], Dataset]:
    """Drop elements at random, so that the classes have a target distribution.

    Args:
      class_func: from an element to its class: int32 or int64, shape ().
      target_dist: target probability of each class: floating, shape (n,).
      initial_dist: initial probability of each class; by default estimated from the elements so
        far.
      seed: seed of the draws.
    Returns: a function for `Dataset.apply`, which returns a dataset of pairs (class, element).

    Examples:
      >>> resample = wf.data.experimental.rejection_resample(
      ...     lambda n: n % 2, target_dist=[1.0, 0.0], initial_dist=[0.5, 0.5]
      ... )
      >>> pairs = wf.data.Dataset.range(6).apply(resample)
      >>> even = pairs.map(lambda kind, n: n).batch(9).make_one_shot_iterator().get_next()
      >>> wf.Session().run(even)
      array([0, 2, 4])
    """

    def apply(dataset: Dataset) -> Dataset:
        target = cast(convert_to_tensor(target_dist), dtypes.float64)
        sampled = Dataset.zip((dataset.map(class_func), _uniform(seed), dataset))
        if initial_dist is None:
            estimated = _add_estimates(sampled, target)
        else:
            initial = cast(convert_to_tensor(initial_dist), dtypes.float64)
            estimated = sampled.map(lambda kind, chance, element: (kind, chance, element, initial))

        def is_accepted(kind: Output, chance: Output, element: Any, initial: Output) -> Output:
            ratio = div_no_nan(target, initial)
            return less(chance, gather(ratio, kind) / reduce_max(ratio))

        return estimated.filter(is_accepted).map(
            lambda kind, chance, element, initial: (kind, element)
        )

    return apply


def _add_estimates(dataset: Dataset, target: Output) -> Dataset:
    """Pair each element with the class frequencies so far, and return each pair twice."""

    def update_counts(counts: Output, element: Any) -> Any:
        kind, chance, value = element
        classes = size(target)
        counts = counts + unsorted_segment_sum(
            convert_to_tensor([1.0], dtypes.float64), [cast(kind, dtypes.int32)], classes
        )
        return counts, (kind, chance, value, counts / reduce_sum(counts))

    return dataset.scan(target * 0.0 + 1.0, update_counts)

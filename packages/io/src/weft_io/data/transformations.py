"""Transformations for `Dataset.apply`, and queries of datasets."""

from __future__ import annotations

__all__ = [
    "assert_cardinality",
    "cardinality",
    "copy_to_device",
    "enumerate_dataset",
    "from_variant",
    "get_single_element",
    "ignore_errors",
    "map_and_batch",
    "map_and_batch_with_legacy_function",
    "pad_to_cardinality",
    "parallel_interleave",
    "prefetch_to_device",
    "scan",
    "shuffle_and_repeat",
    "take_while",
    "to_variant",
    "unbatch",
    "unique",
]

from collections.abc import Callable, Mapping
from typing import Any

from weft_graph.ir.builder import create, out
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.device_spec import DeviceSpec
from weft_graph.ir.node import Output
from weft_graph.ops.array import zeros
from weft_graph.ops.comparison import greater_equal, less_equal
from weft_graph.ops.control import Assert
from weft_io import arguments
from weft_io.data import specs
from weft_io.data.dataset import Dataset
from weft_io.data.functions import enclosing_graph
from weft_io.streams.prefetching import AUTOTUNE
from weft_tensor import dtypes, errors
from weft_tensor.arguments import check_integer

Transformation = Callable[[Dataset], Dataset]


def _validate(dataset: Any) -> Dataset:
    if not isinstance(dataset, Dataset):
        raise errors.InvalidTypeError(f"a Dataset is required, got {dataset!r}")
    return dataset


# ------------------------------------------------------------------------ asked of datasets


def cardinality(dataset: Dataset) -> Output:
    """Return the number of elements of a dataset, if it is known before iteration.

    Args:
      dataset: any dataset.
    Returns: int64, shape (): INFINITE_CARDINALITY for endless datasets, UNKNOWN_CARDINALITY if it
      is unknown.

    Examples:
      >>> dataset = wf.data.Dataset.range(9).batch(2)
      >>> wf.Session().run(wf.data.experimental.cardinality(dataset))
      np.int64(5)
    """
    return out("DatasetCardinality", [_validate(dataset)._variant_tensor])


def get_single_element(dataset: Dataset) -> Any:
    """Return the only element of a dataset.

    Args:
      dataset: any dataset.
    Returns: a structure of tensors.
    Raises (when it runs): InvalidArgumentError: the dataset is empty, or has several elements.

    Examples:
      >>> one = wf.data.Dataset.range(4).batch(4)
      >>> wf.Session().run(wf.data.experimental.get_single_element(one))
      array([0, 1, 2, 3])
    """
    form = _validate(dataset)._element
    node = create("DatasetToSingleElement", [dataset._variant_tensor], specs.attrs_of(form))
    return specs.rebuild_structure(form, node.outputs)


def to_variant(dataset: Dataset | specs.NestedVariant) -> Output:
    """Return the variant tensor of a dataset, or of a batch of datasets.

    Args:
      dataset: any dataset.
    Returns: variant, shape () for a dataset.

    Examples:
      >>> wf.data.experimental.to_variant(wf.data.Dataset.range(3)).dtype
      weft.variant
    """
    if isinstance(dataset, specs.NestedVariant):
        return dataset._variant_tensor
    return _validate(dataset)._variant_tensor


def from_variant(variant: Output, structure: Any) -> Dataset:
    """Return the dataset of a variant tensor.

    Args:
      variant: variant, shape ().
      structure: the form of the elements: a structure of TensorSpecs or similar specs.

    Examples:
      >>> variant = wf.data.experimental.to_variant(wf.data.Dataset.range(3))
      >>> dataset = wf.data.experimental.from_variant(variant, wf.TensorSpec([], wf.int64))
      >>> wf.Session().run(dataset.batch(3).make_one_shot_iterator().get_next())
      array([0, 1, 2])
    """
    return Dataset(variant, specs.form_like(structure))


# ------------------------------------------------------------------------ transformations


def assert_cardinality(expected_cardinality: Any) -> Transformation:
    """Assert the number of elements of a dataset.

    Args:
      expected_cardinality: int64, shape (), or INFINITE_CARDINALITY.
    Returns: a function for `Dataset.apply`.
    Raises (when it is iterated): FailedPreconditionError: the dataset has another number of
      elements.

    Examples:
      >>> odd = wf.data.Dataset.range(6).filter(lambda n: wf.equal(n % 2, 1))
      >>> three = odd.apply(wf.data.experimental.assert_cardinality(3))
      >>> wf.Session().run(wf.data.experimental.cardinality(three))
      np.int64(3)
    """
    return lambda dataset: dataset._chain(
        "AssertCardinalityDataset",
        arguments.scalar(expected_cardinality, dtypes.int64, "expected_cardinality"),
    )


def enumerate_dataset(start: Any = 0) -> Transformation:
    """Number the elements, as `Dataset.enumerate` does.

    Args:
      start: int64, shape (): the first number.
    Returns: a function for `Dataset.apply`.

    Examples:
      >>> letters = wf.data.Dataset.from_tensor_slices(["a", "b"])
      >>> numbered = letters.apply(wf.data.experimental.enumerate_dataset(5))
      >>> wf.Session().run(numbered.make_one_shot_iterator().get_next())
      (np.int64(5), b'a')
    """
    return lambda dataset: dataset.enumerate(start)


def ignore_errors(log_warning: bool = False) -> Transformation:
    """Skip the elements that fail.

    Args:
      log_warning: log each failure.
    Returns: a function for `Dataset.apply`.

    Examples:
      >>> texts = wf.data.Dataset.from_tensor_slices(["1", "x", "3"])
      >>> numbers = texts.map(lambda text: wf.strings.to_number(text, wf.int32))
      >>> good = numbers.apply(wf.data.experimental.ignore_errors()).batch(3)
      >>> wf.Session().run(good.make_one_shot_iterator().get_next())
      array([1, 3], dtype=int32)
    """
    return lambda dataset: dataset._chain("IgnoreErrorsDataset", log_warning=log_warning)


def map_and_batch(
    map_func: Callable[..., Any],
    batch_size: Any,
    num_parallel_batches: int | None = None,
    drop_remainder: Any = False,
    num_parallel_calls: Any = None,
) -> Transformation:
    """Apply a function and batch the results, like `map` followed by `batch`.

    Args:
      map_func: as for `Dataset.map`.
      batch_size, drop_remainder: as for `Dataset.batch`.
      num_parallel_batches: number of batches computed concurrently; 1 by default.
      num_parallel_calls: number of concurrent calls, as an alternative.
    Returns: a function for `Dataset.apply`.
    Raises: InvalidArgumentError: both of the last two are set.

    Examples:
      >>> squares = wf.data.experimental.map_and_batch(lambda n: n * n, 3)
      >>> batches = wf.data.Dataset.range(6).apply(squares)
      >>> wf.Session().run(batches.make_one_shot_iterator().get_next())
      array([0, 1, 4])
    """
    if num_parallel_batches is not None and num_parallel_calls is not None:
        raise errors.InvalidArgumentError(
            "`map_and_batch` allows only one of `num_parallel_batches` and `num_parallel_calls` "
            "to be set."
        )
    calls = num_parallel_calls
    if calls is None:
        static_size = batch_size if isinstance(batch_size, int) else None
        batches = check_integer(num_parallel_batches or 1, "num_parallel_batches", 1)
        calls = AUTOTUNE if static_size is None else static_size * batches

    def apply(dataset: Dataset) -> Dataset:
        mapped = dataset._map(map_func, calls, preserve_cardinality=True)
        return mapped.batch(batch_size, drop_remainder)

    return apply


map_and_batch_with_legacy_function = map_and_batch


def pad_to_cardinality(cardinality: Any, mask_key: str = "valid") -> Transformation:
    """Append zero elements up to a number of elements, so that all batches are full.

    Args:
      cardinality: int64, shape (): the number of elements.
      mask_key: the key of a bool added to each element, which is False for appended elements.
    Returns: a function for `Dataset.apply`, of datasets of dictionaries of tensors of known shapes.
    Raises: InvalidArgumentError: elements are of another form, or already have that key; when it is
      iterated: the number of elements is unknown, or exceeds `cardinality`.

    Examples:
      >>> dataset = wf.data.Dataset.from_tensor_slices({"x": [1.0, 2.0, 3.0]})
      >>> full = dataset.apply(wf.data.experimental.pad_to_cardinality(4)).batch(4)
      >>> wf.Session().run(full.make_one_shot_iterator().get_next())
      {'x': array([1., 2., 3., 0.], dtype=float32), 'valid': array([ True,  True,  True, False])}
    """

    def apply(dataset: Dataset) -> Dataset:
        form = _validate(dataset)._element
        _check_can_be_padded(form, mask_key)
        with enclosing_graph(dataset._variant_tensor).as_default():
            scalar = arguments.scalar(cardinality, dtypes.int64, "cardinality", 0)
            count = out("DatasetCardinality", [dataset._variant_tensor])
            fits = out("LogicalAnd", [greater_equal(count, 0), less_equal(count, scalar)])
            label = "pad_to_cardinality requires a known number of elements, at most its argument:"
            with get_default_graph().control_dependencies([Assert(fits, [label, scalar, count])]):
                missing = scalar - count
            zero = {key: zeros(spec.dims, spec.dtype) for key, spec in form.items()}
            padding = Dataset.from_tensors({**zero, mask_key: False}).repeat(missing)
        return dataset.map(lambda element: {**element, mask_key: True}).concatenate(padding)

    return apply


def _check_can_be_padded(form: Any, mask_key: str) -> None:
    if not isinstance(form, Mapping) or mask_key in form:
        raise errors.InvalidArgumentError(
            f"pad_to_cardinality requires dictionaries without the key {mask_key!r}, got {form!r}"
        )
    for key, spec in form.items():
        dense = isinstance(spec, specs.Spec) and spec.cls is Output
        if not dense or spec.dims is None or None in spec.dims:
            raise errors.InvalidArgumentError(
                f"pad_to_cardinality requires tensors of known shape, got {spec!r} for {key!r}"
            )


def parallel_interleave(
    map_func: Callable[..., Any],
    cycle_length: Any,
    block_length: Any = 1,
    sloppy: Any = False,
    buffer_output_elements: Any = None,
    prefetch_input_elements: Any = None,
) -> Transformation:
    """Apply a function that returns datasets, and interleave their elements with prefetching.

    Args:
      map_func, cycle_length, block_length: as for `Dataset.interleave`.
      sloppy: accepted for compatibility; the order is always deterministic.
      buffer_output_elements, prefetch_input_elements: accepted for compatibility; a block of each
        dataset is prefetched.
    Returns: a function for `Dataset.apply`.

    Examples:
      >>> turns = wf.data.experimental.parallel_interleave(
      ...     lambda n: wf.data.Dataset.from_tensors(n).repeat(2), cycle_length=2
      ... )
      >>> dataset = wf.data.Dataset.range(2).apply(turns).batch(4)
      >>> wf.Session().run(dataset.make_one_shot_iterator().get_next())
      array([0, 1, 0, 1])
    """
    return lambda dataset: dataset.interleave(map_func, cycle_length, block_length, cycle_length)


def copy_to_device(target_device: str, source_device: str = "/cpu:0") -> Transformation:
    """Return a transformation that leaves the elements unchanged.

    It exists for compatibility: a step copies values to the device that needs them anyway.

    Args:
      target_device, source_device: names of devices.
    Returns: a function for `Dataset.apply`.
    Raises: InvalidArgumentError: a name is malformed.

    Examples:
      >>> dataset = wf.data.Dataset.range(3).apply(wf.data.experimental.copy_to_device("/cpu:0"))
      >>> wf.Session().run(dataset.make_one_shot_iterator().get_next())
      np.int64(0)
    """
    for name in (target_device, source_device):
        DeviceSpec.from_string(name)
    return lambda dataset: dataset


def prefetch_to_device(device: str, buffer_size: Any = None) -> Transformation:
    """Prefetch elements; values are copied to the device that needs them in each step.

    Args:
      device: the name of a device.
      buffer_size: as for `Dataset.prefetch`.
    Returns: a function for `Dataset.apply`.
    Raises: InvalidArgumentError: the name is malformed.

    Examples:
      >>> ahead = wf.data.experimental.prefetch_to_device("/cpu:0", 2)
      >>> dataset = wf.data.Dataset.range(3).apply(ahead)
      >>> wf.Session().run(dataset.make_one_shot_iterator().get_next())
      np.int64(0)
    """
    DeviceSpec.from_string(device)
    return lambda dataset: dataset.prefetch(buffer_size)


def scan(initial_state: Any, scan_func: Callable[[Any, Any], Any]) -> Transformation:
    """Apply a function to a state and each element; it returns the next state and a result.

    Args:
      initial_state, scan_func: as for `Dataset.scan`.
    Returns: a function for `Dataset.apply`.

    Examples:
      >>> sums = wf.data.experimental.scan(wf.constant(0, wf.int64), lambda s, n: (s + n, s + n))
      >>> dataset = wf.data.Dataset.range(4).apply(sums).batch(4)
      >>> wf.Session().run(dataset.make_one_shot_iterator().get_next())
      array([0, 1, 3, 6])
    """
    return lambda dataset: dataset.scan(initial_state, scan_func)


def shuffle_and_repeat(buffer_size: Any, count: Any = None, seed: Any = None) -> Transformation:
    """Shuffle and repeat the elements, in another order each time.

    Args:
      buffer_size, seed: as for `Dataset.shuffle`.
      count: as for `Dataset.repeat`.
    Returns: a function for `Dataset.apply`.

    Examples:
      >>> twice = wf.data.experimental.shuffle_and_repeat(5, count=2)
      >>> dataset = wf.data.Dataset.range(3).apply(twice).batch(9)
      >>> sorted(wf.Session().run(dataset.make_one_shot_iterator().get_next()).tolist())
      [0, 0, 1, 1, 2, 2]
    """
    return lambda dataset: dataset.shuffle(buffer_size, seed).repeat(count)


def take_while(predicate: Callable[..., Any]) -> Transformation:
    """Return the elements before the first for which a function returns False.

    Args:
      predicate: as for `Dataset.take_while`.
    Returns: a function for `Dataset.apply`.

    Examples:
      >>> few = wf.data.Dataset.range(9).apply(wf.data.experimental.take_while(lambda n: n < 2))
      >>> wf.Session().run(few.batch(9).make_one_shot_iterator().get_next())
      array([0, 1])
    """
    return lambda dataset: dataset.take_while(predicate)


def unbatch() -> Transformation:
    """Return the rows of the elements as separate elements.

    Returns: a function for `Dataset.apply`.

    Examples:
      >>> rows = wf.data.Dataset.from_tensors([1, 2]).apply(wf.data.experimental.unbatch())
      >>> wf.Session().run(rows.make_one_shot_iterator().get_next())
      np.int32(1)
    """
    return lambda dataset: dataset.unbatch()


def unique() -> Transformation:
    """Return the distinct elements, in order of first occurrence.

    Returns: a function for `Dataset.apply`.

    Examples:
      >>> numbers = wf.data.Dataset.from_tensor_slices([1, 37, 2, 37, 2, 1])
      >>> each = numbers.apply(wf.data.experimental.unique()).batch(9)
      >>> wf.Session().run(each.make_one_shot_iterator().get_next())
      array([ 1, 37,  2], dtype=int32)
    """
    return lambda dataset: dataset._chain("UniqueDataset")

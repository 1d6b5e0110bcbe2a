"""Dataset transformations that group elements: by key, by length, in sparse batches."""

from __future__ import annotations

__all__ = [
    "Reducer",
    "bucket_by_sequence_length",
    "dense_to_ragged_batch",
    "dense_to_sparse_batch",
    "group_by_reducer",
    "group_by_window",
]

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft_graph.ir import nest
from weft_graph.ir.builder import convert_to_tensor
from weft_graph.ir.indexed_slices import SparseTensor
from weft_graph.ir.node import Output
from weft_graph.ops.casting import cast
from weft_graph.ops.comparison import greater_equal, less
from weft_graph.ops.control import Assert
from weft_graph.ops.gather import gather
from weft_graph.ops.identity import identity
from weft_graph.ops.join import stack
from weft_graph.ops.reduction import reduce_sum
from weft_graph.ragged.tensor import RaggedTensor
from weft_io import arguments
from weft_io.data import specs
from weft_io.data.dataset import Dataset
from weft_io.data.functions import TracedFunction, enclosing_graph, trace_function
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType
from weft_tensor.shape import as_dims

Transformation = Callable[[Dataset], Dataset]
_KEY = specs.Spec(dtypes.int64, ())


def _integer(result: TracedFunction, label: str) -> TracedFunction:
    """Check that a function returns an int64 scalar."""
    spec = result.form
    if not isinstance(spec, specs.Spec) or spec.dtype is not dtypes.int64 or spec.dims:
        raise errors.InvalidTypeError(f"`{label}` must return a single int64 scalar, got {spec!r}")
    return result


def group_by_window(
    key_func: Callable[..., Any],
    reduce_func: Callable[[Any, Dataset], Dataset],
    window_size: Any = None,
    window_size_func: Callable[[Any], Any] | None = None,
) -> Transformation:
    """Group elements by key, and convert each group to a dataset.

    A group is complete when it has `window_size` elements; at the end, the remaining groups are
    returned by key.

    Args:
      key_func: from an element to its key: int64, shape ().
      reduce_func: from a key and the dataset of a group to a dataset.
      window_size: int64, shape (): number of elements of a group.
      window_size_func: function from a key to its `window_size`, as an alternative.
    Returns: a function for `Dataset.apply`.
    Raises: InvalidArgumentError: both or neither of the last two are set.

    Examples:
      >>> by_parity = wf.data.experimental.group_by_window(
      ...     lambda n: n % 2, lambda key, group: group.batch(9), window_size=3
      ... )
      >>> groups = wf.data.Dataset.range(5).apply(by_parity).make_one_shot_iterator().get_next()
      >>> session = wf.Session()
      >>> session.run(groups), session.run(groups)
      (array([0, 2, 4]), array([1, 3]))
    """
    if (window_size is None) == (window_size_func is None):
        raise errors.InvalidArgumentError(
            "pass exactly one of `window_size` and `window_size_func`"
        )

    def size_of(key: Any) -> Any:
        if window_size_func is not None:
            return cast(convert_to_tensor(window_size_func(key)), dtypes.int64)
        return arguments.scalar(window_size, dtypes.int64, "window_size", 1)

    def apply(dataset: Dataset) -> Dataset:
        graph, element = enclosing_graph(dataset._variant_tensor), dataset._element
        key = _integer(
            trace_function(_with_int64_result(key_func), element, graph, "group_by_window"),
            "key_func",
        )
        group = specs.Spec(dtypes.variant, (), Dataset, element)
        reduce = trace_function(reduce_func, (_KEY, group), graph, "group_by_window")
        if not isinstance(reduce.result, Dataset):
            raise errors.InvalidTypeError(
                f"`reduce_func` must return a `Dataset` object, got {reduce.result!r}"
            )
        size = _integer(trace_function(size_of, _KEY, graph, "group_by_window"), "window_size_func")
        return dataset._chain(
            "GroupByWindowDataset",
            key.captured,
            reduce.captured,
            size.captured,
            element=reduce.result._element,
            key_func=key.attr,
            reduce_func=reduce.attr,
            window_size_func=size.attr,
        )

    return apply


def _with_int64_result(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function so that its integer result has type int64."""

    def integer(*element: Any) -> Any:
        result = function(*element)
        if isinstance(result, int | np.integer):
            return convert_to_tensor(result, dtypes.int64)
        if isinstance(result, Output) and result.dtype.is_integer:
            return cast(result, dtypes.int64)
        return result

    return integer


class Reducer:
    """Functions that reduce the elements of a key to one element.

    Args:
      init_func: from a key to the first state.
      reduce_func: from a state and an element to the next state.
      finalize_func: from the last state to an element.

    Examples:
      >>> count = wf.data.experimental.Reducer(
      ...     lambda key: 0, lambda state, element: state + 1, lambda state: state
      ... )
      >>> by_third = wf.data.experimental.group_by_reducer(lambda n: n % 3, count)
      >>> counts = wf.data.Dataset.range(10).apply(by_third).batch(3)
      >>> wf.Session().run(counts.make_one_shot_iterator().get_next())
      array([4, 3, 3], dtype=int32)
    """

    def __init__(
        self,
        init_func: Callable[[Any], Any],
        reduce_func: Callable[[Any, Any], Any],
        finalize_func: Callable[..., Any],
    ) -> None:
        self._init_func = init_func
        self._reduce_func = reduce_func
        self._finalize_func = finalize_func

    @property
    def init_func(self) -> Callable[[Any], Any]:
        """The function from a key to the first state."""
        return self._init_func

    @property
    def reduce_func(self) -> Callable[[Any, Any], Any]:
        """The function from a state and an element to the next state."""
        return self._reduce_func

    @property
    def finalize_func(self) -> Callable[..., Any]:
        """The function from the last state to an element."""
        return self._finalize_func


def group_by_reducer(key_func: Callable[..., Any], reducer: Reducer) -> Transformation:
    """Reduce the elements of each key to one element, in the order of the keys.

    Args:
      key_func: from an element to its key: int64, shape ().
      reducer: a `Reducer`.
    Returns: a function for `Dataset.apply`.
    Raises: InvalidTypeError: `reducer` is not a Reducer, or its states differ in form.

    Examples:
      >>> total = wf.data.experimental.Reducer(
      ...     lambda key: wf.constant(0, wf.int64), lambda state, n: state + n, lambda state: state
      ... )
      >>> sums = wf.data.experimental.group_by_reducer(lambda n: n % 2, total)
      >>> totals = wf.data.Dataset.range(6).apply(sums).batch(2)
      >>> wf.Session().run(totals.make_one_shot_iterator().get_next())
      array([6, 9])
    """
    if not isinstance(reducer, Reducer):
        raise errors.InvalidTypeError(f"a Reducer is required, got {reducer!r}")

    def apply(dataset: Dataset) -> Dataset:
        graph, element = enclosing_graph(dataset._variant_tensor), dataset._element
        kind = "group_by_reducer"
        key = _integer(
            trace_function(_with_int64_result(key_func), element, graph, kind), "key_func"
        )
        begin = trace_function(reducer.init_func, _KEY, graph, kind)
        reduce, form = specs.trace_until_stable(
            lambda state: trace_function(reducer.reduce_func, (state, element), graph, kind),
            begin.form,
            lambda result: result,
        )
        finish = trace_function(reducer.finalize_func, form, graph, kind)
        return dataset._chain(
            "GroupByReducerDataset",
            key.captured,
            begin.captured,
            reduce.captured,
            finish.captured,
            element=finish.form,
            key_func=key.attr,
            init_func=begin.attr,
            reduce_func=reduce.attr,
            finalize_func=finish.attr,
        )

    return apply


def bucket_by_sequence_length(
    element_length_func: Callable[..., Any],
    bucket_boundaries: Sequence[int],
    bucket_batch_sizes: Sequence[int],
    padded_shapes: Any = None,
    padding_values: Any = None,
    pad_to_bucket_boundary: bool = False,
    no_padding: bool = False,
    drop_remainder: bool = False,
) -> Transformation:
    """Return padded batches of elements with similar lengths.

    Args:
      element_length_func: from an element to its length: an integer, shape ().
      bucket_boundaries: ascending lengths at which buckets begin; an additional first bucket has
        all smaller lengths.
      bucket_batch_sizes: the batch size of each bucket: one more than there are boundaries.
      padded_shapes: as for `padded_batch`; the shapes of the elements by default.
      padding_values: as for `padded_batch`.
      pad_to_bucket_boundary: pad unknown sizes to the greatest length of the bucket; elements of
        the last bucket are then an error.
      no_padding: stack elements of the same shape.
      drop_remainder: drop smaller batches.
    Returns: a function for `Dataset.apply`.
    Raises: InvalidArgumentError: the numbers of boundaries and sizes do not match.

    Examples:
      >>> rows = wf.data.Dataset.range(1, 6).map(lambda n: wf.fill([n], n))
      >>> buckets = wf.data.experimental.bucket_by_sequence_length(
      ...     lambda row: wf.size(row), bucket_boundaries=[3], bucket_batch_sizes=[2, 3]
      ... )
      >>> batch = rows.apply(buckets).make_one_shot_iterator().get_next()
      >>> wf.Session().run(batch)
      array([[1, 0],
             [2, 2]])
    """
    bounds, sizes = list(bucket_boundaries), list(bucket_batch_sizes)
    if len(sizes) != len(bounds) + 1:
        raise errors.InvalidArgumentError(
            "len(bucket_batch_sizes) must equal len(bucket_boundaries) + 1, got "
            f"{len(sizes)} and {len(bounds)}"
        )

    def bucket_of(*element: Any) -> Any:
        length = cast(convert_to_tensor(element_length_func(*element)), dtypes.int64)
        reached = greater_equal(length, convert_to_tensor(bounds, dtypes.int64))
        return reduce_sum(cast(reached, dtypes.int64))

    def size_of(bucket: Any) -> Any:
        return gather(convert_to_tensor(sizes, dtypes.int64), bucket)

    def batch(bucket: Any, group: Dataset) -> Dataset:
        if no_padding:
            return group.batch(size_of(bucket), drop_remainder=drop_remainder)
        shapes = group.output_shapes if padded_shapes is None else padded_shapes
        if pad_to_bucket_boundary:
            largest = _largest_of(bucket, bounds)
            flat = nest.flatten_up_to(group._element, shapes, check_types=False)
            filled = [_fill(shape, largest) for shape in flat]
            shapes = nest.pack_sequence_as(group._element, filled)
        return group.padded_batch(size_of(bucket), shapes, padding_values, drop_remainder)

    return group_by_window(bucket_of, batch, window_size_func=size_of)


def _largest_of(bucket: Output, bounds: Sequence[int]) -> Output:
    """Return the largest length of a bucket."""
    message = (
        "When pad_to_bucket_boundary=True, elements must have length < max(bucket_boundaries)."
    )
    check = Assert(less(bucket, len(bounds)), [message])
    with bucket.graph.control_dependencies([check]):
        index = identity(bucket)
    return gather(convert_to_tensor([n - 1 for n in bounds], dtypes.int64), index)


def _fill(shape: Any, largest: Output) -> Any:
    dims = as_dims(shape)
    if dims is None:
        raise errors.InvalidArgumentError(
            "pad_to_bucket_boundary requires shapes of known rank, got <unknown>"
        )
    sizes = [largest if n is None else convert_to_tensor(n, dtypes.int64) for n in dims]
    return stack(sizes) if sizes else []


def dense_to_sparse_batch(batch_size: Any, row_shape: Any) -> Transformation:
    """Batch elements of different sizes as sparse tensors.

    Args:
      batch_size: int64, shape ().
      row_shape: the shape of a row; None or -1 for the largest size in the batch.
    Returns: a function for `Dataset.apply`.
    Raises (when it is iterated): InvalidArgumentError: an element is larger than `row_shape`, or of
      another rank.

    Examples:
      >>> rows = wf.data.Dataset.range(1, 3).map(lambda n: wf.fill([n], n))
      >>> batches = rows.apply(wf.data.experimental.dense_to_sparse_batch(2, [4]))
      >>> batch = batches.make_one_shot_iterator().get_next()
      >>> wf.Session().run(wf.sparse.to_dense(batch))
      array([[1, 0, 0, 0],
             [2, 2, 0, 0]])
    """
    dims = as_dims([None if n in (-1, None) else n for n in _shape_to_list(row_shape)])
    assert dims is not None

    def apply(dataset: Dataset) -> Dataset:
        spec = dataset._element
        if not isinstance(spec, specs.Spec) or spec.cls is not Output:
            raise errors.InvalidTypeError(
                f"dense_to_sparse_batch requires elements of one dense tensor, got {spec!r}"
            )
        size = arguments.scalar(batch_size, dtypes.int64, "batch_size", 1)
        shape = convert_to_tensor([-1 if n is None else n for n in dims], dtypes.int64)
        form = specs.Spec(spec.dtype, (None, *dims), SparseTensor)
        return dataset._chain("DenseToSparseBatchDataset", size, shape, element=form)

    return apply


def dense_to_ragged_batch(
    batch_size: Any, drop_remainder: Any = False, row_splits_dtype: Any = dtypes.int64
) -> Transformation:
    """Batch elements of different sizes as ragged tensors.

    An axis of unknown size and all axes before it are ragged. Tensors of a known shape, or of an
    unknown rank, are stacked as by `Dataset.batch`.

    Args:
      batch_size, drop_remainder: as for `Dataset.batch`.
      row_splits_dtype: int32 or int64.
    Returns: a function for `Dataset.apply`.
    Raises: InvalidTypeError: `row_splits_dtype` is another type; when it is iterated,
      InvalidArgumentError: the sizes of axes that are not ragged differ.

    Examples:
      >>> rows = wf.data.Dataset.range(1, 4).map(lambda n: wf.fill([n], n))
      >>> batches = rows.apply(wf.data.experimental.dense_to_ragged_batch(2))
      >>> batch = batches.make_one_shot_iterator().get_next()
      >>> wf.Session().run(batch).to_list()
      [[1], [2, 2]]
    """
    splits = dtypes.as_dtype(row_splits_dtype)
    if splits not in (dtypes.int32, dtypes.int64):
        raise errors.InvalidTypeError(f"row_splits_dtype must be int32 or int64, got {splits.name}")

    def apply(dataset: Dataset) -> Dataset:
        structure = nest.map_structure(lambda spec: _to_ragged_spec(spec, splits), dataset._element)

        def change(*parts: Any) -> Any:
            element = parts if type(dataset._element) is tuple else parts[0]
            return nest.map_structure(_cut, element, structure)

        cut = dataset.map(change)._with_form(structure)
        return cut.batch(batch_size, drop_remainder)

    return apply


def _to_ragged_spec(spec: specs.Spec, splits: DType) -> specs.Spec:
    """Return a form whose axes up to the last one of unknown size are ragged."""
    if spec.cls is not Output or not spec.dims or None not in spec.dims:
        return spec
    axis = max([i for i, size in enumerate(spec.dims) if size is None])
    return specs.Spec(spec.dtype, spec.dims, ragged=specs.Raggedness(axis, splits))


def _cut(value: Any, spec: specs.Spec) -> Any:
    if not isinstance(value, Output) or spec.cls is not RaggedTensor:
        return value
    assert spec.ragged is not None
    return RaggedTensor.from_tensor(
        value, ragged_rank=spec.ragged.rank, row_splits_dtype=spec.ragged.splits
    )


def _shape_to_list(shape: Any) -> list[Any]:
    result = getattr(shape, "as_list", lambda: shape)()
    return arguments.to_list(result, "row_shape")

"""Datasets: pipelines of elements, as nodes of the graph."""

from __future__ import annotations

__all__ = ["Dataset", "DatasetSpec"]

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft_graph.functions.type_spec import register_type_spec
from weft_graph.ir import nest
from weft_graph.ir.builder import convert_to_tensor, create
from weft_graph.ir.constant_value import constant_value
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.indexed_slices import SparseTensor
from weft_graph.ir.node import Output
from weft_graph.ir.random_seed import get_seed
from weft_graph.ops.comparison import greater
from weft_graph.ops.control import Assert, hold_function
from weft_graph.ops.control_flow import common_dims
from weft_graph.ops.shapes import size
from weft_graph.ragged.tensor import RaggedTensor
from weft_io import arguments
from weft_io.data import specs
from weft_io.data.functions import Traced, traced
from weft_io.data.iterator import Iterator, initializable, one_shot
from weft_io.data.options import Options
from weft_io.data.padding import padded_form, padding_values_for
from weft_io.data.variant_elements import (
    any_variant,
    packed,
    packed_each,
    unpacked_each,
    unpacked_windows,
)
from weft_io.ops.files import matching_files
from weft_io.streams.generators import GeneratorFunction
from weft_io.streams.prefetching import AUTOTUNE
from weft_tensor import dtypes, errors
from weft_tensor.arguments import function
from weft_tensor.shape import TensorShape


class Dataset(specs.DatasetBase):
    """A sequence of elements, each a structure (tuples, named tuples, dicts) of tensors.

    A dataset is a node that describes the elements; none is made before an iterator asks for it.

    Args:
      variant_tensor: the node's output, variant, shape ().
      element: the form of elements, a structure of `specs.Spec`.

    Examples:
      >>> dataset = wf.data.Dataset.range(10).map(lambda x: x * x).batch(4)
      >>> batch = dataset.make_one_shot_iterator().get_next()
      >>> session = wf.Session()
      >>> session.run(batch), session.run(batch)
      (array([0, 1, 4, 9]), array([16, 25, 36, 49]))
    """

    def __init__(self, variant_tensor: Output, element: Any) -> None:
        if not isinstance(variant_tensor, Output):
            raise errors.InvalidTypeError(
                f"variant_tensor must be a tensor, got {variant_tensor!r}; datasets are made by "
                "functions such as Dataset.from_tensor_slices"
            )
        self._variant_tensor = variant_tensor
        self._element = element
        self._options = Options()

    @staticmethod
    def _spec_with(element_spec: Any) -> DatasetSpec:
        return DatasetSpec(element_spec)

    @staticmethod
    def _made(op: str, inputs: Sequence[Any], attrs: Mapping[str, Any], element: Any) -> Dataset:
        return Dataset(create(op, inputs, attrs).outputs[0], element)

    def _through(self, op: str, *inputs: Any, element: Any = None, **attrs: Any) -> Dataset:
        """A dataset of a node that takes this one and `inputs`."""
        form = self._element if element is None else element
        with self._variant_tensor.graph.as_default():
            made = self._made(
                op, [self._variant_tensor, *inputs], {**specs.attrs_of(form), **attrs}, form
            )
        made._options = self._options
        return made

    def _of_form(self, element: Any) -> Dataset:
        """The same dataset, with more known of the form of its elements."""
        found = Dataset(self._variant_tensor, element)
        found._options = self._options
        return found

    # ------------------------------------------------------------------ iterators

    def make_one_shot_iterator(self) -> Iterator:
        """An iterator that goes through it once and needs no initializer.

        Raises: InvalidArgumentError: it depends on a placeholder or a variable.
        """
        return one_shot(self)

    def make_initializable_iterator(self, shared_name: str | None = None) -> Iterator:
        """An iterator that begins each time its `initializer` runs.

        Args:
          shared_name: the name it is shared under among sessions.
        """
        return initializable(self, shared_name)

    # ------------------------------------------------------------------ sources

    @staticmethod
    def from_tensors(tensors: Any) -> Dataset:
        """One element.

        Args:
          tensors: a structure of tensors; a list is one tensor.
        """
        values = specs.converted(tensors)
        flat, form = specs.components(values), specs.form_of(values)
        attrs = {"output_shapes": [part.dims for part in specs.parts(form)]}
        return Dataset._made("TensorDataset", [flat], attrs, form)

    @staticmethod
    def from_tensor_slices(tensors: Any) -> Dataset:
        """The rows of tensors.

        Args:
          tensors: a structure of tensors, also sparse and ragged ones, with first axes of one size;
            a list is one tensor.
        Raises: InvalidArgumentError: a tensor has rank 0, or the sizes differ.
        """
        values = specs.converted(tensors)
        form = nest.map_structure(lambda spec: spec.row, specs.form_of(values))
        _check_rows(specs.form_of(values), "from_tensor_slices")
        if any_variant(form):
            slices: Dataset = unpacked_each(Dataset.from_tensor_slices(packed(values)), form)
            return slices
        attrs = {"output_shapes": [part.dims for part in specs.parts(form)]}
        return Dataset._made("TensorSliceDataset", [specs.components(values)], attrs, form)

    @staticmethod
    def from_sparse_tensor_slices(sparse_tensor: Any) -> Dataset:
        """The rows of a SparseTensor: as `from_tensor_slices`, which takes any tensors.

        Args:
          sparse_tensor: SparseTensor of rank 1 at least.
        Raises: InvalidTypeError: it is no SparseTensor.
        """
        if not isinstance(sparse_tensor, SparseTensor):
            raise errors.InvalidTypeError(f"a SparseTensor is required, got {sparse_tensor!r}")
        return Dataset.from_tensor_slices(sparse_tensor)

    @staticmethod
    def range(*args: Any, output_type: Any = dtypes.int64) -> Dataset:
        """The numbers of Python's `range`: of (stop), (start, stop), or (start, stop, step).

        Args:
          args: int64, shape ().
          output_type: of the elements.
        Raises: InvalidArgumentError: there are no arguments or more than three, or the step is 0.
        """
        if not 1 <= len(args) <= 3:
            raise errors.InvalidArgumentError(f"range takes 1 to 3 arguments, got {len(args)}")
        start, stop, step = {1: (0, *args, 1), 2: (*args, 1), 3: args}[len(args)]
        form = specs.Spec(dtypes.as_dtype(output_type), ())
        bounds = _bounds(start, stop, step)
        if arguments.known_integer(step, bounds[-1]) == 0:
            raise errors.InvalidArgumentError("step must not be 0")
        return Dataset._made("RangeDataset", bounds, specs.attrs_of(form), form)

    @staticmethod
    def from_generator(
        generator: Callable[..., Any], output_types: Any, output_shapes: Any = None, args: Any = ()
    ) -> Dataset:
        """The elements of an iterable, which a Python function makes for each pass.

        Args:
          generator: returns an iterable of structures of values.
          output_types: a structure of element types.
          output_shapes: a structure of shapes; unknown by default.
          args: tensors; `generator` is called with their values.
        Raises: InvalidTypeError: `generator` cannot be called with as many arguments.
        """
        given = [] if args is None else arguments.listed(args, "args")
        function(generator, "generator", len(given))
        form = specs.form_from(output_types, output_shapes)

        def flatten(found: Any) -> list[Any]:
            return nest.flatten_up_to(output_types, found, check_types=False)

        holder = hold_function(GeneratorFunction(generator, flatten))
        values = [convert_to_tensor(value) for value in given]
        graph = values[0].graph if values else get_default_graph()
        graph.add_to_collection("_py_funcs", holder)
        attrs = {"token": holder.token, **specs.attrs_of(form)}
        return Dataset._made("PythonGeneratorDataset", [values], attrs, form)

    @staticmethod
    def list_files(file_pattern: Any, shuffle: bool | None = None, seed: Any = None) -> Dataset:
        """The names of the files that match patterns.

        Args:
          file_pattern: string, shape () or (n,).
          shuffle: whether their order is random; true by default.
          seed: of the order.
        Raises (when it is iterated): InvalidArgumentError: nothing matches.
        """
        pattern = convert_to_tensor(arguments.encoded_paths(file_pattern), dtypes.string)
        found = matching_files(pattern)
        some = greater(size(found), 0)
        check = Assert(some, ["No files matched pattern: ", pattern], summarize=1)
        with found.graph.control_dependencies([check]):
            found = create("Identity", [found]).outputs[0]
        dataset = Dataset.from_tensor_slices(found)
        if shuffle is False:
            return dataset
        return dataset.shuffle(1 << 31, seed=seed)

    @staticmethod
    def zip(datasets: Any) -> Dataset:
        """Datasets side by side: an element is a structure of one element of each.

        It ends with the shortest of them.

        Args:
          datasets: a structure of datasets, such as a tuple; a list is none.
        Raises: InvalidTypeError: something in it is no dataset, or it is a list;
          InvalidArgumentError: it is empty.

        Examples:
          >>> one, two = wf.data.Dataset.range(1, 3), wf.data.Dataset.range(4, 9)
          >>> pair = wf.data.Dataset.zip((one, two)).make_one_shot_iterator().get_next()
          >>> session = wf.Session()
          >>> session.run(pair), session.run(pair)
          ((np.int64(1), np.int64(4)), (np.int64(2), np.int64(5)))
        """
        flat = nest.flatten(datasets)
        for each in flat:
            if isinstance(datasets, list) or not isinstance(each, Dataset):
                raise errors.InvalidTypeError(
                    "The argument to `Dataset.zip()` must be a nested structure of datasets (no "
                    f"list), got {datasets!r}"
                )
        if not flat:
            raise errors.InvalidArgumentError("zip requires one dataset at least")
        form = nest.pack_sequence_as(datasets, [_Held(each._element) for each in flat])
        form = _released(form)
        inputs = [each._variant_tensor for each in flat]
        made = Dataset._made("ZipDataset", [inputs], specs.attrs_of(form), form)
        for each in flat:
            made._options = made._options.merge(each._options)
        return made

    # ------------------------------------------------------------------ passing on

    def concatenate(self, dataset: Dataset) -> Dataset:
        """The elements of this dataset, then those of another.

        Args:
          dataset: of elements of the same structure and types.
        Raises: InvalidTypeError: structures or types differ.
        """
        if not isinstance(dataset, Dataset):
            raise errors.InvalidTypeError(f"concatenate requires a Dataset, got {dataset!r}")
        mine, its = self._element, dataset._element
        try:
            nest.assert_same_structure(mine, its)
        except (errors.InvalidTypeError, errors.InvalidArgumentError) as cause:
            raise errors.InvalidTypeError(
                f"Two datasets to concatenate have different structures: {cause}"
            ) from cause
        for a, b in zip(nest.flatten(mine), nest.flatten(its), strict=True):
            if not a.like(b):
                raise errors.InvalidTypeError(
                    f"Two datasets to concatenate have different types {a!r} and {b!r}"
                )
        form = nest.map_structure(lambda a, b: a.with_dims(common_dims(a.dims, b.dims)), mine, its)
        return self._through("ConcatenateDataset", dataset._variant_tensor, element=form)

    def repeat(self, count: Any = None) -> Dataset:
        """The elements, `count` times over.

        Args:
          count: int64, shape (); None or -1 for no end.
        """
        return self._through("RepeatDataset", _int64(-1 if count is None else count, "count"))

    def take(self, count: Any) -> Dataset:
        """The first `count` elements.

        Args:
          count: int64, shape (); -1 for all.
        """
        return self._through("TakeDataset", _int64(count, "count"))

    def skip(self, count: Any) -> Dataset:
        """All elements but the first `count`.

        Args:
          count: int64, shape (); -1 leaves out all of them.
        """
        return self._through("SkipDataset", _int64(count, "count"))

    def shard(self, num_shards: Any, index: Any) -> Dataset:
        """Every `num_shards`-th element, from `index` on.

        Args:
          num_shards, index: int64, shape ().
        Raises: InvalidArgumentError: not 0 <= index < num_shards.
        """
        number = _int64(num_shards, "num_shards", 1)
        place = _int64(index, "index", 0)
        known = [
            arguments.known_integer(each, tensor)
            for each, tensor in ((num_shards, number), (index, place))
        ]
        if known[0] is not None and known[1] is not None and known[1] >= known[0]:
            raise errors.InvalidArgumentError(
                f"index must be less than num_shards = {known[0]}, got {known[1]}"
            )
        return self._through("ShardDataset", number, place)

    def prefetch(self, buffer_size: Any) -> Dataset:
        """The same elements, made ahead of their use by a thread of its own.

        Args:
          buffer_size: int64, shape (): how many at most; AUTOTUNE for as many as are of use.
        """
        size = AUTOTUNE if buffer_size is None else buffer_size
        ahead = _int64(size, "buffer_size", 0, AUTOTUNE)
        return self._through("PrefetchDataset", ahead)

    def cache(self, filename: Any = "") -> Dataset:
        """The same elements; after the first whole pass they come from a file or from memory.

        Args:
          filename: string, shape (): the file's name, to which endings are added; "" for memory.
        """
        path = arguments.scalar(arguments.encoded_paths(filename), dtypes.string, "filename")
        return self._through("CacheDataset", path)

    def shuffle(
        self, buffer_size: Any, seed: Any = None, reshuffle_each_iteration: bool | None = None
    ) -> Dataset:
        """The elements in a random order.

        Args:
          buffer_size: int64, shape (): the next element is chosen among so many.
          seed: of the order; it and the graph's seed work together as for random operations.
          reshuffle_each_iteration: whether each pass has an order of its own; true by default.
        """
        first, second = get_seed(seed)
        again = reshuffle_each_iteration is None or reshuffle_each_iteration
        return self._through(
            "ShuffleDataset",
            _int64(buffer_size, "buffer_size", 1),
            _int64(first or 0, "seed"),
            _int64(second or 0, "seed"),
            reshuffle_each_iteration=again,
        )

    def enumerate(self, start: Any = 0) -> Dataset:
        """Pairs (number, element).

        Args:
          start: int64, shape (): the first number.
        """
        first = _int64(start, "start")
        return Dataset.zip((Dataset.range(first, dtypes.int64.max), self))

    def apply(self, transformation_func: Callable[[Dataset], Dataset]) -> Dataset:
        """What a function makes of this dataset.

        Args:
          transformation_func: takes and returns a dataset.
        Raises: InvalidTypeError: it returns no dataset.
        """
        found = function(transformation_func, "transformation_func", 1)(self)
        if not isinstance(found, Dataset):
            raise errors.InvalidTypeError(
                f"`transformation_func` must return a Dataset, got {found!r}"
            )
        return found

    def with_options(self, options: Options) -> Dataset:
        """The same dataset with options; those that it had and that differ are an error.

        Args:
          options: `Options`.
        Raises: InvalidTypeError: it is something else; InvalidArgumentError: an option has another
          value already.
        """
        found = self._of_form(self._element)
        found._options = self._options.merge(options)
        return found

    def options(self) -> Options:
        """The options of this dataset and of those that it was made of."""
        return self._options.merge(Options())

    # ------------------------------------------------------------------ windows and batches

    def window(
        self, size: Any, shift: Any = None, stride: Any = 1, drop_remainder: Any = False
    ) -> Dataset:
        """Datasets of elements that follow each other.

        Args:
          size: int64, shape (): how many elements a window has.
          shift: int64, shape (): how far a window begins behind the one before; `size` by default.
          stride: int64, shape (): how far the elements of a window are from each other.
          drop_remainder: bool, shape (): leave out windows at the end that are smaller.
        Returns: elements of the structure of this dataset's, with a dataset for each tensor.

        Examples:
          >>> pairs = wf.data.Dataset.range(4).window(2, shift=1, drop_remainder=True)
          >>> rows = pairs.flat_map(lambda window: window.batch(2)).batch(9)
          >>> wf.Session().run(rows.make_one_shot_iterator().get_next())
          array([[0, 1],
                 [1, 2],
                 [2, 3]])
        """
        self._check_dense("window", but=(SparseTensor, RaggedTensor))
        if any_variant(self._element):
            inside = packed_each(self).window(size, shift, stride, drop_remainder)
            windows: Dataset = unpacked_windows(inside, self._element)
            return windows
        numbers = [
            _int64(value, what, 1)
            for value, what in (
                (size, "size"),
                (size if shift is None else shift, "shift"),
                (stride, "stride"),
            )
        ]
        form = nest.map_structure(
            lambda spec: specs.Spec(dtypes.variant, (), Dataset, spec), self._element
        )
        return self._through("WindowDataset", *numbers, _drop(drop_remainder), element=form)

    def batch(self, batch_size: Any, drop_remainder: Any = False) -> Dataset:
        """Elements stacked in batches, along a new first axis.

        Sparse tensors need not have one shape: each size is the largest in the batch. Ragged ones,
        and rows of them, become ragged tensors with one more ragged axis.

        Args:
          batch_size: int64, shape ().
          drop_remainder: bool, shape (): leave out the last batch where it is smaller.
        Raises (when it is iterated): InvalidArgumentError: shapes in a batch differ.
        """
        self._check_dense("batch", but=(SparseTensor, RaggedTensor))
        inputs = _int64(batch_size, "batch_size", 1), _drop(drop_remainder)
        rows = _static_rows(batch_size, drop_remainder)
        form = nest.map_structure(lambda spec: spec.batch(rows), self._element)
        if any_variant(self._element):
            stacked = packed_each(self).batch(batch_size, drop_remainder)
            batches: Dataset = unpacked_each(stacked, form)
            return batches
        return self._through("BatchDatasetV2", *inputs, element=form)

    def padded_batch(
        self,
        batch_size: Any,
        padded_shapes: Any,
        padding_values: Any = None,
        drop_remainder: Any = False,
    ) -> Dataset:
        """Elements in batches, each padded at the end of its axes to the shape of the batch.

        Args:
          batch_size: int64, shape ().
          padded_shapes: a structure of shapes; a size None or -1 is the largest in the batch.
          padding_values: a structure of values; zeros and empty strings by default.
          drop_remainder: bool, shape (): leave out the last batch where it is smaller.
        Raises (when it is iterated): InvalidArgumentError: an element is larger or of another rank.

        Examples:
          >>> rows = wf.data.Dataset.range(1, 3).map(lambda n: wf.fill([n], n))
          >>> batch = rows.padded_batch(2, padded_shapes=[None]).make_one_shot_iterator().get_next()
          >>> wf.Session().run(batch)
          array([[1, 0],
                 [2, 2]])
        """
        self._check_dense("padded_batch")
        size, drop = _int64(batch_size, "batch_size", 1), _drop(drop_remainder)
        shapes, dims = padded_form(self._element, padded_shapes)
        padding = padding_values_for(self._element, padding_values)
        rows = _static_rows(batch_size, drop_remainder)
        flat = [
            specs.Spec(spec.dtype, None if d is None else (rows, *d))
            for spec, d in zip(nest.flatten(self._element), dims, strict=True)
        ]
        form = nest.pack_sequence_as(self._element, flat)
        attrs = {"output_shapes": [part.dims for part in specs.parts(form)]}
        inputs = [self._variant_tensor, size, shapes, padding, drop]
        return self._made("PaddedBatchDatasetV2", inputs, attrs, form)

    def unbatch(self) -> Dataset:
        """The rows of the elements, each as an element of its own.

        Raises: InvalidArgumentError: a part has rank 0, or the sizes differ; of sizes that are not
          known when it is iterated.
        """
        self._check_dense("unbatch", but=(SparseTensor, RaggedTensor))
        _check_rows(self._element, "unbatch")
        form = nest.map_structure(lambda spec: spec.row, self._element)
        if any_variant(form):
            rows: Dataset = unpacked_each(packed_each(self, rows=True).unbatch(), form)
            return rows
        return self._through("UnbatchDataset", element=form)

    def _check_dense(self, what: str, but: tuple[type, ...] = ()) -> None:
        for spec in nest.flatten(self._element):
            if spec.cls is not Output and spec.cls not in but:
                raise errors.UnimplementedError(
                    f"{what} requires dense tensors, got a {spec.cls.__name__} in the elements"
                )

    # ------------------------------------------------------------------ functions

    def map(self, map_func: Callable[..., Any], num_parallel_calls: Any = None) -> Dataset:
        """What a function makes of each element, in order.

        Args:
          map_func: from an element to a structure of tensors; takes the parts of a tuple as
            several arguments.
          num_parallel_calls: int32, shape (): how many calls run at once; AUTOTUNE for as many as
            there are processors, None for one after the other.

        Examples:
          >>> pairs = wf.data.Dataset.from_tensor_slices(([1, 2], [3, 4]))
          >>> total = pairs.map(lambda a, b: a + b).make_one_shot_iterator().get_next()
          >>> session = wf.Session()
          >>> session.run(total), session.run(total)
          (np.int32(4), np.int32(6))
        """
        return self._mapped(map_func, num_parallel_calls)

    def _mapped(self, function: Any, calls: Any, preserve_cardinality: bool = False) -> Dataset:
        made = self._traced(function, "map")
        attrs = {"f": made.attr, "preserve_cardinality": preserve_cardinality}
        if calls is None:
            return self._through("MapDataset", made.captured, element=made.form, **attrs)
        calls = arguments.scalar(calls, dtypes.int32, "num_parallel_calls", 1, AUTOTUNE)
        return self._through("ParallelMapDataset", made.captured, calls, element=made.form, **attrs)

    def map_with_legacy_function(
        self, map_func: Callable[..., Any], num_parallel_calls: Any = None
    ) -> Dataset:
        """`map` under a former name.

        Args:
          map_func, num_parallel_calls: as for `map`.

        Examples:
          >>> doubled = wf.data.Dataset.range(3).map_with_legacy_function(lambda n: n * 2)
          >>> wf.Session().run(doubled.batch(3).make_one_shot_iterator().get_next())
          array([0, 2, 4])
        """
        return self.map(map_func, num_parallel_calls)

    def filter_with_legacy_function(self, predicate: Callable[..., Any]) -> Dataset:
        """`filter` under a former name.

        Args:
          predicate: as for `filter`.

        Examples:
          >>> few = wf.data.Dataset.range(4).filter_with_legacy_function(lambda n: n < 2)
          >>> wf.Session().run(few.batch(9).make_one_shot_iterator().get_next())
          array([0, 1])
        """
        return self.filter(predicate)

    def filter(self, predicate: Callable[..., Any]) -> Dataset:
        """The elements for which a function is true.

        Args:
          predicate: from an element, as for `map`, to a bool of shape ().
        Raises: InvalidTypeError: it returns something else.

        Examples:
          >>> odd = wf.data.Dataset.range(9).filter(lambda n: wf.equal(n % 2, 1))
          >>> wf.Session().run(odd.batch(9).make_one_shot_iterator().get_next())
          array([1, 3, 5, 7])
        """
        made = self._predicate(predicate, "filter")
        return self._through("FilterDataset", made.captured, predicate=made.attr)

    def flat_map(self, map_func: Callable[..., Any]) -> Dataset:
        """A function makes a dataset of each element: their elements, one dataset after the other.

        Args:
          map_func: from an element, as for `map`, to a dataset.
        Raises: InvalidTypeError: it returns no dataset.

        Examples:
          >>> stairs = wf.data.Dataset.range(1, 4).flat_map(wf.data.Dataset.range)
          >>> wf.Session().run(stairs.batch(9).make_one_shot_iterator().get_next())
          array([0, 0, 1, 0, 1, 2])
        """
        made = self._traced(map_func, "flat_map")
        return self._by("FlatMapDataset", made, element=_inner_form(made, "map_func"))

    def interleave(
        self,
        map_func: Callable[..., Any],
        cycle_length: Any = AUTOTUNE,
        block_length: Any = 1,
        num_parallel_calls: Any = None,
    ) -> Dataset:
        """A function makes a dataset of each element: their elements, several datasets in turns.

        Args:
          map_func: from an element, as for `map`, to a dataset.
          cycle_length: int64, shape (): how many datasets take turns; AUTOTUNE for the number of
            processors, at most 10.
          block_length: int64, shape (): how many elements of a dataset come in its turn.
          num_parallel_calls: int64, shape (): how many datasets are read ahead at once; the order
            stays the same.
        Raises: InvalidTypeError: the function returns no dataset.

        Examples:
          >>> thrice = lambda n: wf.data.Dataset.from_tensors(n).repeat(3)
          >>> turns = wf.data.Dataset.range(2).interleave(thrice, cycle_length=2, block_length=2)
          >>> wf.Session().run(turns.batch(9).make_one_shot_iterator().get_next())
          array([0, 0, 1, 1, 0, 1])
        """
        made = self._traced(map_func, "interleave")
        form = _inner_form(made, "map_func")
        if isinstance(cycle_length, int) and cycle_length == AUTOTUNE:
            cycle_length = min(os.cpu_count() or 1, 10)
        inputs = [
            _int64(cycle_length, "cycle_length", 1),
            _int64(block_length, "block_length", 1),
        ]
        if num_parallel_calls is None:
            return self._by("InterleaveDataset", made, *inputs, element=form)
        calls = _int64(num_parallel_calls, "num_parallel_calls", 1, AUTOTUNE)
        return self._by("ParallelInterleaveDatasetV2", made, *inputs, calls, element=form)

    def take_while(self, predicate: Callable[..., Any]) -> Dataset:
        """The elements before the first for which a function is false.

        Args:
          predicate: from an element, as for `map`, to a bool of shape ().
        Raises: InvalidTypeError: it returns something else.

        Examples:
          >>> few = wf.data.Dataset.range(9).take_while(lambda n: n < 3).batch(9)
          >>> wf.Session().run(few.make_one_shot_iterator().get_next())
          array([0, 1, 2])
        """
        made = self._predicate(predicate, "take_while")
        return self._through("TakeWhileDataset", made.captured, predicate=made.attr)

    def scan(self, initial_state: Any, scan_func: Callable[[Any, Any], Any]) -> Dataset:
        """What a function makes of a state and each element, beside the next state.

        Args:
          initial_state: a structure of tensors.
          scan_func: from a state and an element to the next state and a structure of tensors.
        Raises: InvalidTypeError: it returns no pair, or a state of another structure or of other
          types.

        Examples:
          >>> sums = wf.data.Dataset.range(1, 5).scan(
          ...     wf.constant(0, wf.int64), lambda total, n: (total + n, total + n)
          ... )
          >>> wf.Session().run(sums.batch(9).make_one_shot_iterator().get_next())
          array([ 1,  3,  6, 10])
        """
        state = specs.converted(initial_state)
        made, form = self._settled(scan_func, "scan", state, _first_of_pair)
        inputs = [specs.components(state), made.captured]
        types = [part.dtype for part in specs.parts(form)]
        attrs = {"f": made.attr, "Tstate": types, "preserve_cardinality": True}
        return self._through("ScanDataset", *inputs, element=made.form[1], **attrs)

    def reduce(self, initial_state: Any, reduce_func: Callable[[Any, Any], Any]) -> Any:
        """The last state of a function of a state and each element; each run goes through all.

        Args:
          initial_state: a structure of tensors.
          reduce_func: from a state and an element to the next state.
        Returns: a structure of tensors: the state after the last element.
        Raises: InvalidTypeError: it returns another structure, or other types.

        Examples:
          >>> total = wf.data.Dataset.range(5).reduce(wf.constant(0, wf.int64), lambda a, b: a + b)
          >>> wf.Session().run(total)
          np.int64(10)
        """
        with self._variant_tensor.graph.as_default():
            state = specs.converted(initial_state)
            made, form = self._settled(reduce_func, "reduce", state, lambda found: found)
            inputs = [self._variant_tensor, specs.components(state), made.captured]
            node = create("ReduceDataset", inputs, {**specs.attrs_of(form), "f": made.attr})
        return specs.rebuilt(form, node.outputs)

    def _settled(
        self, function: Any, kind: str, state: Any, state_of: Callable[[Any], Any]
    ) -> tuple[Traced, Any]:
        graph = self._variant_tensor.graph
        return specs.settled(
            lambda form: traced(function, (form, self._element), graph, kind),
            specs.form_of(state),
            state_of,
        )

    def _predicate(self, predicate: Callable[..., Any], kind: str) -> Traced:
        made = self._traced(predicate, kind)
        spec = made.form
        if not isinstance(spec, specs.Spec) or spec.dtype is not dtypes.bool_ or spec.dims:
            raise errors.InvalidTypeError(
                f"`predicate` must return a scalar boolean tensor, got {spec!r}"
            )
        return made

    def _traced(self, function: Callable[..., Any], kind: str) -> Traced:
        return traced(function, self._element, self._variant_tensor.graph, kind)

    def _by(self, op: str, made: Traced, *inputs: Any, element: Any = None) -> Dataset:
        form = made.form if element is None else element
        return self._through(op, made.captured, *inputs, element=form, f=made.attr)

    def __repr__(self) -> str:
        return (
            f"<weft.{type(self).__name__} shapes: {self.output_shapes}, types: {self.output_types}>"
        )


# ------------------------------------------------------------------------------ helpers


class _Held:
    """Keeps a form from being taken apart."""

    __slots__ = ("form",)

    def __init__(self, form: Any) -> None:
        self.form = form


def _released(structure: Any) -> Any:
    return nest.map_structure(lambda held: held.form, structure)


def _int64(value: Any, what: str, least: int | None = None, auto: int | None = None) -> Output:
    return arguments.scalar(value, dtypes.int64, what, least, auto)


def _bounds(*values: Any) -> list[Output]:
    return [
        _int64(each, what) for each, what in zip(values, ("start", "stop", "step"), strict=True)
    ]


def _drop(drop_remainder: Any) -> Output:
    return arguments.scalar(drop_remainder, dtypes.bool_, "drop_remainder")


def _check_rows(form: Any, what: str) -> None:
    size: int | None = None
    for spec in nest.flatten(form):
        if spec.cls not in (Output, SparseTensor, RaggedTensor):
            raise errors.UnimplementedError(f"{what} requires tensors, got a {spec.cls.__name__}")
        if spec.dims == ():
            raise errors.InvalidArgumentError(f"{what} requires rank 1 at least, got ()")
        rows = None if spec.dims is None else spec.dims[0]
        if None not in (rows, size) and rows != size:
            raise errors.InvalidArgumentError(
                f"{what} requires first axes of one size, got {size} and {rows}"
            )
        size = rows if size is None else size


def _static_rows(batch_size: Any, drop_remainder: Any) -> int | None:
    """The size of every batch, where it is known."""
    size, drop = (
        constant_value(each) if isinstance(each, Output) else each
        for each in (batch_size, drop_remainder)
    )
    return int(size) if drop is not None and bool(drop) and size is not None else None


def _first_of_pair(form: Any) -> Any:
    if not isinstance(form, tuple) or len(form) != 2:
        raise errors.InvalidTypeError(
            f"the function given to Dataset.scan() must return a state and an element, got {form!r}"
        )
    return form[0]


def _inner_form(made: Traced, what: str) -> Any:
    if not isinstance(made.result, Dataset):
        raise errors.InvalidTypeError(
            f"`{what}` must return a `Dataset` object, got {made.result!r}"
        )
    return made.result._element


class DatasetSpec(specs.ElementsSpec):
    """The specs of the elements of a dataset.

    Args:
      element_spec: a structure of specs: of its elements.
      dataset_shape: [], since a dataset is one.
    Raises: InvalidArgumentError: `dataset_shape` is another.

    Examples:
      >>> wf.data.DatasetSpec(wf.TensorSpec([], wf.int64)).is_compatible_with(
      ...     wf.data.Dataset.range(3)
      ... )
      True
    """

    __slots__ = ()

    def __init__(self, element_spec: Any, dataset_shape: Any = ()) -> None:
        if TensorShape(dataset_shape).as_list() != []:
            raise errors.InvalidArgumentError(
                f"a dataset has the shape [], so dataset_shape must be, got {dataset_shape}"
            )
        super().__init__(element_spec)

    @property
    def value_type(self) -> type:
        """Dataset."""
        return Dataset


register_type_spec(Dataset, DatasetSpec.from_value)

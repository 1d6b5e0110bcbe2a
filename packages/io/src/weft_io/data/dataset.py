"""Datasets: pipelines of elements, as nodes of the graph."""

from __future__ import annotations

__all__ = ["Dataset", "DatasetSpec"]

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from weft_graph.functions.type_spec import register_type_spec
from weft_graph.ir import nest
from weft_graph.ir.builder import convert_to_tensor, create
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.indexed_slices import SparseTensor
from weft_graph.ir.node import Output
from weft_graph.ops.comparison import greater
from weft_graph.ops.control import Assert, hold_function
from weft_graph.ops.control_flow import broader_dims
from weft_graph.ops.shapes import size
from weft_graph.ragged.tensor import RaggedTensor
from weft_io import arguments
from weft_io.data import specs
from weft_io.data.batching import Batching, check_rows
from weft_io.data.dataset_methods import drops, int64, seeds
from weft_io.data.iterator import Iterator, initializable, one_shot
from weft_io.data.mapping import MapMethods
from weft_io.data.options import Options
from weft_io.data.variant_elements import (
    contains_variant,
    pack_elements,
    pack_variants,
    unpack_elements,
    unpack_windows,
)
from weft_io.ops.files import matching_files
from weft_io.streams.generators import GeneratorFunction
from weft_io.streams.prefetching import AUTOTUNE
from weft_tensor import dtypes, errors
from weft_tensor.arguments import check_function
from weft_tensor.shape import Dims, TensorShape, as_dims


class Dataset(Batching["Dataset"], MapMethods["Dataset"]):
    """A sequence of elements, each a structure (tuples, named tuples, dicts) of tensors.

    A dataset is a node that describes the elements; each is produced when an iterator requests it.

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
                f"variant_tensor must be a tensor, got {variant_tensor!r}; create datasets with "
                "functions such as Dataset.from_tensor_slices"
            )
        self._variant_tensor = variant_tensor
        self._element = element
        self._options = Options()

    @classmethod
    def _spec_class(cls) -> type:
        return Dataset  # as a variant says nothing of subclasses such as CsvDataset

    @staticmethod
    def _spec_with(element_spec: Any, dims: Dims) -> DatasetSpec:
        return DatasetSpec(element_spec, dims)

    @staticmethod
    def _create(op: str, inputs: Sequence[Any], attrs: Mapping[str, Any], element: Any) -> Dataset:
        return Dataset(create(op, inputs, attrs).outputs[0], element)

    def _with_form(self, element: Any) -> Dataset:
        """Return the same dataset with a more precise form of its elements."""
        dataset = Dataset(self._variant_tensor, element)
        dataset._options = self._options
        return dataset

    # ------------------------------------------------------------------ iterators

    def make_one_shot_iterator(self) -> Iterator:
        """Return an iterator that traverses the dataset once and needs no initializer.

        Raises: InvalidArgumentError: it depends on a placeholder or a variable.
        """
        return one_shot(self)

    def make_initializable_iterator(self, shared_name: str | None = None) -> Iterator:
        """Return an iterator that starts over each time its `initializer` runs.

        Args:
          shared_name: the name it is shared under among sessions.
        """
        return initializable(self, shared_name)

    # ------------------------------------------------------------------ sources

    @staticmethod
    def from_tensors(tensors: Any) -> Dataset:
        """Return a dataset of a single element.

        Args:
          tensors: a structure of tensors; a list is one tensor.
        """
        values = specs.convert_structure(tensors)
        flat, form = specs.components(values), specs.form_of(values)
        attrs = {"output_shapes": [part.dims for part in specs.parts(form)]}
        return Dataset._create("TensorDataset", [flat], attrs, form)

    @staticmethod
    def from_tensor_slices(tensors: Any) -> Dataset:
        """Return the rows of tensors.

        Args:
          tensors: a structure of tensors, also sparse and ragged, with first axes of the same size;
            a list is one tensor.
        Raises: InvalidArgumentError: a tensor has rank 0, or the sizes differ.
        """
        values = specs.convert_structure(tensors)
        form = nest.map_structure(lambda spec: spec.row, specs.form_of(values))
        check_rows(specs.form_of(values), "from_tensor_slices")
        if contains_variant(form):
            slices: Dataset = unpack_elements(
                Dataset.from_tensor_slices(pack_variants(values)), form
            )
            return slices
        attrs = {"output_shapes": [part.dims for part in specs.parts(form)]}
        return Dataset._create("TensorSliceDataset", [specs.components(values)], attrs, form)

    @staticmethod
    def from_sparse_tensor_slices(sparse_tensor: Any) -> Dataset:
        """Return the rows of a SparseTensor by components; `from_tensor_slices` keeps them sparse.

        Args:
          sparse_tensor: SparseTensor of rank 1 or more.
        Returns: elements (indices, values, dense_shape) of each row.
        Raises: InvalidTypeError: it is not a SparseTensor.
        """
        if not isinstance(sparse_tensor, SparseTensor):
            raise errors.InvalidTypeError(f"a SparseTensor is required, got {sparse_tensor!r}")
        return Dataset.from_tensor_slices(sparse_tensor).map(lambda row: row.parts)

    @staticmethod
    def range(*args: Any, output_type: Any = dtypes.int64) -> Dataset:
        """Return the numbers of Python's `range(*args)`.

        Args:
          args: (stop), (start, stop) or (start, stop, step): int64, shape ().
          output_type: element type.
        Raises: InvalidArgumentError: there are no arguments or more than three, or the step is 0.
        """
        if not 1 <= len(args) <= 3:
            raise errors.InvalidArgumentError(f"range takes 1 to 3 arguments, got {len(args)}")
        start, stop, step = {1: (0, *args, 1), 2: (*args, 1), 3: args}[len(args)]
        form = specs.Spec(dtypes.as_dtype(output_type), ())
        bounds = _bounds(start, stop, step)
        if arguments.constant_int_or_none(step, bounds[-1]) == 0:
            raise errors.InvalidArgumentError("step must not be 0")
        return Dataset._create("RangeDataset", bounds, specs.attrs_of(form), form)

    @staticmethod
    def from_generator(
        generator: Callable[..., Any], output_types: Any, output_shapes: Any = None, args: Any = ()
    ) -> Dataset:
        """Return the elements of an iterable, which a Python function makes for each pass.

        Args:
          generator: returns an iterable of structures of values.
          output_types: a structure of element types.
          output_shapes: a structure of shapes; unknown by default.
          args: tensors; `generator` is called with their values.
        Raises: InvalidTypeError: `generator` cannot be called with as many arguments.
        """
        arguments_list = [] if args is None else arguments.to_list(args, "args")
        check_function(generator, "generator", len(arguments_list))
        form = specs.form_from(output_types, output_shapes)

        def flatten(result: Any) -> list[Any]:
            return nest.flatten_up_to(output_types, result, check_types=False)

        holder = hold_function(GeneratorFunction(generator, flatten))
        values = [convert_to_tensor(value) for value in arguments_list]
        graph = values[0].graph if values else get_default_graph()
        graph.add_to_collection("_py_funcs", holder)
        attrs = {"token": holder.token, **specs.attrs_of(form)}
        return Dataset._create("PythonGeneratorDataset", [values], attrs, form)

    @staticmethod
    def list_files(file_pattern: Any, shuffle: bool | None = None, seed: Any = None) -> Dataset:
        """Return the names of the files that match patterns.

        Args:
          file_pattern: string, shape () or (n,).
          shuffle: True if their order is random; true by default.
          seed: seed of the order.
        Raises (when it is iterated): InvalidArgumentError: no file matches.
        """
        pattern = convert_to_tensor(arguments.encode_paths(file_pattern), dtypes.string)
        output = matching_files(pattern)
        is_nonempty = greater(size(output), 0)
        check = Assert(is_nonempty, ["No files matched pattern: ", pattern], summarize=1)
        with output.graph.control_dependencies([check]):
            output = create("Identity", [output]).outputs[0]
        dataset = Dataset.from_tensor_slices(output)
        if shuffle is False:
            return dataset
        return dataset.shuffle(1 << 31, seed=seed)

    @staticmethod
    def zip(datasets: Any) -> Dataset:
        """Zip datasets: an element is a structure with one element of each dataset.

        It ends with the shortest of them.

        Args:
          datasets: a structure of datasets, such as a tuple, but not a list.
        Raises: InvalidTypeError: something in it is not a dataset, or it is a list;
          InvalidArgumentError: it is empty.

        Examples:
          >>> one, two = wf.data.Dataset.range(1, 3), wf.data.Dataset.range(4, 9)
          >>> pair = wf.data.Dataset.zip((one, two)).make_one_shot_iterator().get_next()
          >>> session = wf.Session()
          >>> session.run(pair), session.run(pair)
          ((np.int64(1), np.int64(4)), (np.int64(2), np.int64(5)))
        """
        flat = nest.flatten(datasets)
        for item in flat:
            if isinstance(datasets, list) or not isinstance(item, Dataset):
                raise errors.InvalidTypeError(
                    "The argument to `Dataset.zip()` must be a nested structure of datasets, "
                    f"without lists; got {datasets!r}"
                )
        if not flat:
            raise errors.InvalidArgumentError("zip requires at least one dataset")
        form = nest.pack_sequence_as(datasets, [_OpaqueSpec(item._element) for item in flat])
        form = _release(form)
        inputs = [item._variant_tensor for item in flat]
        result = Dataset._create("ZipDataset", [inputs], specs.attrs_of(form), form)
        for element in flat:
            result._options = result._options.merge(element._options)
        return result

    # ------------------------------------------------------------------ passing on

    def concatenate(self, dataset: Dataset) -> Dataset:
        """Concatenate the elements of this dataset and another dataset.

        Args:
          dataset: of elements of the same structure and types.
        Raises: InvalidTypeError: structures or types differ.
        """
        if not isinstance(dataset, Dataset):
            raise errors.InvalidTypeError(f"concatenate requires a Dataset, got {dataset!r}")
        element, other_element = self._element, dataset._element
        try:
            nest.assert_same_structure(element, other_element)
        except (errors.InvalidTypeError, errors.InvalidArgumentError) as cause:
            raise errors.InvalidTypeError(
                f"Two datasets to concatenate have different structures: {cause}"
            ) from cause
        for a, b in zip(nest.flatten(element), nest.flatten(other_element), strict=True):
            if not a.like(b):
                raise errors.InvalidTypeError(
                    f"Two datasets to concatenate have different types {a!r} and {b!r}"
                )
        form = nest.map_structure(
            lambda a, b: a.with_dims(broader_dims(a.dims, b.dims)), element, other_element
        )
        return self._chain("ConcatenateDataset", dataset._variant_tensor, element=form)

    def repeat(self, count: Any = None) -> Dataset:
        """Repeat the elements `count` times.

        Args:
          count: int64, shape (); None or -1 for no end.
        """
        return self._chain("RepeatDataset", int64(-1 if count is None else count, "count"))

    def take(self, count: Any) -> Dataset:
        """Return the first `count` elements.

        Args:
          count: int64, shape (); -1 for all.
        """
        return self._chain("TakeDataset", int64(count, "count"))

    def skip(self, count: Any) -> Dataset:
        """Return all elements except the first `count`.

        Args:
          count: int64, shape (); -1 leaves out all of them.
        """
        return self._chain("SkipDataset", int64(count, "count"))

    def shard(self, num_shards: Any, index: Any) -> Dataset:
        """Return every `num_shards`-th element, starting with element `index`.

        Args:
          num_shards, index: int64, shape ().
        Raises: InvalidArgumentError: not 0 <= index < num_shards.
        """
        number = int64(num_shards, "num_shards", 1)
        shard_index = int64(index, "index", 0)
        static_values = [
            arguments.constant_int_or_none(item, tensor)
            for item, tensor in ((num_shards, number), (index, shard_index))
        ]
        if (
            static_values[0] is not None
            and static_values[1] is not None
            and static_values[1] >= static_values[0]
        ):
            raise errors.InvalidArgumentError(
                f"index must be less than num_shards = {static_values[0]}, got {static_values[1]}"
            )
        return self._chain("ShardDataset", number, shard_index)

    def prefetch(self, buffer_size: Any) -> Dataset:
        """Prefetch elements on a separate thread.

        Args:
          buffer_size: int64, shape (): largest number of prefetched elements; AUTOTUNE to choose it
            automatically.
        """
        size = AUTOTUNE if buffer_size is None else buffer_size
        ahead = int64(size, "buffer_size", 0, AUTOTUNE)
        return self._chain("PrefetchDataset", ahead)

    def cache(self, filename: Any = "") -> Dataset:
        """Cache the elements in a file or in memory during the first complete pass.

        Args:
          filename: string, shape (): prefix of the file names; "" for memory.
        """
        path = arguments.scalar(arguments.encode_paths(filename), dtypes.string, "filename")
        return self._chain("CacheDataset", path)

    def shuffle(
        self, buffer_size: Any, seed: Any = None, reshuffle_each_iteration: bool | None = None
    ) -> Dataset:
        """Shuffle the elements.

        Args:
          buffer_size: int64, shape (): number of elements among which the next one is chosen.
          seed: seed of the order, an integer or a tensor int64, shape (); it is combined with the
            graph's seed as for random operations.
          reshuffle_each_iteration: whether each pass has its own order; True by default.
        """
        order = seeds(seed)  # first: the number of nodes before may be one of them
        reshuffles = reshuffle_each_iteration is None or reshuffle_each_iteration
        return self._chain(
            "ShuffleDataset",
            int64(buffer_size, "buffer_size", 1),
            *order,
            reshuffle_each_iteration=reshuffles,
        )

    def enumerate(self, start: Any = 0) -> Dataset:
        """Number the elements: pairs (number, element).

        Args:
          start: int64, shape (): the first number.
        """
        first = int64(start, "start")
        return Dataset.zip((Dataset.range(first, dtypes.int64.max), self))

    def apply(self, transformation_func: Callable[[Dataset], Dataset]) -> Dataset:
        """Apply a function to this dataset.

        Args:
          transformation_func: function from a dataset to a dataset.
        Raises: InvalidTypeError: it does not return a dataset.
        """
        result = check_function(transformation_func, "transformation_func", 1)(self)
        if not isinstance(result, Dataset):
            raise errors.InvalidTypeError(
                f"`transformation_func` must return a Dataset, got {result!r}"
            )
        return result

    def with_options(self, options: Options) -> Dataset:
        """Return the same dataset with options; a conflict with its current options is an error.

        Args:
          options: `Options`.
        Raises: InvalidTypeError: it is not an `Options` object; InvalidArgumentError: an option has
          another value already.
        """
        result = self._with_form(self._element)
        result._options = self._options.merge(options)
        return result

    def options(self) -> Options:
        """Return the merged options of this dataset and of its inputs."""
        return self._options.merge(Options())

    # ------------------------------------------------------------------ windows and batches

    def window(
        self, size: Any, shift: Any = None, stride: Any = 1, drop_remainder: Any = False
    ) -> Dataset:
        """Split the elements into windows: datasets of consecutive elements.

        Args:
          size: int64, shape (): number of elements in a window.
          shift: int64, shape (): distance between the starts of successive windows; `size` by
            default.
          stride: int64, shape (): distance between the elements of a window.
          drop_remainder: bool, shape (): drop smaller windows at the end.
        Returns: a dataset whose elements have the same structure, with a dataset in place of each
          tensor.

        Examples:
          >>> pairs = wf.data.Dataset.range(4).window(2, shift=1, drop_remainder=True)
          >>> rows = pairs.flat_map(lambda window: window.batch(2)).batch(9)
          >>> wf.Session().run(rows.make_one_shot_iterator().get_next())
          array([[0, 1],
                 [1, 2],
                 [2, 3]])
        """
        self._check_dense("window", but=(SparseTensor, RaggedTensor, specs.DatasetBase))
        if contains_variant(self._element):
            packed_windows = pack_elements(self).window(size, shift, stride, drop_remainder)
            windows: Dataset = unpack_windows(packed_windows, self._element)
            return windows
        numbers = [
            int64(value, label, 1)
            for value, label in (
                (size, "size"),
                (size if shift is None else shift, "shift"),
                (stride, "stride"),
            )
        ]
        form = nest.map_structure(
            lambda spec: specs.Spec(dtypes.variant, (), Dataset, spec), self._element
        )
        return self._chain("WindowDataset", *numbers, drops(drop_remainder), element=form)

    def __repr__(self) -> str:
        return (
            f"<weft.{type(self).__name__} shapes: {self.output_shapes}, types: {self.output_types}>"
        )


# ------------------------------------------------------------------------------ helpers


class _OpaqueSpec:
    """A wrapper that keeps a form from being flattened."""

    __slots__ = ("form",)

    def __init__(self, form: Any) -> None:
        self.form = form


def _release(structure: Any) -> Any:
    return nest.map_structure(lambda element: element.form, structure)


def _bounds(*values: Any) -> list[Output]:
    return [
        int64(value, label) for value, label in zip(values, ("start", "stop", "step"), strict=True)
    ]


class DatasetSpec(specs.ElementsSpec):
    """The spec of a dataset, or of a tensor of datasets.

    Args:
      element_spec: a structure of specs of the elements.
      dataset_shape: [] for a dataset; otherwise the shape of a tensor of datasets, as batches of
        windows have.

    Examples:
      >>> wf.data.DatasetSpec(wf.TensorSpec([], wf.int64)).is_compatible_with(
      ...     wf.data.Dataset.range(3)
      ... )
      True
      >>> wf.data.Dataset.range(4).window(2).batch(2, drop_remainder=True).element_spec
      DatasetSpec(TensorSpec(shape=[], dtype=int64, name=None), [2])
    """

    __slots__ = ("_shape",)

    def __init__(self, element_spec: Any, dataset_shape: Any = ()) -> None:
        super().__init__(element_spec)
        self._shape = TensorShape(dataset_shape)

    @classmethod
    def from_value(cls, value: Dataset | specs.NestedVariant) -> Self:
        """Return the spec of a dataset or of a tensor of datasets."""
        return cls(value.element_spec, value._variant_tensor.dims)

    @property
    def value_type(self) -> type:
        """The class of values: `Dataset`, or `NestedVariant` for a tensor of datasets."""
        return Dataset if self._shape.as_list() == [] else specs.NestedVariant

    def as_spec(self) -> specs.Spec:
        """Return the component spec of this object."""
        return specs.Spec(dtypes.variant, as_dims(self._shape), Dataset, self._form)

    def _details(self) -> tuple[Any, ...]:
        return (self.element_spec, self._shape)


register_type_spec(Dataset, DatasetSpec.from_value)
register_type_spec(specs.NestedVariant, DatasetSpec.from_value)

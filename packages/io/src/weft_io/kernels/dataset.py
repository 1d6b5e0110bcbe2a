"""Kernels of datasets, which create descriptions, and of iterators, which produce elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.registry import KernelFunction, kernel
from weft_exec.resources.resources import CompletionCallback, ResourceHandle
from weft_graph.ops.control import py_function_of
from weft_io.records.fixed import FixedLengthSource
from weft_io.records.options import TFRecordOptions
from weft_io.records.text_lines import LineSource
from weft_io.records.tfrecord import TFRecordSource
from weft_io.resources.handles import allocator, holder, resource_of
from weft_io.resources.values import keeper
from weft_io.streams import batches, files, forwarding, generators, mapping, parallel, sources
from weft_io.streams.caching import MemoryCacheSource
from weft_io.streams.caching_files import FileCacheSource
from weft_io.streams.calls import bind_captured, call_of, convert_end_of_sequence, threads_for
from weft_io.streams.iterator_resource import IteratorResource
from weft_io.streams.prefetching import PrefetchSource
from weft_io.streams.shuffling import ShuffleSource
from weft_io.streams.stream import Call, DerivedSource, Part, Source, graph_value, shape_of
from weft_tensor import errors
from weft_tensor.shape import Dims, compatible_dims, format_dims

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_exec.kernels.context import StepContext
    from weft_graph.ir.node import Node

# ------------------------------------------------------------------------------ values


@kernel("TensorDataset")
def _tensors(node: Node, device: Device) -> KernelFunction:
    keep = keeper(node, 0)
    return lambda *values: sources.TensorSource(keep(values))


@kernel("TensorSliceDataset")
def _slices(node: Node, device: Device) -> KernelFunction:
    keep = keeper(node, 0)
    return lambda *values: sources.SliceSource(keep(values))


@kernel("RangeDataset")
def _range(node: Node, device: Device) -> KernelFunction:
    dtype = node.attrs["output_types"][0].numpy
    return lambda start, stop, step: sources.RangeSource(int(start), int(stop), int(step), dtype)


@kernel("PythonGeneratorDataset")
def _generator(node: Node, device: Device) -> KernelFunction:
    function = py_function_of(node.attrs["token"])
    types, shapes = node.attrs["output_types"], node.attrs["output_shapes"]
    assert isinstance(function, generators.GeneratorFunction)
    keep = keeper(node, 0)

    def run(*args: Any) -> Source:
        values = [a[()] if isinstance(a, np.ndarray) and not a.ndim else a for a in keep(args)]
        return generators.GeneratorSource(function, values, types, shapes)

    return run


# ------------------------------------------------------------------------------- files


def _paths(value: Any) -> list[str]:
    return [path.decode("utf-8", "surrogateescape") for path in np.asarray(value).ravel().tolist()]


def _compression(value: Any) -> str:
    return TFRecordOptions.get_compression_type_string(np.asarray(value).item().decode())


@kernel("TFRecordDataset")
def _tfrecords(node: Node, device: Device) -> KernelFunction:
    def run(names: Any, compression: Any, buffer_size: Any) -> Source:
        kind = _compression(compression)
        return files.RecordsSource(
            "TFRecord", _paths(names), lambda path, offset: TFRecordSource(path, kind, offset)
        )

    return run


@kernel("TextLineDataset")
def _lines(node: Node, device: Device) -> KernelFunction:
    def run(names: Any, compression: Any, buffer_size: Any) -> Source:
        kind = _compression(compression)
        return files.RecordsSource(
            "TextLine", _paths(names), lambda path, offset: LineSource(path, kind, offset)
        )

    return run


@kernel("FixedLengthRecordDatasetV2")
def _fixed_length_records(node: Node, device: Device) -> KernelFunction:
    def run(
        names: Any, header: Any, record: Any, footer: Any, buffer_size: Any, compression: Any
    ) -> Source:
        kind = _compression(compression)
        sizes = int(header), int(record), int(footer)
        for label, size, minimum in zip(
            ("header", "record", "footer"), sizes, (0, 1, 0), strict=True
        ):
            if size < minimum:
                raise errors.InvalidArgumentError(f"{label}_bytes must be >= {minimum}, got {size}")
        header_bytes, length, footer_bytes = sizes
        return files.RecordsSource(
            "FixedLengthRecord",
            _paths(names),
            lambda path, offset: FixedLengthSource(
                path, length, header_bytes, footer_bytes, 0, kind, offset
            ),
        )

    return run


# ----------------------------------------------------------------------------- passing


@kernel("TakeDataset")
def _take(node: Node, device: Device) -> KernelFunction:
    return lambda source, count: DerivedSource(source, forwarding.TakeStream, int(count))


@kernel("SkipDataset")
def _skip(node: Node, device: Device) -> KernelFunction:
    return lambda source, count: DerivedSource(source, forwarding.SkipStream, int(count))


@kernel("RepeatDataset")
def _repeat(node: Node, device: Device) -> KernelFunction:
    return lambda source, count: forwarding.RepeatSource(source, int(count))


@kernel("ShardDataset")
def _shard(node: Node, device: Device) -> KernelFunction:
    return lambda source, number, index: forwarding.ShardSource(source, int(number), int(index))


@kernel("ConcatenateDataset")
def _concatenate(node: Node, device: Device) -> KernelFunction:
    return forwarding.ConcatenateSource


@kernel("ZipDataset")
def _zip(node: Node, device: Device) -> KernelFunction:
    return lambda *inputs: forwarding.ZipSource(inputs)


@kernel("PrefetchDataset")
def _prefetch(node: Node, device: Device) -> KernelFunction:
    return lambda source, size: PrefetchSource(source, int(size))


@kernel("ShuffleDataset")
def _shuffle(node: Node, device: Device) -> KernelFunction:
    reshuffles: bool = node.attrs["reshuffle_each_iteration"]
    return lambda source, size, seed, seed2: ShuffleSource(
        source, int(size), (int(seed), int(seed2)), reshuffles
    )


@kernel("CacheDataset")
def _cache(node: Node, device: Device) -> KernelFunction:
    types, shapes = node.attrs["output_types"], node.attrs["output_shapes"]
    parts = [Part(*part) for part in zip(types, shapes, strict=True)]

    def run(source: Source, name: Any) -> Source:
        (path,) = _paths(name)
        return FileCacheSource(source, path, parts) if path else MemoryCacheSource(source)

    return run


# ----------------------------------------------------------------------------- batches


@kernel("BatchDatasetV2")
def _batch(node: Node, device: Device) -> KernelFunction:
    empty = allocator(device)
    return lambda source, size, drop: batches.BatchSource(source, int(size), bool(drop), empty)


@kernel("PaddedBatchDatasetV2")
def _padded_batch(node: Node, device: Device) -> KernelFunction:
    empty = allocator(device)
    count: int = node.attrs["N"]

    def run(source: Source, size: Any, *remaining: Any) -> Source:
        shapes = [[int(n) for n in shape] for shape in remaining[:count]]
        padding = [
            value[()] if isinstance(value, np.ndarray) else value for value in remaining[count:-1]
        ]
        return batches.PaddedBatchSource(
            source, int(size), bool(remaining[-1]), empty, shapes, padding
        )

    return run


@kernel("UnbatchDataset")
def _unbatch(node: Node, device: Device) -> KernelFunction:
    return batches.UnbatchSource


# --------------------------------------------------------------------------- functions


def _function(
    node: Node, attribute: str, device: Device, numbers: int = 0
) -> Callable[[Sequence[Any]], Call]:
    """Return a getter of the function of a node, with its captured values bound.

    Args:
      numbers: number of inputs after the captured values.
    """
    call: Call = call_of(node, attribute, device)
    if node.attrs.get("preserve_cardinality", True):  # only some maps may end by a function
        call = convert_end_of_sequence(call)
    keep = keeper(node, 1)
    end = len(node.inputs) - 1 - numbers
    return lambda inputs: bind_captured(call, keep(inputs)[:end])


@kernel("MapDataset")
def _map(node: Node, device: Device) -> KernelFunction:
    function = _function(node, "f", device)
    return lambda *inputs: DerivedSource(inputs[0], mapping.MapStream, function(inputs))


@kernel("ParallelMapDataset")
def _parallel_map(node: Node, device: Device) -> KernelFunction:
    function = _function(node, "f", device, 1)

    def run(*inputs: Any) -> Source:
        limit, pool = threads_for(_parallel_calls(inputs[-1]), device)
        return DerivedSource(inputs[0], parallel.ParallelMapStream, function(inputs), limit, pool)

    return run


def _parallel_calls(value: Any) -> int:
    calls = int(value)
    if calls < 1 and calls != -1:
        raise errors.InvalidArgumentError(
            f"num_parallel_calls must be greater than zero, or -1 for AUTOTUNE, got {calls}"
        )
    return calls


@kernel("FilterDataset")
def _filter(node: Node, device: Device) -> KernelFunction:
    function = _function(node, "predicate", device)
    return lambda *inputs: DerivedSource(inputs[0], mapping.FilterStream, function(inputs))


@kernel("FlatMapDataset")
def _flat_map(node: Node, device: Device) -> KernelFunction:
    function = _function(node, "f", device)
    return lambda *inputs: mapping.FlatMapSource(inputs[0], function(inputs))


@kernel("InterleaveDataset")
def _interleave(node: Node, device: Device) -> KernelFunction:
    function = _function(node, "f", device, 2)

    def run(*inputs: Any) -> Source:
        source, cycle, block = inputs[0], *inputs[-2:]
        return mapping.InterleaveSource(source, function(inputs), int(cycle), int(block))

    return run


@kernel("ParallelInterleaveDatasetV2")
def _parallel_interleave(node: Node, device: Device) -> KernelFunction:
    function = _function(node, "f", device, 3)

    def run(*inputs: Any) -> Source:
        source, cycle, block, calls = inputs[0], *inputs[-3:]
        limit, _ = threads_for(_parallel_calls(calls), device)
        return parallel.ParallelInterleaveSource(
            source, function(inputs), int(cycle), int(block), limit
        )

    return run


# --------------------------------------------------------------------------- iterators


@kernel("IteratorV2")
def _iterator(node: Node, device: Device) -> KernelFunction:
    return _holder(node, device, None)


@kernel("OneShotIterator")
def _one_shot(node: Node, device: Device) -> KernelFunction:
    call = call_of(node, "dataset_factory", device)
    return _holder(node, device, lambda: call(())[0])


def _holder(node: Node, device: Device, make: Callable[[], Source] | None) -> KernelFunction:
    types, shapes = node.attrs["output_types"], node.attrs["output_shapes"]
    # contents of a named container outlive the session
    owner = None if node.attrs["container"] else device.resources.owner
    return holder(
        node,
        device,
        IteratorResource,
        lambda name: IteratorResource(name, types, shapes, make, owner),
        lambda result: result.check_gives(types, shapes),
    )


@kernel("MakeIterator")
def _make_iterator(node: Node, device: Device) -> KernelFunction:
    name = node.name
    return lambda source, handle: resource_of(handle, IteratorResource).start(source, name)


class _CheckedCallback:
    """A callback that returns an element as the outputs of a node, after checking the shapes."""

    __slots__ = ("_done", "_shapes", "fail")

    def __init__(self, completion: CompletionCallback, shapes: Sequence[Dims]) -> None:
        self._done = completion
        self._shapes = shapes
        self.fail = completion.fail

    def __call__(self, value: Any = None) -> None:
        for i, (part, dims) in enumerate(zip(value, self._shapes, strict=False)):
            if not compatible_dims(dims, shape_of(part)):
                self.fail(
                    errors.InvalidArgumentError(
                        f"component {i} of the element must have shape {format_dims(dims)}, got "
                        f"{format_dims(shape_of(part))}"
                    )
                )
                return
        values = tuple([graph_value(part) for part in value])
        self._done(values[0] if len(values) == 1 else values)


@kernel("IteratorGetNext")
def _get_next(node: Node, device: Device) -> KernelFunction:
    types, shapes = node.attrs["output_types"], node.attrs["output_shapes"]
    cached: tuple[IteratorResource | None, Sequence[Dims]] = (None, ())

    def run(ctx: StepContext, inputs: Sequence[Any], completion: CompletionCallback) -> None:
        nonlocal cached
        iterator = resource_of(inputs[0], IteratorResource)
        resource, requested = cached
        if iterator is not resource:
            iterator.check_gives(types, shapes)
            # Shapes that the iterator checks itself need no check here.
            requested = () if iterator.shapes == tuple(shapes) else shapes
            cached = iterator, requested
        iterator.get_next(_CheckedCallback(completion, requested), ctx.cancellation)

    return run


@kernel("IteratorToStringHandle")
def _to_string(node: Node, device: Device) -> KernelFunction:
    def run(handle: Any) -> Any:
        resource = resource_of(handle, IteratorResource)
        return np.array(f"{resource.container}\n{resource.name}".encode(), object)

    return run


@kernel("IteratorFromStringHandleV2")
def _from_string(node: Node, device: Device) -> KernelFunction:
    types, shapes = node.attrs["output_types"], node.attrs["output_shapes"]

    def run(text: Any) -> Any:
        data = np.asarray(text).item()
        container, _, name = data.decode("utf-8", "replace").partition("\n")
        result = device.resources.lookup(container, name, IteratorResource)
        result.check_gives(types or result.types, shapes or result.shapes)
        return ResourceHandle(device.name, result.container, result.name, result)

    return run


@kernel("IteratorSerializeState")
def _serialize(node: Node, device: Device) -> KernelFunction:
    return lambda handle: np.array(resource_of(handle, IteratorResource).serialize(), object)


@kernel("IteratorRestoreState")
def _restore(node: Node, device: Device) -> KernelFunction:
    def run(handle: Any, state: Any) -> None:
        resource_of(handle, IteratorResource).restore(np.asarray(state).item())

    return run

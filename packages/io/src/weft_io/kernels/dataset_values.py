"""Kernels of reductions over all elements of a dataset, and of optional values."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.registry import KernelFunction, kernel
from weft_exec.resources.resources import CompletionCallback
from weft_io.kernels.dataset_experimental import text
from weft_io.records.options import TFRecordOptions
from weft_io.records.tfrecord import TFRecordWriter
from weft_io.resources.handles import resource_of
from weft_io.resources.values import keeper
from weft_io.streams.calls import bind_captured, call_of
from weft_io.streams.iterator_resource import IteratorResource
from weft_io.streams.optional import OptionalValue
from weft_io.streams.stream import (
    Element,
    Root,
    Source,
    add_location,
    component,
    graph_value,
    shape_of,
)
from weft_tensor import errors
from weft_tensor.shape import Dims, compatible_dims, format_dims

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_exec.kernels.context import StepContext
    from weft_graph.ir.node import Node


def _results(element: Sequence[Any], shapes: Sequence[Dims]) -> Any:
    """Return an element as the outputs of a node, after checking the specs."""
    for i, (value, dims) in enumerate(zip(element, shapes, strict=True)):
        if not compatible_dims(dims, shape_of(value)):
            raise errors.InvalidArgumentError(
                f"component {i} must have shape {format_dims(dims)}, got "
                f"{format_dims(shape_of(value))}"
            )
    values = tuple([graph_value(value) for value in element])
    return values[0] if len(values) == 1 else values


def elements_in(ctx: StepContext, source: Source) -> Iterator[tuple[Element, str]]:
    """Yield all elements, each with its source.

    Raises: DeadlineExceededError, CancelledError, ...: the step timed out or failed, which ends
      iteration over endless datasets, too.
    """
    with closing(source.iterate(Root())) as stream:
        while (element := stream.get()) is not None:
            _check_goes_on(ctx)
            yield element, stream.location()


def _check_goes_on(ctx: StepContext) -> None:
    if ctx.cancellation.error is not None:
        raise ctx.cancellation.error
    if ctx.deadline is not None and time.monotonic() > ctx.deadline:
        raise errors.DeadlineExceededError(
            "the step's deadline passed before the end of the dataset"
        )


@kernel("ReduceDataset")
def _reduce(node: Node, device: Device) -> KernelFunction:
    call = call_of(node, "f", device)
    keep = keeper(node, 1)
    count = len(node.attrs["Tstate"])
    shapes = node.attrs["output_shapes"]

    def run(ctx: StepContext, inputs: Sequence[Any], completion: CompletionCallback) -> None:
        remaining = keep(inputs)
        state = tuple([component(value) for value in remaining[:count]])
        function = bind_captured(call, remaining[count:])
        for element, location in elements_in(ctx, inputs[0]):
            try:
                state = function((*state, *element))
            except errors.OpError as error:
                add_location(error, location)
                raise
        completion(_results(state, shapes))

    return run


@kernel("DatasetToSingleElement", heavy=True)
def _single(node: Node, device: Device) -> KernelFunction:
    shapes = node.attrs["output_shapes"]

    def run(source: Source) -> Any:
        with closing(source.iterate(Root())) as stream:
            element = stream.get()
            if element is None:
                raise errors.InvalidArgumentError("Dataset was empty.")
            if stream.get() is not None:
                raise errors.InvalidArgumentError("Dataset had more than one element.")
        return _results(element, shapes)

    return run


@kernel("DatasetCardinality")
def _cardinality(node: Node, device: Device) -> KernelFunction:
    return lambda source: np.int64(source.cardinality())


@kernel("DatasetToTFRecord")
def _write(node: Node, device: Device) -> KernelFunction:
    def run(ctx: StepContext, inputs: Sequence[Any], completion: CompletionCallback) -> None:
        source, filename, compression = inputs
        kind = TFRecordOptions.get_compression_type_string(text(compression))
        with TFRecordWriter(text(filename), kind) as writer:
            for (record, *_), _location in elements_in(ctx, source):
                if type(record) is not bytes:
                    raise errors.InvalidArgumentError(
                        "DatasetToTFRecord requires elements that are one string each, got "
                        f"{type(record).__name__}"
                    )
                writer.write(record)
        completion()

    return run


# ---------------------------------------------------------------------------- optional values


@kernel("OptionalFromValue")
def _from_value(node: Node, device: Device) -> KernelFunction:
    keep = keeper(node, 0)
    return lambda *values: OptionalValue(tuple([component(value) for value in keep(values)]))


@kernel("OptionalNone")
def _optional_none(node: Node, device: Device) -> KernelFunction:
    return lambda: OptionalValue(None)


@kernel("OptionalHasValue")
def _has_value(node: Node, device: Device) -> KernelFunction:
    return lambda value: np.bool_(_optional(value).element is not None)


@kernel("OptionalGetValue")
def _get_value(node: Node, device: Device) -> KernelFunction:
    shapes = node.attrs["output_shapes"]

    def run(value: Any) -> Any:
        element = _optional(value).element
        if element is None:
            raise errors.InvalidArgumentError(
                "The given optional does not have a value: check has_value() first."
            )
        return _results(element, shapes)

    return run


def _optional(value: Any) -> OptionalValue:
    if not isinstance(value, OptionalValue):
        raise errors.InvalidArgumentError(
            f"an optional value is required, got {type(value).__name__}"
        )
    return value


class _Wrapped:
    """A callback that wraps an element as an optional, and the end as an empty optional."""

    __slots__ = ("_done",)

    def __init__(self, completion: CompletionCallback) -> None:
        self._done = completion

    def __call__(self, value: Any = None) -> None:
        self._done(OptionalValue(value))

    def fail(self, error: BaseException) -> None:
        """Pass an error on, except for the end of the dataset."""
        if isinstance(error, errors.OutOfRangeError):
            self._done(OptionalValue(None))
        else:
            self._done.fail(error)


@kernel("IteratorGetNextAsOptional")
def _get_next(node: Node, device: Device) -> KernelFunction:
    types, shapes = node.attrs["output_types"], node.attrs["output_shapes"]

    def run(ctx: StepContext, inputs: Sequence[Any], completion: CompletionCallback) -> None:
        iterator = resource_of(inputs[0], IteratorResource)
        iterator.check_gives(types, shapes)
        wrapped = _Wrapped(completion)
        try:
            iterator.get_next(wrapped, ctx.cancellation)
        except errors.OutOfRangeError as error:
            wrapped.fail(error)

    return run

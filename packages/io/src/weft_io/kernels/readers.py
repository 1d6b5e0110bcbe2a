"""Kernels of readers: asynchronous reads, which block no thread while they wait for a name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft_exec.kernels.registry import KernelFunction, kernel
from weft_exec.resources.resources import CompletionCallback
from weft_io.records.columns import to_strings
from weft_io.records.reader import Reader
from weft_io.resources.handles import holder, resource_of
from weft_io.resources.queue import Queue
from weft_io.resources.reader import ReaderResource
from weft_io.resources.values import items_of, number_of, shape_of
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_exec.kernels.context import StepContext
    from weft_graph.ir.node import Node

# --------------------------------------------------------------------------- holders

_SETTINGS: Final[dict[str, tuple[str, ...]]] = {
    "IdentityReaderV2": (),
    "WholeFileReaderV2": (),
    "TextLineReaderV2": ("skip_header_lines",),
    "TFRecordReaderV2": ("compression_type",),
    "FixedLengthRecordReaderV2": (
        "record_bytes",
        "header_bytes",
        "footer_bytes",
        "hop_bytes",
        "encoding",
    ),
    "ParquetReaderV2": ("columns",),
}


@kernel(*_SETTINGS)
def _reader(node: Node, device: Device) -> KernelFunction:
    flavour = node.type.removesuffix("V2")
    settings = {name: _to_list(node.attrs[name]) for name in _SETTINGS[node.type]}

    def make(name: str) -> ReaderResource:
        return ReaderResource(name, Reader(flavour, settings))

    def check(reader_resource: ReaderResource) -> None:
        reader = reader_resource.reader
        if (reader.kind, reader.settings) != (flavour, settings):
            raise errors.InvalidArgumentError(
                f"shared reader {reader_resource.name!r} is a {reader.kind} with "
                f"{reader.settings}, but a {flavour} with {settings} is required"
            )

    return holder(node, device, ReaderResource, make, check)


def _to_list(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


# --------------------------------------------------------------------------- reading


class _Unpacked:
    """A callback that returns records as the outputs of a node."""

    __slots__ = ("_done", "_is_many", "fail")

    def __init__(self, completion: CompletionCallback, is_batch: bool) -> None:
        self._done = completion
        self._is_many = is_batch
        self.fail = completion.fail

    def __call__(self, value: Any = None) -> None:
        keys, values = to_strings(value[0]), to_strings(value[1])
        if not self._is_many:
            keys, values = keys.reshape(()), values.reshape(())
        self._done((keys, values))


@kernel("ReaderReadV2")
def _read(node: Node, device: Device) -> KernelFunction:
    def run(ctx: StepContext, inputs: Sequence[Any], completion: CompletionCallback) -> None:
        reader, queue = resource_of(inputs[0], ReaderResource), resource_of(inputs[1], Queue)
        reader.read(queue, 1, _Unpacked(completion, is_batch=False), ctx.cancellation)

    return run


@kernel("ReaderReadUpToV2")
def _read_up_to(node: Node, device: Device) -> KernelFunction:
    def run(ctx: StepContext, inputs: Sequence[Any], completion: CompletionCallback) -> None:
        reader, queue = resource_of(inputs[0], ReaderResource), resource_of(inputs[1], Queue)
        limit = number_of(inputs[2], "num_records")
        if limit < 0:
            raise errors.InvalidArgumentError(f"num_records must not be negative, got {limit}")
        unpacked = _Unpacked(completion, is_batch=True)
        if limit:
            reader.read(queue, limit, unpacked, ctx.cancellation)
        else:
            unpacked(([], []))

    return run


# ----------------------------------------------------------------------------- state


def _call_reader(function: Callable[[Reader], Any]) -> KernelFunction:
    return lambda handle: resource_of(handle, ReaderResource).locked(function)


@kernel("ReaderNumRecordsProducedV2")
def _records_produced(node: Node, device: Device) -> KernelFunction:
    return _call_reader(lambda reader: np.int64(reader.records_produced))


@kernel("ReaderNumWorkUnitsCompletedV2")
def _work_units_completed(node: Node, device: Device) -> KernelFunction:
    return _call_reader(lambda reader: np.int64(reader.work_units_completed))


@kernel("ReaderSerializeStateV2")
def _serialize(node: Node, device: Device) -> KernelFunction:
    return _call_reader(lambda reader: np.array(reader.serialize(), object))


@kernel("ReaderRestoreStateV2")
def _restore(node: Node, device: Device) -> KernelFunction:
    def run(handle: Any, state: Any) -> None:
        states = items_of(state, "states") if shape_of(state) else [state.item()]
        resource_of(handle, ReaderResource).locked(lambda reader: reader.restore(*states))

    return run


@kernel("ReaderResetV2")
def _reset(node: Node, device: Device) -> KernelFunction:
    return _call_reader(lambda reader: reader.reset())

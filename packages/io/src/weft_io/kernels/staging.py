"""Kernels of staging areas; waiting kernels block no thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from weft_exec.kernels.registry import KernelFunction, kernel
from weft_exec.resources.resources import CompletionCallback
from weft_io.resources.handles import find
from weft_io.resources.staging import MapStagingArea, StagingArea
from weft_io.resources.values import Unpacked, items_of, keeper, number_of
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_exec.kernels.context import StepContext
    from weft_graph.ir.node import Node

A = TypeVar("A", StagingArea, MapStagingArea)


def _area(
    node: Node, device: Device, cls: type[A], make: Callable[[str, int, int], A]
) -> Callable[[], A]:
    """Return a getter of the staging area of a node, which is created at the first use."""
    limits = node.attrs["capacity"], node.attrs["memory_limit"]
    result: A | None = None

    def check(area: A) -> None:
        if (area.capacity, area.memory_limit) != limits:
            raise errors.InvalidArgumentError(
                f"the staging area {area.name!r} has capacity {area.capacity} and memory limit "
                f"{area.memory_limit}, but {limits[0]} and {limits[1]} were requested"
            )

    def current() -> A:
        nonlocal result
        if result is None or result.closed:
            result = find(node, device, cls, lambda name: make(name, *limits), check)
        return result

    return current


def _staging_area(node: Node, device: Device) -> Callable[[], StagingArea]:
    return _area(node, device, StagingArea, StagingArea)


def _map(node: Node, device: Device) -> Callable[[], MapStagingArea]:
    ordered = node.type.startswith("Ordered")
    area = _area(
        node,
        device,
        MapStagingArea,
        lambda name, capacity, limit: MapStagingArea(name, ordered, capacity, limit),
    )

    def current() -> MapStagingArea:
        result = area()
        if result.ordered != ordered:
            raise errors.InvalidArgumentError(
                f"the staging area {result.name!r} is {'' if result.ordered else 'not '}ordered, "
                f"unlike that of {node.type}"
            )
        return result

    return current


def _answer(node: Node, completion: CompletionCallback) -> CompletionCallback:
    return Unpacked(completion) if len(node.outputs) == 1 else completion


@kernel("Stage")
def _stage(node: Node, device: Device) -> KernelFunction:
    area = _staging_area(node, device)
    keep = keeper(node, 0)

    def run(ctx: StepContext, inputs: Sequence[Any], completion: CompletionCallback) -> None:
        area().put(keep(inputs), completion, ctx.cancellation)

    return run


@kernel("Unstage")
def _unstage(node: Node, device: Device) -> KernelFunction:
    area = _staging_area(node, device)

    def run(ctx: StepContext, inputs: Sequence[Any], completion: CompletionCallback) -> None:
        area().get(_answer(node, completion), ctx.cancellation)

    return run


@kernel("StagePeek")
def _stage_peek(node: Node, device: Device) -> KernelFunction:
    area = _staging_area(node, device)

    def run(ctx: StepContext, inputs: Sequence[Any], completion: CompletionCallback) -> None:
        area().peek(number_of(inputs[0], "index"), _answer(node, completion), ctx.cancellation)

    return run


@kernel("StageSize")
def _stage_size(node: Node, device: Device) -> KernelFunction:
    area = _staging_area(node, device)
    return lambda: np.int32(area().size())


@kernel("StageClear")
def _stage_clear(node: Node, device: Device) -> KernelFunction:
    area = _staging_area(node, device)
    return lambda: area().clear()


@kernel("MapStage", "OrderedMapStage")
def _map_stage(node: Node, device: Device) -> KernelFunction:
    area = _map(node, device)
    keep = keeper(node, 2)
    dtypes, staged_dtypes = tuple(node.attrs["dtypes"]), tuple(node.attrs["fake_dtypes"])

    def run(ctx: StepContext, inputs: Sequence[Any], completion: CompletionCallback) -> None:
        indices = items_of(inputs[1], "indices")
        for index, dtype in zip(indices, staged_dtypes, strict=False):
            if 0 <= index < len(dtypes) and dtypes[index] != dtype:
                raise errors.InvalidArgumentError(
                    f"component {index} is {dtypes[index].name}, got {dtype.name}"
                )
        values = keep(inputs)
        key = number_of(inputs[0], "key")
        area().put(key, indices, values, len(dtypes), completion, ctx.cancellation)

    return run


@kernel("MapUnstage", "OrderedMapUnstage", "MapPeek", "OrderedMapPeek")
def _map_unstage(node: Node, device: Device) -> KernelFunction:
    area = _map(node, device)
    remove = node.type.endswith("Unstage")
    count = len(node.outputs)

    def run(ctx: StepContext, inputs: Sequence[Any], completion: CompletionCallback) -> None:
        indices = items_of(inputs[1], "indices")
        _check_count(len(indices), count)
        expected = _answer(node, completion)
        key = number_of(inputs[0], "key")
        area().get(key, indices, expected, ctx.cancellation, remove=remove)

    return run


@kernel("MapUnstageNoKey", "OrderedMapUnstageNoKey")
def _map_unstage_no_key(node: Node, device: Device) -> KernelFunction:
    area = _map(node, device)
    count = len(node.outputs) - 1

    def run(ctx: StepContext, inputs: Sequence[Any], completion: CompletionCallback) -> None:
        indices = items_of(inputs[0], "indices")
        _check_count(len(indices), count)
        area().pop(indices, completion, ctx.cancellation)

    return run


def _check_count(indices: int, outputs: int) -> None:
    if indices != outputs:
        raise errors.InvalidArgumentError(
            f"requires an index per output, got {indices} indices for {outputs} outputs"
        )


@kernel("MapSize", "OrderedMapSize")
def _map_size(node: Node, device: Device) -> KernelFunction:
    area = _map(node, device)
    return lambda: np.int32(area().size())


@kernel("MapIncompleteSize", "OrderedMapIncompleteSize")
def _map_incomplete_size(node: Node, device: Device) -> KernelFunction:
    area = _map(node, device)
    return lambda: np.int32(area().incomplete_size())


@kernel("MapClear", "OrderedMapClear")
def _map_clear(node: Node, device: Device) -> KernelFunction:
    area = _map(node, device)
    return lambda: area().clear()

"""Kernels of further dataset transformations, which create descriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.registry import KernelFunction, kernel
from weft_io.records.csv import CsvDecoder
from weft_io.records.options import TFRecordOptions
from weft_io.resources.values import keeper
from weft_io.streams import scans, selection, tabular, windows
from weft_io.streams.calls import bind_captured, call_of, convert_end_of_sequence
from weft_io.streams.stream import Call, DerivedSource, Source, component
from weft_tensor import errors

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node


def text(value: Any) -> str:
    """Return the text of a string of shape ()."""
    result: str = np.asarray(value).item().decode("utf-8", "surrogateescape")
    return result


def _functions(
    node: Node, device: Device, names: Sequence[str]
) -> Callable[[Sequence[Any]], list[Call]]:
    """Return a getter of the functions of a node, each with its captured values bound.

    Args:
      names: names of the function attributes; the types of captured values are in
        T<name>_other_arguments.
    """
    calls = [call_of(node, name, device) for name in names]
    counts = [len(node.attrs[f"T{name}_other_arguments"]) for name in names]
    keep = keeper(node, 1)

    def concatenate_calls(inputs: Sequence[Any]) -> list[Call]:
        remaining = list(keep(inputs))
        result = []
        for call, count in zip(calls, counts, strict=True):
            result.append(bind_captured(call, remaining[:count]))
            del remaining[:count]
        return result

    return concatenate_calls


@kernel("WindowDataset")
def _window(node: Node, device: Device) -> KernelFunction:
    return lambda source, size, shift, stride, drop: DerivedSource(
        source, windows.WindowStream, int(size), int(shift), int(stride), bool(drop)
    )


@kernel("ScanDataset")
def _scan(node: Node, device: Device) -> KernelFunction:
    call: Call = call_of(node, "f", device)
    if node.attrs["preserve_cardinality"]:
        call = convert_end_of_sequence(call)
    keep = keeper(node, 1)
    count = len(node.attrs["Tstate"])

    def run(*inputs: Any) -> Source:
        remaining = keep(inputs)
        state = tuple([component(value) for value in remaining[:count]])
        return DerivedSource(
            inputs[0], scans.ScanStream, state, bind_captured(call, remaining[count:])
        )

    return run


@kernel("TakeWhileDataset")
def _take_while(node: Node, device: Device) -> KernelFunction:
    call = convert_end_of_sequence(call_of(node, "predicate", device))
    keep = keeper(node, 1)
    return lambda *inputs: DerivedSource(
        inputs[0], scans.TakeWhileStream, bind_captured(call, keep(inputs))
    )


@kernel("GroupByWindowDataset")
def _group_by_window(node: Node, device: Device) -> KernelFunction:
    functions = _functions(node, device, ("key_func", "reduce_func", "window_size_func"))
    return lambda *inputs: windows.GroupByWindowSource(inputs[0], *functions(inputs))


@kernel("GroupByReducerDataset")
def _group_by_reducer(node: Node, device: Device) -> KernelFunction:
    names = ("key_func", "init_func", "reduce_func", "finalize_func")
    functions = _functions(node, device, names)
    return lambda *inputs: DerivedSource(
        inputs[0], windows.GroupByReducerStream, *functions(inputs)
    )


@kernel("UniqueDataset")
def _unique(node: Node, device: Device) -> KernelFunction:
    return lambda source: DerivedSource(source, scans.UniqueStream)


@kernel("IgnoreErrorsDataset")
def _ignore_errors(node: Node, device: Device) -> KernelFunction:
    log: bool = node.attrs["log_warning"]
    return lambda source: DerivedSource(source, scans.IgnoreErrorsStream, log)


@kernel("AssertCardinalityDataset")
def _assert_cardinality(node: Node, device: Device) -> KernelFunction:
    return lambda source, count: DerivedSource(source, scans.AssertCardinalityStream, int(count))


@kernel("DirectedInterleaveDataset")
def _directed_interleave(node: Node, device: Device) -> KernelFunction:
    stop: bool = node.attrs["stop_on_empty_dataset"]
    return lambda selector, *inner: selection.DirectedInterleaveSource(selector, inner, stop)


@kernel("DenseToSparseBatchDataset")
def _dense_to_sparse(node: Node, device: Device) -> KernelFunction:
    def run(source: Source, size: Any, shape: Any) -> Source:
        sizes = tuple([int(n) for n in np.asarray(shape)])
        return windows.SparseBatchSource(source, int(size), sizes)

    return run


@kernel("RandomDataset")
def _random(node: Node, device: Device) -> KernelFunction:
    return lambda seed, seed2: selection.RandomSource((int(seed), int(seed2)))


@kernel("CSVDataset")
def _csv(node: Node, device: Device) -> KernelFunction:
    types = node.attrs["output_types"]

    def run(
        names: Any,
        compression: Any,
        buffer_size: Any,
        header: Any,
        delimiter: Any,
        quotes: Any,
        na_value: Any,
        columns: Any,
        *defaults: Any,
    ) -> Source:
        selected = np.asarray(columns).tolist()
        if selected != sorted(set(selected)) or (selected and selected[0] < 0):
            raise errors.InvalidArgumentError(
                f"select_cols must be non-negative and strictly increasing, got {selected}"
            )
        separator = np.asarray(delimiter).item()
        if len(separator) != 1:
            raise errors.InvalidArgumentError(
                f"field_delim should be only 1 char, got {separator!r}"
            )
        paths = [
            path.decode("utf-8", "surrogateescape") for path in np.asarray(names).ravel().tolist()
        ]
        missing = np.asarray(na_value).item()
        decoder = CsvDecoder(types, separator, bool(quotes), missing, selected, blank=True)
        kind = TFRecordOptions.get_compression_type_string(text(compression))
        values = [_default(np.asarray(default)) for default in defaults]
        return tabular.CsvSource(paths, kind, bool(header), decoder, values)

    return run


def _default(default: np.ndarray[Any, Any]) -> Any:
    if default.size > 1:
        raise errors.InvalidArgumentError(
            f"each record default should have at most one element, got {default.size}"
        )
    return default.reshape(-1)[0] if default.size else None


@kernel("SqlDataset")
def _sql(node: Node, device: Device) -> KernelFunction:
    types = node.attrs["output_types"]

    def run(driver: Any, path: Any, query: Any) -> Source:
        if text(driver) != "sqlite":
            raise errors.InvalidArgumentError(
                f"the driver of a SqlDataset must be sqlite, got {text(driver)!r}"
            )
        return tabular.SqlSource(text(path), text(query), types)

    return run

"""Kernels that save and restore checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft_exec.kernels.common import new_array
from weft_exec.kernels.registry import KernelFunction, kernel
from weft_graph.ir.traits import Role
from weft_io.checkpoint import held_tensors
from weft_io.checkpoint.encoding import check_saveable
from weft_io.checkpoint.reader import TensorRequest, read_tensors
from weft_io.checkpoint.save_items import Item
from weft_io.checkpoint.writer import write_checkpoint
from weft_io.kernels.bundle import is_part_of_bundle
from weft_tensor import errors
from weft_tensor.shape import Dims

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node, Output


@kernel("SaveV2", heavy=True)
def _save(node: Node, device: Device) -> KernelFunction:
    items_of = _items(node)

    def run(prefix: Any, names: Any, specs: Any, *tensors: Any) -> None:
        from weft_io.bundle.writer import write_bundle

        path = _text(prefix)
        write = write_bundle if is_part_of_bundle(node, path) else write_checkpoint
        write(path, items_of(names, specs, tensors))

    return run


@kernel("HoldForSave")
def _hold(node: Node, device: Device) -> KernelFunction:
    items_of = _items(node)
    constant = [source.node.role in _SNAPSHOTS for source in node.inputs[2:]]
    last: list[str] = []

    def run(names: Any, specs: Any, *tensors: Any) -> Any:
        # What is fed, or shares memory with it, is the caller's again after the step.
        copies = [
            t if never_changes else np.array(t)
            for t, never_changes in zip(tensors, constant, strict=True)
        ]
        for name in last:  # that no one took
            held_tensors.drop(name)
        last[:] = [held_tensors.hold(items_of(names, specs, copies))]
        return np.array(last[0].encode(), object)

    return run


_SNAPSHOTS: Final = (Role.READ, Role.VARIABLE)
"""Nodes whose values are unaffected by later updates of the variable."""


def _items(node: Node) -> Callable[..., list[Item]]:
    """Return a function that converts names, slices and tensors to the items to write."""
    types = node.attrs["dtypes"]
    shards = node.attrs.get("_shards") or (0,) * len(types)
    for dtype in types:
        check_saveable(dtype, "a tensor")
    if len(shards) != len(types):
        raise errors.InvalidArgumentError(
            f"_shards must name a file for each of {len(types)} tensors, got {len(shards)}"
        )

    def items_of(names: Any, specs: Any, tensors: Sequence[Any]) -> list[Item]:
        _check_lengths(len(types), names, specs)
        columns = zip(names, types, tensors, specs, shards, strict=True)
        return [Item(_text(n), t, value, _text(s), shard) for n, t, value, s, shard in columns]

    return items_of


@kernel("RestoreV2", heavy=True)
def _restore(node: Node, device: Device) -> KernelFunction:
    optional = node.attrs.get("_optional", ())
    outputs = [(o.dtype, _required_shape(o), i in optional) for i, o in enumerate(node.outputs)]

    def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        return np.empty(shape, dtype) if dtype.hasobject else new_array(device, shape, dtype)

    def run(prefix: Any, names: Any, specs: Any) -> Any:
        _check_lengths(len(outputs), names, specs)
        expected = [
            TensorRequest(_text(name), _text(spec), *output)
            for name, spec, output in zip(names, specs, outputs, strict=True)
        ]
        tensors = read_tensors(_text(prefix), expected, empty)
        return tensors[0] if len(tensors) == 1 else tuple(tensors)

    return run


def _required_shape(output: Output) -> Dims:
    """Return the required shape of an output: its static shape, or that of its variable.

    In an imported graph only the variable has the shape. Checking before the restore keeps a
    mismatch from leaving some variables restored and others not.
    """
    if output.dims is not None:
        return output.dims
    for node in output.consumers():
        if node.role is not Role.ASSIGN:
            continue
        variable = node.inputs[0]
        if variable.dtype.is_ref and node.attrs["validate_shape"]:
            return variable.dims
        if not variable.dtype.is_ref and variable.node.role is Role.VARIABLE:
            dims: Dims = variable.node.attrs["shape"]
            return dims
    return None


def _check_lengths(number: int, names: Any, specs: Any) -> None:
    if names.shape != (number,) or specs.shape != (number,):
        raise errors.InvalidArgumentError(
            f"tensor_names and shape_and_slices must have shape [{number}], "
            f"got {list(names.shape)} and {list(specs.shape)}"
        )


def _text(value: Any) -> str:
    """Return a string element as text; bytes that are not UTF-8 are kept as surrogates."""
    if isinstance(value, np.ndarray):
        value = value.item()
    text: str = value.decode("utf-8", "surrogateescape")
    return text

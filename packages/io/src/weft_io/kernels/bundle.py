"""Kernels that name, write and merge bundles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.registry import KernelFunction, kernel

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node


@kernel("ShardedFilename")
def _sharded_filename(node: Node, device: Device) -> KernelFunction:
    def run(basename: Any, shard: Any, number: Any) -> Any:
        return _string(b"%s-%05d-of-%05d" % (_bytes(basename), int(shard), int(number)))

    return run


@kernel("ShardedFilespec")
def _sharded_filespec(node: Node, device: Device) -> KernelFunction:
    def run(basename: Any, number: Any) -> Any:
        return _string(b"%s-?????-of-%05d" % (_bytes(basename), int(number)))

    return run


@kernel("MergeV2Checkpoints", heavy=True)
def _merge(node: Node, device: Device) -> KernelFunction:
    delete, allow = node.attrs["delete_old_dirs"], node.attrs["allow_missing_files"]

    def run(prefixes: Any, destination: Any) -> None:
        from weft_io.bundle.merging import merge_bundles

        merge_bundles([_text(p) for p in prefixes], _text(destination), delete, allow)

    return run


def is_part_of_bundle(node: Node, prefix: str) -> bool:
    """Return True if a SaveV2 writes a part for a MergeV2Checkpoints, which requires bundles.

    If the node that names the part is on another device, the name decides.
    """
    if node.inputs[0].node.type == "ShardedFilename":
        return True
    from weft_io.bundle.merging import is_part

    return is_part(prefix)


def _string(value: bytes) -> Any:
    result: Any = np.empty((), object)
    result[()] = value
    return result


def _bytes(value: Any) -> bytes:
    item: bytes = value.item() if hasattr(value, "item") else value
    return item


def _text(value: Any) -> str:
    """Return a string element as text; bytes that are not UTF-8 are kept as surrogates."""
    return _bytes(value).decode("utf-8", "surrogateescape")

"""Kernels that read and write whole files and list names."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.registry import KernelFunction, kernel
from weft_io.files import gfile
from weft_io.records.columns import to_strings
from weft_io.records.whole_files import read_file

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node


@kernel("ReadFile", heavy=True)
def _read_file(node: Node, device: Device) -> KernelFunction:
    def run(filename: Any) -> Any:
        return np.array(read_file(os.fsdecode(filename.item())), object)

    return run


@kernel("WriteFile", heavy=True)
def _write_file(node: Node, device: Device) -> KernelFunction:
    def run(filename: Any, contents: Any) -> None:
        path = os.fsdecode(filename.item())
        directory = path.rpartition("/")[0]
        if directory and not directory.endswith((":/", "/")):
            gfile.makedirs(directory)
        with gfile.GFile(path, "wb") as file:
            file.write(contents.item())

    return run


@kernel("MatchingFiles", heavy=True)
def _matching_files(node: Node, device: Device) -> KernelFunction:
    def run(pattern: Any) -> Any:
        names = gfile.glob(pattern.reshape(-1).tolist())
        return to_strings([os.fsencode(name) for name in sorted(set(names))])

    return run

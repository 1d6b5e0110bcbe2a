"""Kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft_exec.devices.device import Device
from weft_exec.kernels.context import StepContext
from weft_exec.kernels.registry import kernel
from weft_exec.resources.resources import CompletionCallback
from weft_graph.ir.node import Node
from weft_stranger.tally import Tally


@kernel("StrangerDiagonal")
def _diagonal(node: Node, device: Device) -> Callable[..., Any]:
    return np.diagonal


def _tally(node: Node, device: Device) -> Tally:
    name = node.attrs["tally"]
    return device.resources.lookup_or_create("", name, Tally, lambda: Tally(name))


@kernel("StrangerTallyAdd")
def _add(node: Node, device: Device) -> Callable[..., Any]:
    return _tally(node, device).add


@kernel("StrangerTallyGet")
def _get(node: Node, device: Device) -> Callable[..., Any]:
    return _tally(node, device).get


@kernel("StrangerTallyAwait")
def _await(node: Node, device: Device) -> Callable[..., Any]:
    tally = _tally(node, device)

    def start(context: StepContext, inputs: Sequence[Any], done: CompletionCallback) -> None:
        tally.wait(inputs[0], done, context.cancellation)

    return start

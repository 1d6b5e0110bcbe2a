"""A small evaluator of graphs, independent of the executor: node by node, in order.

It looks up each kernel, runs it, and checks that what came out has exactly the declared element
type and fits the static shape, so that an op family can be tested by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from weft_exec.config import SessionConfig
from weft_exec.devices.device import Device
from weft_exec.devices.performance import default_performance
from weft_exec.kernels.registry import find_kernel
from weft_exec.resources.resources import ResourceManager
from weft_graph.ir.node import Node, Output
from weft_tensor import errors
from weft_tensor.shape import compatible_dims, format_dims


class HostDevice(Device):
    """The minimal device that kernels need."""

    type = "CPU"
    name = "/job:localhost/replica:0/task:0/device:CPU:0"
    xp = np
    performance = default_performance("CPU")
    memory_limit = 0

    def __init__(self) -> None:
        self.config = SessionConfig()
        self.pooled = 0
        self.resources = ResourceManager()
        self.empty = self._patterned

    def _patterned(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
        """Return an uninitialized array filled with a pattern that reveals reads."""
        self.pooled += 1
        array = np.empty(shape, dtype)
        if array.dtype.kind != "O":
            array.view(np.uint8).fill(0xAB)
        return array


class Evaluator:
    """Evaluates outputs; state lives as long as the evaluator.

    Args:
      strict: check element types and shapes of what kernels return.
    """

    def __init__(self, strict: bool = True) -> None:
        self.device = HostDevice()
        self.strict = strict
        self._kernels: dict[Node, Any] = {}

    def run(self, fetches: Any, feeds: Mapping[Output, Any] | None = None) -> Any:
        """Return the values of one output or node (None), or of a list of them."""
        single = isinstance(fetches, Output | Node)
        wanted = [fetches] if single else list(fetches)
        nodes = [item.node if isinstance(item, Output) else item for item in wanted]
        values: dict[Output, Any] = {
            key: np.asarray(value, key.dtype.base_dtype.numpy)
            for key, value in (feeds or {}).items()
        }
        with np.errstate(all="ignore"):
            for node in _needed(nodes, values):
                self._run_node(node, values)
        results = [_snapshot(values[i]) if isinstance(i, Output) else None for i in wanted]
        return results[0] if single else results

    def _run_node(self, node: Node, values: dict[Output, Any]) -> None:
        if node.outputs and all(output in values for output in node.outputs):
            return
        if node.type == "Const":
            values[node.outputs[0]] = node.attrs["value"]
            return
        if node.type == "NoOp":
            return
        inputs = [
            value if is_ref else _snapshot(value)
            for value, is_ref in zip(
                [values[source] for source in node.inputs], _ref_inputs(node), strict=True
            )
        ]
        frozen = [_freeze(value) for value in inputs]
        try:
            result = self._kernel(node)(*inputs)
        finally:
            for value, was_writeable in zip(inputs, frozen, strict=True):
                if was_writeable:
                    value.flags.writeable = True
        results = result if isinstance(result, tuple) else (result,) if node.outputs else ()
        assert len(results) == len(node.outputs), (node, results)
        for output, value in zip(node.outputs, results, strict=True):
            if self.strict:
                _check(output, value)
            values[output] = value

    def _kernel(self, node: Node) -> Any:
        fn = self._kernels.get(node)
        if fn is None:
            entry = find_kernel(node, "CPU")
            if entry is None:
                raise errors.UnimplementedError(f"no kernel for {node!r}")
            assert not entry.asynchronous, f"{node!r} needs the executor"
            fn = self._kernels[node] = entry.make(node, self.device)
        return fn


def evaluate(fetches: Any, feeds: Mapping[Output, Any] | None = None) -> Any:
    """Return the values of one output, or of a list of them, with fresh state."""
    return Evaluator().run(fetches, feeds)


def _freeze(value: Any) -> bool:
    """Make an array input read-only, because kernels never write into inputs."""
    if isinstance(value, np.ndarray) and value.flags.writeable:
        value.flags.writeable = False
        return True
    return False


def _needed(roots: Iterable[Node], values: Mapping[Output, Any]) -> list[Node]:
    seen: set[Node] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node in seen or (node.outputs and all(output in values for output in node.outputs)):
            continue
        seen.add(node)
        stack.extend(source.node for source in node.inputs if source not in values)
        stack.extend(node.control_inputs)
    return sorted(seen, key=lambda node: node.index)


def _ref_inputs(node: Node) -> Sequence[bool]:
    flags: list[bool] = []
    for arg in node.op_def.inputs:
        count = 1
        if arg.number_attr is not None:
            count = node.attrs[arg.number_attr]
        elif arg.list_attr is not None:
            count = len(node.attrs[arg.list_attr])
        flags.extend([arg.is_ref] * count)
    return flags


def _snapshot(value: Any) -> Any:
    return value.read() if hasattr(value, "read") and hasattr(value, "assign") else value


def _check(output: Output, value: Any) -> None:
    dtype = output.dtype
    if dtype.is_ref or not dtype.is_numpy_compatible:
        return
    what = f"{output.node.type} ({output.name})"
    assert isinstance(value, np.ndarray | np.generic), f"{what} returned {type(value)}"
    assert value.dtype == dtype.numpy, f"{what} returned {value.dtype}, declared {dtype.name}"
    assert compatible_dims(output.dims, value.shape), (
        f"{what} returned shape {value.shape}, static shape {format_dims(output.dims)}"
    )

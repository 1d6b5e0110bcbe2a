"""GPU kernels of what changes variables that are in the GPU's memory.

Those of integers and bools, such as step counters, are in the host's memory, whichever device they
were asked for, and are changed there: see `launch.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from weft_exec.gpu.kernels.gather import gather_batched, gather_nd, take
from weft_exec.gpu.kernels.scatter import add_rows, combine_rows, rows_of_points, set_rows
from weft_exec.kernels.registry import KernelFunction, kernel
from weft_exec.kernels.slicing import _store, key_of
from weft_exec.resources.resources import VariableState
from weft_graph.ops.slicing import masks_of
from weft_tensor import errors
from weft_tensor.shape import format_dims

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node


def _state(value: Any) -> VariableState:
    found = value if isinstance(value, VariableState) else getattr(value, "resource", None)
    if not isinstance(found, VariableState):
        raise errors.InvalidArgumentError(f"requires a variable, got {value!r}")
    return found


def _changing(node: Node, work: Callable[..., None]) -> KernelFunction:
    """A kernel that runs `work(array, *inputs)` on a variable, and hands a reference on."""
    is_ref = bool(node.outputs)

    def run(variable: Any, *inputs: Any) -> Any:
        _state(variable).update(work, *inputs)
        return variable if is_ref else None

    return run


_FUNCTIONS: Final = {
    "Sub": "subtract",
    "Mul": "multiply",
    "Div": "true_divide",
    "Min": "minimum",
    "Max": "maximum",
}
_HOWS: Final = ("Update", "Add", "NdUpdate", "NdAdd", "NdSub", *_FUNCTIONS)


def _put(xp: Any, how: str, array: Any, rows: Any, updates: Any) -> None:
    if how == "Update":
        set_rows(xp, array, rows, updates)
    elif how == "Add":
        add_rows(xp, array, rows, updates)
    else:
        combine_rows(xp, array, rows, updates, _FUNCTIONS[how])


@kernel(*(f"{kind}Scatter{how}" for kind in ("", "Resource") for how in _HOWS), device="GPU")
def _scatter(node: Node, device: Device) -> KernelFunction:
    xp = device.xp
    how = node.type.removeprefix("Resource").removeprefix("Scatter")
    to_points, how = how.startswith("Nd"), how.removeprefix("Nd")

    def work(array: Any, indices: Any, updates: Any) -> None:
        depth = indices.shape[-1] if to_points and indices.ndim else 1
        lead = indices.shape[:-1] if to_points else indices.shape
        wanted = (*lead, *array.shape[depth:])
        if updates.shape != wanted and (to_points or updates.shape):
            raise errors.InvalidArgumentError(
                f"updates must have shape {format_dims(wanted)}, got {format_dims(updates.shape)}"
            )
        if to_points:
            rows, count = rows_of_points(xp, indices, array.shape)
            rows, target = rows.reshape(-1), array.reshape(count, *array.shape[depth:])
        else:
            rows, target = indices.reshape(-1), array
        inner = target.shape[1:]
        _put(xp, how, target, rows, updates.reshape(-1, *inner) if updates.shape else updates)

    return _changing(node, work)


@kernel("ResourceGather", device="GPU")
def _resource_gather(node: Node, device: Device) -> KernelFunction:
    xp, batch = device.xp, node.attrs["batch_dims"]

    def run(handle: Any, indices: Any) -> Any:
        value = _state(handle).read()
        if batch:
            return gather_batched(xp, value, indices, batch, batch)
        return take(xp, value, indices, 0)

    return run


@kernel("ResourceGatherNd", device="GPU")
def _resource_gather_nd(node: Node, device: Device) -> KernelFunction:
    return lambda handle, indices: gather_nd(device.xp, _state(handle).read(), indices)


def _in_slice(node: Node) -> Callable[..., None]:
    masks = masks_of(node.attrs)

    def work(array: Any, begin: Any, end: Any, strides: Any, value: Any) -> None:
        _store(array, key_of(begin, end, strides, masks), value)

    return work


@kernel(
    "StridedSliceAssign",
    "ResourceStridedSliceAssign",
    device="GPU",
    host=("begin", "end", "strides"),
)
def _strided_slice_assign(node: Node, device: Device) -> KernelFunction:
    return _changing(node, _in_slice(node))

"""GPU kernels of variables and of what changes them.

Variables of floating and complex types are in the GPU's memory. Those of integers and bools, such
as step counters, are in the host's, whichever device they were asked for: who reads them is there.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from weft_exec.gpu.device import TYPE, GpuDevice
from weft_exec.gpu.kernels.gather import gather_batched, gather_nd, take
from weft_exec.gpu.kernels.scatter import add_rows, combine_rows, rows_of_points, set_rows
from weft_exec.gpu.registration import NUMBERS, adopt, of_counters, on_gpu, on_host_variable
from weft_exec.kernels.registry import KernelFactory, KernelFunction, kernel, registered_kernels
from weft_exec.kernels.slicing import _store, key_of
from weft_exec.resources.resources import VariableState
from weft_graph.ir.op_def import lookup_op
from weft_graph.ops.slicing import masks_of
from weft_tensor import errors
from weft_tensor.shape import format_dims

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

_ALL: Final = range(16)
"""Positions of all inputs; those that are no arrays are left as they are."""

adopt("Variable", "VariableV2", "VarHandleOp", "IsVariableInitialized", "ReadVariableOp")
adopt("VarIsInitializedOp", "VariableShape", "DestroyResourceOp", "DisableCopyOnRead")
adopt("Assign", "AssignVariableOp", "InitializedValue", "ResourceInitializedValue", data=_ALL)
importlib.import_module("weft_exec.gpu.kernels.training")  # it puts its own in their place
adopt(
    *(op for op, where in registered_kernels() if where == TYPE and "Apply" in op),
    data=_ALL,
)
adopt("StackV2", host=(0,))
adopt("StackPushV2", data=(1,))
adopt("StackPopV2", "StackCloseV2", "StackCopy")
adopt("TensorArrayV3", "TensorArraySizeV3", "TensorArrayGradV3", "TensorArrayCloseV3", host=(0,))
adopt("TensorArrayConcatV3")
adopt("TensorArrayReadV3", "TensorArrayGatherV3", host=(1,))
adopt("TensorArrayGradWithShape", host=(2,))
adopt("TensorArrayWriteV3", "TensorArrayScatterV3", host=(1,), data=(2,))
adopt("TensorArraySplitV3", host=(2,), data=(1,))


def _variable_kernel(
    *ops: str, host: tuple[int, ...] = ()
) -> Callable[[KernelFactory], KernelFactory]:
    """Decorator for kernels of variables in the GPU's memory; the host's go to the CPU's."""

    def register(make: KernelFactory) -> KernelFactory:
        wrapped = on_gpu(make, host, False)

        def factory(node: Node, device: Device) -> KernelFunction:
            if isinstance(device, GpuDevice) and of_counters(node):
                return on_host_variable(node, device)
            return wrapped(node, device)

        for op in ops:
            attr = "dtype" if "dtype" in lookup_op(op).attrs else "T"
            allowed = lookup_op(op).attrs[attr].allowed
            types = [t for t in NUMBERS if not allowed or t in {a.name for a in allowed}]
            kernel(op, device=TYPE, dtypes={attr: types})(factory)
        return make

    return register


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


@_variable_kernel("AssignAdd", "AssignSub", "AssignAddVariableOp", "AssignSubVariableOp")
def _assign_update(node: Node, device: Device) -> KernelFunction:
    function = device.xp.add if "Add" in node.type else device.xp.subtract

    def work(array: Any, value: Any) -> None:
        if array.shape != value.shape:
            raise errors.InvalidArgumentError(
                f"the variable has shape {format_dims(array.shape)}, got an update of shape "
                f"{format_dims(value.shape)}"
            )
        function(array, value, out=array)

    return _changing(node, work)


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


@_variable_kernel(*(f"{kind}Scatter{how}" for kind in ("", "Resource") for how in _HOWS))
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


@_variable_kernel("ResourceGather")
def _resource_gather(node: Node, device: Device) -> KernelFunction:
    xp, batch = device.xp, node.attrs["batch_dims"]

    def run(handle: Any, indices: Any) -> Any:
        value = device.own(_state(handle).read()) if isinstance(device, GpuDevice) else None
        if batch:
            return gather_batched(xp, value, indices, batch, batch)
        return take(xp, value, indices, 0)

    return run


@_variable_kernel("ResourceGatherNd")
def _resource_gather_nd(node: Node, device: Device) -> KernelFunction:
    return lambda handle, indices: gather_nd(device.xp, _state(handle).read(), indices)


def _in_slice(node: Node) -> Callable[..., None]:
    masks = masks_of(node.attrs)

    def work(array: Any, begin: Any, end: Any, strides: Any, value: Any) -> None:
        _store(array, key_of(begin, end, strides, masks), value)

    return work


@_variable_kernel("StridedSliceAssign", "ResourceStridedSliceAssign", host=(1, 2, 3))
def _strided_slice_assign(node: Node, device: Device) -> KernelFunction:
    return _changing(node, _in_slice(node))

"""Kernels of variables and mutexes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels import rows, scatter
from weft_exec.kernels.common import new_array
from weft_exec.kernels.registry import ARRAY_DEVICE, KernelFunction, kernel
from weft_exec.resources.resources import (
    NOT_READY,
    CompletionCallback,
    Resource,
    ResourceHandle,
    VariableState,
    Waiters,
)
from weft_tensor import errors
from weft_tensor.finalizers import call_when_gone
from weft_tensor.shape import compatible_dims, format_dims

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_exec.kernels.context import StepContext
    from weft_graph.ir.node import Node

Array = np.ndarray[Any, Any]


# --------------------------------------------------------------------------- holders


def _state(node: Node, device: Device) -> VariableState:
    """Return the variable of a node.

    Raises: InvalidArgumentError: the container has a variable of that name with another type or
      shape.
    """
    name = node.attrs["shared_name"] or node.name
    dtype, dims = node.attrs["dtype"], node.attrs["shape"]

    def make() -> VariableState:
        return device.new_variable(name, dtype, dims)

    result = device.resources.lookup_or_create(node.attrs["container"], name, VariableState, make)
    if result.dtype is not dtype or not compatible_dims(result.dims, dims):
        raise errors.InvalidArgumentError(
            f"the container has a variable {name!r} of type {result.dtype.name} and shape "
            f"{format_dims(result.dims)}, got {dtype.name} and {format_dims(dims)}"
        )
    return result


@kernel("Variable", "VariableV2", device=ARRAY_DEVICE)
def _variable(node: Node, device: Device) -> KernelFunction:
    state = _state(node, device)

    def run() -> VariableState:
        return _state(node, device) if state.closed else state

    return run


@kernel("VarHandleOp", device=ARRAY_DEVICE)
def _var_handle(node: Node, device: Device) -> KernelFunction:
    def find() -> ResourceHandle:
        state = _state(node, device)
        return ResourceHandle(device.name, state.container, state.name, state)

    handle = find()

    def run() -> ResourceHandle:
        nonlocal handle
        if handle.resource.closed:
            handle = find()
        return handle

    return run


@kernel("IsVariableInitialized", device=ARRAY_DEVICE)
def _is_initialized(node: Node, device: Device) -> KernelFunction:
    return lambda state: np.bool_(state.is_initialized)


@kernel("VarIsInitializedOp", device=ARRAY_DEVICE)
def _handle_is_initialized(node: Node, device: Device) -> KernelFunction:
    return lambda handle: np.bool_(handle.resource.is_initialized)


@kernel("ReadVariableOp", device=ARRAY_DEVICE)
def _read_variable(node: Node, device: Device) -> KernelFunction:
    return lambda handle: handle.resource.read()


def _value_or(state: VariableState, initial: Any) -> Any:
    return state.read() if state.is_initialized else initial


@kernel("InitializedValue", device=ARRAY_DEVICE, alias=True)
def _initialized_value(node: Node, device: Device) -> KernelFunction:
    return _value_or


@kernel("ResourceInitializedValue", device=ARRAY_DEVICE, alias=True)
def _handle_initialized_value(node: Node, device: Device) -> KernelFunction:
    return lambda handle, initial: _value_or(handle.resource, initial)


@kernel("VariableShape", device=ARRAY_DEVICE)
def _variable_shape(node: Node, device: Device) -> KernelFunction:
    dtype = node.outputs[0].dtype.numpy
    return lambda handle: np.array(handle.resource.read().shape, dtype)


@kernel("DestroyResourceOp", device=ARRAY_DEVICE)
def _destroy(node: Node, device: Device) -> KernelFunction:
    ignore = node.attrs["ignore_lookup_error"]

    def run(handle: ResourceHandle) -> None:
        try:
            device.resources.delete(handle.container, handle.name)
        except errors.NotFoundError:
            if not ignore:
                raise

    return run


@kernel("DisableCopyOnRead", device=ARRAY_DEVICE)
def _disable_copy_on_read(node: Node, device: Device) -> KernelFunction:
    return lambda handle: None


# --------------------------------------------------------------------------- assignment


@kernel("Assign", device=ARRAY_DEVICE)
def _assign(node: Node, device: Device) -> KernelFunction:
    validate = node.attrs["validate_shape"]

    def run(state: VariableState, value: Any) -> VariableState:
        state.assign(value, validate)
        return state

    return run


@kernel("AssignVariableOp", device=ARRAY_DEVICE)
def _assign_handle(node: Node, device: Device) -> KernelFunction:
    def run(handle: ResourceHandle, value: Any) -> None:
        state: VariableState = handle.resource
        if value.shape != state.dims and not compatible_dims(state.dims, value.shape):
            raise errors.InvalidArgumentError(
                f"variable {state.name} has shape {format_dims(state.dims)}, got a value of shape "
                f"{format_dims(value.shape)}"
            )
        state.assign(value, False)

    return run


def _check_equal(array: Array, value: Any) -> None:
    if array.shape != value.shape:
        raise errors.InvalidArgumentError(
            f"the variable has shape {format_dims(array.shape)}, got an update of shape "
            f"{format_dims(value.shape)}"
        )


def _make_update(node: Node, xp: Any) -> Callable[[VariableState, Any], None]:
    """Return the cheapest kernel of an update: it replaces scalars and changes arrays in place."""
    is_addition = "Add" in node.type
    if node.inputs[1].dims == ():
        on_scalar = operator.add if is_addition else operator.sub

        def replaced(old: Any, value: Any) -> Any:
            if old.shape != value.shape:
                _check_equal(old, value)
            return on_scalar(old, value)

        def scalar(state: VariableState, value: Any) -> None:
            state.replace(replaced, value)

        return scalar
    function = xp.add if is_addition else xp.subtract

    def in_place(array: Any, value: Any) -> None:
        _check_equal(array, value)
        function(array, value, out=array)

    def array(state: VariableState, value: Any) -> None:
        state.update(in_place, value)

    return array


@kernel("AssignAdd", "AssignSub", device=ARRAY_DEVICE)
def _assign_update(node: Node, device: Device) -> KernelFunction:
    update = _make_update(node, device.xp)

    def run(state: VariableState, value: Any) -> VariableState:
        update(state, value)
        return state

    return run


@kernel("AssignAddVariableOp", "AssignSubVariableOp", device=ARRAY_DEVICE)
def _assign_handle_update(node: Node, device: Device) -> KernelFunction:
    update = _make_update(node, device.xp)

    def run(handle: ResourceHandle, value: Any) -> None:
        update(handle.resource, value)

    return run


def _count(state: VariableState, limit: int) -> Any:
    old_values: list[Any] = []

    def count(value: Any) -> Any:
        if value >= limit:
            raise errors.OutOfRangeError(f"Reached limit of {limit}")
        old_values.append(value)
        return value + value.dtype.type(1)

    state.replace(count)
    return old_values[0]


@kernel("CountUpTo", device=ARRAY_DEVICE)
def _count_up_to(node: Node, device: Device) -> KernelFunction:
    limit = node.attrs["limit"]
    return lambda state: _count(state, limit)


@kernel("ResourceCountUpTo", device=ARRAY_DEVICE)
def _count_handle_up_to(node: Node, device: Device) -> KernelFunction:
    limit = node.attrs["limit"]
    return lambda handle: _count(handle.resource, limit)


# --------------------------------------------------------------------------- scatter and gather


def _divide(dtype: np.dtype[Any]) -> np.ufunc:
    return np.floor_divide if dtype.kind in "iu" else np.divide


def _scatter_of(combiner: str, dtype: np.dtype[Any], xp: Any) -> scatter.Scatter:
    if xp is not np:
        return rows.make_row_writer(xp, combiner)
    if combiner == "Update":
        return scatter.set_rows
    if combiner == "Div":
        return scatter.make_scatter(_divide(dtype))
    return {
        "Add": scatter.make_scatter(np.add),
        "Sub": scatter.make_scatter(np.subtract),
        "Mul": scatter.make_scatter(np.multiply),
        "Min": scatter.make_scatter(np.minimum),
        "Max": scatter.make_scatter(np.maximum),
    }[combiner]


def _make_scatter(node: Node, xp: Any) -> Callable[[VariableState, Any, Any], None]:
    removeprefix = node.type.removeprefix("Resource").removeprefix("Scatter")
    kernel = _scatter_of(removeprefix.removeprefix("Nd"), node.inputs[2].dtype.numpy, xp)

    def on_rows(array: Array, indices: Any, updates: Any) -> None:
        kernel(array, *scatter.row_updates(xp, array, indices, updates))

    def on_slices(array: Array, indices: Any, updates: Any) -> None:
        kernel(*scatter.slice_updates(xp, array, indices, updates))

    work = on_slices if removeprefix.startswith("Nd") else on_rows

    def run(state: VariableState, indices: Any, updates: Any) -> None:
        state.update(work, indices, updates)

    return run


_HOWS = ("Update", "Add", "Sub", "Mul", "Div", "Min", "Max", "NdUpdate", "NdAdd", "NdSub")


@kernel(*[f"Scatter{suffix}" for suffix in _HOWS], device=ARRAY_DEVICE)
def _scatter(node: Node, device: Device) -> KernelFunction:
    work = _make_scatter(node, device.xp)

    def run(state: VariableState, indices: Any, updates: Any) -> VariableState:
        work(state, indices, updates)
        return state

    return run


@kernel(*[f"ResourceScatter{suffix}" for suffix in _HOWS], device=ARRAY_DEVICE)
def _resource_scatter(node: Node, device: Device) -> KernelFunction:
    work = _make_scatter(node, device.xp)

    def run(handle: ResourceHandle, indices: Any, updates: Any) -> None:
        work(handle.resource, indices, updates)

    return run


@kernel("ResourceGather", device=ARRAY_DEVICE)
def _resource_gather(node: Node, device: Device) -> KernelFunction:
    batch = node.attrs["batch_dims"]
    if device.xp is not np:
        return lambda handle, indices: rows.take_batched(
            handle.resource.read(), indices, batch, batch, device
        )

    def run(handle: ResourceHandle, indices: Any) -> Any:
        value = handle.resource.read()
        if batch:
            return _batch_gather(value, indices, batch)
        selected = scatter.check_rows(indices, value.shape[0])
        result = new_array(device, (*indices.shape, *value.shape[1:]), value.dtype)
        flat = result.reshape(selected.shape + value.shape[1:])
        np.take(value, selected, axis=0, out=flat, mode="clip")
        return result if result.ndim else result[()]

    return run


def _batch_gather(value: Array, indices: Any, batch: int) -> Array:
    scatter.check_rows(indices, value.shape[batch])
    selected = indices.reshape(-1, *indices.shape[batch:])
    tables = value.reshape(-1, *value.shape[batch:])
    table_index = np.arange(len(tables)).reshape(-1, *(1,) * (selected.ndim - 1))
    result: Array = tables[table_index, selected]
    return result.reshape(*indices.shape, *value.shape[batch + 1 :])


@kernel("ResourceGatherNd", device=ARRAY_DEVICE)
def _resource_gather_nd(node: Node, device: Device) -> KernelFunction:
    if device.xp is not np:
        return lambda handle, indices: rows.take_points(handle.resource.read(), indices, device)

    def run(handle: ResourceHandle, indices: Any) -> Any:
        value = handle.resource.read()
        depth = indices.shape[-1]
        for axis in range(min(depth, value.ndim)):
            scatter.check_rows(indices[..., axis], value.shape[axis])
        return value[tuple(np.moveaxis(indices, -1, 0))] if depth else value

    return run


# --------------------------------------------------------------------------- mutexes


class MutexResource(Resource):
    """A mutex with a queue of waiters."""

    kind = "mutex"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.waiters = Waiters()
        self._is_held = False

    def attempt(self) -> Any:
        """Lock the mutex if it is free; the lock of `waiters` must be held."""
        if self._is_held:
            return NOT_READY
        self._is_held = True
        return MutexHold(self)

    def release(self) -> None:
        """Pass the mutex to the next waiter."""
        with self.waiters.lock:
            self._is_held = False
        self.waiters.wake()

    def close(self) -> None:
        """Fail all waiters."""
        super().close()
        self.waiters.close(errors.AbortedError(f"the mutex {self.name} was deleted"))


class MutexHold:
    """The value on the edge of a mutex_lock, which unlocks the mutex once.

    It unlocks the mutex when it is released, when nothing in its step refers to it any more, or
    when the step has ended, with or without an error.
    """

    __slots__ = ("__weakref__", "_hold")

    def __init__(self, mutex: MutexResource) -> None:
        self._hold = _Hold(mutex)
        call_when_gone(self, self._hold.release)

    def unlock_after(self, step: StepContext) -> None:
        """Make sure that the mutex is unlocked at the end of `step`."""
        self._hold.unlock_after(step)

    def release(self) -> bool:
        """Unlock the mutex; return False if it was already unlocked."""
        return self._hold.release()


class _Hold:
    """A locked mutex, until it is unlocked for the first time."""

    __slots__ = ("_mutexes", "_step", "_token")

    def __init__(self, mutex: MutexResource) -> None:
        self._mutexes = [mutex]  # `pop` lets only one of several threads unlock it
        self._step: StepContext | None = None
        self._token = 0

    def unlock_after(self, step: StepContext) -> None:
        self._step = step
        self._token = step.add_end_callback(self._end)

    def _end(self) -> None:
        self.release()

    def release(self) -> bool:
        try:
            mutex = self._mutexes.pop()
        except IndexError:
            return False
        if self._step is not None:
            self._step.forget(self._token)
        mutex.release()
        return True


class _MutexAcquisition:
    """The completion of an acquisition, which binds the mutex to its step."""

    __slots__ = ("_done", "_step", "fail")

    def __init__(self, step: StepContext, done: CompletionCallback) -> None:
        self._step = step
        self._done = done
        self.fail = done.fail

    def __call__(self, value: Any = None) -> None:
        value.unlock_after(self._step)
        self._done(value)


@kernel("MutexV2")
def _mutex(node: Node, device: Device) -> KernelFunction:
    name = node.attrs["shared_name"] or node.name

    def run() -> ResourceHandle:
        result = device.resources.lookup_or_create(
            node.attrs["container"], name, MutexResource, lambda: MutexResource(name)
        )
        return ResourceHandle(device.name, result.container, name, result)

    return run


@kernel("MutexAcquire", "MutexLock")
def _mutex_acquire(node: Node, device: Device) -> KernelFunction:
    def run(ctx: StepContext, inputs: Sequence[Any], done: CompletionCallback) -> None:
        mutex: MutexResource = inputs[0].resource
        mutex.waiters.wait(mutex.attempt, _MutexAcquisition(ctx, done), ctx.cancellation)

    return run


@kernel("MutexRelease", "ConsumeMutexLock")
def _mutex_release(node: Node, device: Device) -> KernelFunction:
    def run(hold: MutexHold) -> None:
        if not hold.release():
            raise errors.FailedPreconditionError("this mutex lock was already released")

    return run

"""How kernels of GPUs are registered, and what happens around each run of one.

A factory of a GPU's kernel is an ordinary one, whose function takes arrays of the GPU. What the
wrapper adds: values that stayed on the host are brought to the side on which the kernel wants them;
a node whose inputs are all of those that stay there is computed there, by the kernel of the CPU;
CuPy works on the device's streams and pool meanwhile; results have exactly the type that the node
declares; a single bool is taken to the host, where whoever branches looks at it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from weft_exec.gpu.device import TYPE, GpuDevice
from weft_exec.gpu.residency import is_of_host, keeps_variables, stays
from weft_exec.kernels.registry import (
    KernelFactory,
    KernelFunction,
    find_kernel,
    kernel,
    kernels_of,
)
from weft_graph.ir.op_def import OpDef, lookup_op
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

F = TypeVar("F", bound=Callable[..., Any])
Types = Mapping[str, Sequence[str]]

REAL: Final = ("float16", "float32", "float64")
COMPLEX: Final = ("complex64", "complex128")
INEXACT: Final = (*REAL, *COMPLEX)
INTEGERS: Final = tuple(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64))
NUMBERS: Final = (*INEXACT, *INTEGERS, "bool")
"""The types that CuPy computes with."""


def gpu_kernel(
    *ops: str,
    host: Collection[int] = (),
    types: Types | None = None,
    here: bool = True,
    alias: bool = False,
) -> Callable[[F], F]:
    """Decorator that registers a factory of kernels for GPUs.

    Args:
      ops: op types.
      host: positions of inputs that the kernel takes on the host, such as axes; -1 is the last.
      types: allowed element types by type attribute; all that CuPy knows for others.
      here: compute a node whose inputs are all on the host there.
      alias: as of `kernel`.
    """

    def register(make: F) -> F:
        for op in ops:
            found = _types(lookup_op(op), types or {})
            if found is not None:
                add = kernel(op, device=TYPE, dtypes=found, heavy=False, alias=alias)
                add(on_gpu(make, host, here))
        return make

    return register


def share(*ops: str, host: Collection[int] = (), types: Types | None = None) -> None:
    """Register the CPU's factories, whose functions call nothing but methods of arrays."""
    for op in ops:
        entry = next(e for e in kernels_of(op, "CPU"))
        gpu_kernel(op, host=host, types=types, alias=entry.alias)(entry.make)


def _types(op_def: OpDef, wanted: Types) -> dict[str, tuple[DType, ...]] | None:
    """Element types by type attribute; None where the op has none of them."""
    found = {}
    for name, attr in op_def.attrs.items():
        if attr.type == "type":
            allowed = [dtypes.as_dtype(t) for t in wanted.get(name, NUMBERS)]
            if attr.allowed:
                allowed = [dtype for dtype in allowed if dtype in attr.allowed]
            if not allowed:
                return None
            found[name] = tuple(allowed)
    return found


def on_gpu(make: KernelFactory, host: Collection[int], here: bool) -> KernelFactory:
    """A factory whose functions run as described above."""

    def factory(node: Node, device: Device) -> KernelFunction:
        if not isinstance(device, GpuDevice):
            return make(node, device)
        count = len(node.inputs)
        of_host = frozenset(at % count for at in host if at < count)
        data = [at for at in range(count) if at not in of_host]
        run = _launch(make(node, device), device, of_host, _results(node))
        there = _beside(node, device) if here and data else None
        if there is None:
            return run

        def choose(*inputs: Any) -> Any:
            for at in data:
                if not (is_of_host(inputs[at]) and stays(inputs[at])):
                    return run(*inputs)
            return there(*inputs)

        return choose

    return factory


def _results(node: Node) -> list[np.dtype[Any] | None]:
    """The exact types of the results; None for references and handles."""
    return [
        None if out.dtype.is_ref or out.dtype.numpy.kind == "O" else out.dtype.numpy
        for out in node.outputs
    ]


def _launch(
    work: KernelFunction,
    device: GpuDevice,
    of_host: frozenset[int],
    results: Sequence[np.dtype[Any] | None],
) -> KernelFunction:
    active, own, to_host = device.active, device.own, device.to_host
    single = results[0] if len(results) == 1 else None

    def run(*inputs: Any) -> Any:
        with active():
            given = [to_host(v) if i in of_host else own(v) for i, v in enumerate(inputs)]
            result = work(*given)
            if single is not None:
                return settled(device, result, single)
            if isinstance(result, tuple | list):
                pairs = zip(result, results, strict=True)
                return tuple([settled(device, value, dtype) for value, dtype in pairs])
            return result

    return run


def settled(device: GpuDevice, value: Any, dtype: np.dtype[Any] | None) -> Any:
    """A result in its exact type, and where the values of its kind are."""
    if dtype is None:
        return value
    if not device.is_own(value):
        return device.from_host(value)
    if value.dtype != dtype:
        value = value.astype(dtype)
    return device.to_host(value) if dtype.kind == "b" and value.ndim == 0 else value


def _beside(node: Node, device: GpuDevice) -> KernelFunction | None:
    """The kernel of the CPU, whose results go where their kind is; made when it is first run."""
    entry = find_kernel(node, "CPU")
    if entry is None or entry.asynchronous:
        return None
    made: list[KernelFunction] = []

    def run(*inputs: Any) -> Any:
        if not made:
            made.append(entry.make(node, device.core))
        with np.errstate(all="ignore"):
            result = made[0](*[device.to_host(value) for value in inputs])
        if isinstance(result, tuple | list):
            return tuple([device.from_host(value) for value in result])
        return device.from_host(result)

    return run


def beside(*ops: str, types: Types | None = None) -> None:
    """Let GPUs have ops that are computed on the host: positions, counts, what has no fixed size.

    Their results go where those of their kind are.
    """

    def make(node: Node, device: Device) -> KernelFunction:
        found = _beside(node, device) if isinstance(device, GpuDevice) else None
        if found is None:
            raise errors.UnimplementedError(f"no kernel of {node.type} for {device.type}")
        return found

    for op in ops:
        allowed = _types(lookup_op(op), types or {})
        if allowed is not None:
            kernel(op, device=TYPE, dtypes=allowed)(make)


# ------------------------------------------------------------------ kernels of other files


def adopt(
    *ops: str,
    host: Collection[int] = (),
    data: Collection[int] = (),
) -> None:
    """Run kernels that are registered for GPUs elsewhere on the device's stream and pool.

    Args:
      host: positions of inputs that are taken on the host.
      data: positions of inputs that must be arrays of the GPU; others are left as they are.

    Where the variable that an op is about is in the host's memory, the kernel of the CPU does it.
    """
    for op in ops:
        attrs = lookup_op(op).attrs
        attr = next((name for name in _OF_ELEMENTS if name in attrs), None)
        for entry in kernels_of(op, TYPE):
            entry.make = _adopted(entry.make, frozenset(host), frozenset(data))
            if attr is not None and not entry.dtypes:
                entry.dtypes = {attr: frozenset(dtypes.as_dtype(name) for name in NUMBERS)}


_OF_ELEMENTS: Final = ("dtype", "T", "elem_type")
"""Attributes with the element type of what an op is about."""


def _adopted(make: KernelFactory, host: frozenset[int], data: frozenset[int]) -> KernelFactory:
    def factory(node: Node, device: Device) -> KernelFunction:
        if not isinstance(device, GpuDevice):
            return make(node, device)
        if node.type in _OF_VARIABLES and of_counters(node):
            return on_host_variable(node, device)
        with device.active():
            work = make(node, device)
        active, own, to_host = device.active, device.own, device.to_host

        def run(*inputs: Any) -> Any:
            with active():
                given = [
                    own(v) if i in data else to_host(v) if i in host else v
                    for i, v in enumerate(inputs)
                ]
                return work(*given)

        return run

    return factory


_OF_VARIABLES: Final = frozenset(
    ("Variable", "VariableV2", "VarHandleOp", "IsVariableInitialized", "ReadVariableOp", "Assign",
     "AssignVariableOp", "InitializedValue", "ResourceInitializedValue")
)  # fmt: skip


def of_counters(node: Node) -> bool:
    """Whether the variable that a node is about is kept in the host's memory."""
    dtype = node.attrs.get("dtype") or node.attrs.get("T")
    return dtype is not None and keeps_variables(dtype)


def on_host_variable(node: Node, device: GpuDevice) -> KernelFunction:
    """The kernel of the CPU, for a variable that is kept in the host's memory."""
    entry = find_kernel(node, "CPU")
    if entry is None:
        raise errors.UnimplementedError(f"no kernel of {node.type} for variables of the host")
    work = entry.make(node, device.core)
    to_host = device.to_host
    return lambda *inputs: work(*[to_host(value) for value in inputs])

"""The kernel registry: maps op type and device type to a factory.

A factory `make(node, device)` runs once per executable, with the node's attributes baked in. It
returns the computing function: `fn(*inputs) -> value`, or a tuple for several outputs, or None for
none. An asynchronous kernel is `fn(ctx, inputs, done)` and calls `done(value)` or
`done.fail(error)` exactly once, from any thread; ops with the corresponding trait have such
kernels.

There are two kinds of factories. One is written and registered for a device type::

    @kernel("Conv2D", device="GPU", dtypes={"T": REAL})

The other uses the array module, `device.xp`, and is for every device type that has one, including
the CPU::

    @kernel("Reshape", device=ARRAY_DEVICE, host=("shape",))

`Device.make_kernel` wraps the result of the factory, to do what each run needs, such as streams and
copies between memories; for this, `host` is part of the registration. A device type uses first the
kernels that are registered for it, then the shared ones, each for the element types that its
devices support. So the order of registrations does not matter.

An elementwise op with a scalar definition needs no kernel: a device type derives one unless one is
registered (`register_derivation`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from weft_exec.devices.device import (
    DeviceType,
    KernelFactory,
    KernelFunction,
    device_type_of,
    device_types,
)
from weft_graph.ir.lazy_modules import PackageModules
from weft_graph.ir.op_def import (
    declaring_module,
    loaded_traits,
    lookup_op,
    registered_ops,
    traits_of,
)
from weft_graph.ir.op_signature import OpDef
from weft_graph.ir.registry import Registry
from weft_graph.ir.scalar import Definition
from weft_graph.ir.traits import State
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

__all__ = [
    "ALL",
    "ANY_DEVICE",
    "ARRAY_DEVICE",
    "Kernel",
    "KernelFactory",
    "KernelFunction",
    "derivable_ops",
    "find_kernel",
    "kernel",
    "kernels_of",
    "register_derivation",
    "registered_kernels",
    "require_kernel",
]

ANY_DEVICE: Final = "*"
"""Used as a device type: for kernels that only forward values."""
ARRAY_DEVICE: Final = "array"
"""Used as a device type: for kernels that use the array module, `device.xp`."""
ALL: Final = ("*",)
"""Used as `host`: for an op that always runs in the host's memory."""

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Kernel:
    """One registration.

    Attributes:
      op: the op type.
      device_type: a device type, `ARRAY_DEVICE` or `ANY_DEVICE`.
      factory: returns the computing function of a node on a device.
      dtypes: the allowed element types of each type attribute; attributes that are not listed allow
        all.
      host: names of inputs that the function reads in the host's memory on every device, such as
        shapes and axes; or `ALL`.
      heavy: True if a run is worth a thread of the pool while other nodes can run.
      alias: True if the result may share memory with an input, although the op is not declared as a
        view.
      fresh: the indices of outputs that nevertheless never share memory.
      asynchronous: True if the function is `fn(ctx, inputs, done)`. Lookups set it according to the
        op's
        traits. A registration sets it only for a kernel that waits although the op does not, such
        as one that enqueues its work to a stream.
    """

    op: str
    device_type: str
    factory: KernelFactory
    dtypes: Mapping[str, frozenset[DType]]
    host: tuple[str, ...] = ()
    heavy: bool = False
    alias: bool = False
    asynchronous: bool = False
    fresh: Collection[int] = ()

    def may_share(self, node: Node) -> bool:
        """Return True if a result may share memory with inputs or with a variable."""
        return self.alias or node.traits.view is not None

    def accepts(self, node: Node) -> bool:
        """Return True if the kernel supports the node's element types."""
        for key, allowed in self.dtypes.items():  # noqa: SIM110 - asked too often for `all`
            if node.attrs.get(key) not in allowed:
                return False
        return True

    def make(self, node: Node, device: Device) -> KernelFunction:
        """Return the function that computes a node on a device.

        Nodes that only forward values or look up a resource bypass the device.
        """
        if device.guard is None:
            return self._make(node, device)
        return device.guard(node, lambda: self._make(node, device), self.asynchronous)

    def _make(self, node: Node, device: Device) -> KernelFunction:
        if self.device_type == ANY_DEVICE or _has_kernel(self.op):
            return self.factory(node, device)
        return device.make_kernel(self.factory, node, self.host)


def _has_kernel(op: str) -> bool:
    return lookup_op(op).traits.state is State.CREATES


_registered: Registry[list[Kernel]] = Registry(
    "kernel",
    package=("weft_exec.kernels", "weft_exec.functions"),
    group="weft_exec.kernels",
)
"""Kernels by "op on device type", including `ARRAY_DEVICE` and `ANY_DEVICE`."""

_tables: dict[str, list[Kernel]] = {}
"""Copies of the kernel tables, for lookups that must not wait for imports."""
_found: dict[tuple[str, str], tuple[Kernel, ...]] = {}
"""Cache of `kernels_of` by op and device type, which each registration clears."""
_lock: Final = threading.Lock()
_count = 0
"""Number of registered kernels."""
_rules: dict[str, Callable[[str, Definition], Kernel | None]] = {}
"""Rules that derive kernels, by device type."""
_device_kernels: dict[str, PackageModules] = {}
"""Packages that register the kernels of device types, by name."""


def kernel(
    *ops: str,
    device: str = "CPU",
    dtypes: Mapping[str, Collection[Any]] | None = None,
    host: Sequence[str] = (),
    heavy: bool = False,
    alias: bool = False,
    asynchronous: bool = False,
) -> Callable[[F], F]:
    """Register a factory for op types on a device type; a decorator.

    Args:
      ops: the op types.
      device: a device type; `ARRAY_DEVICE` for kernels over the array module, which run on the CPU
        and all other types that have one; `ANY_DEVICE` for kernels that are the same on all.
      dtypes: the allowed element types of type attributes; several registrations may share an op.
      host, heavy, alias, asynchronous: see `Kernel`.
    Raises: AlreadyExistsError: another registration of the op allows some of these types.
    """
    allowed = {key: frozenset(map(_as_dtype, types)) for key, types in (dtypes or {}).items()}
    frozen = MappingProxyType(allowed)

    def register(make: F) -> F:
        for op in ops:
            _add(Kernel(op, device, make, frozen, tuple(host), heavy, alias, asynchronous))
        return make

    return register


def _as_dtype(value: Any) -> DType:
    return dtypes.as_dtype(value)


def _add(entry: Kernel) -> None:
    global _count
    key = f"{entry.op} on {entry.device_type}"
    with _lock:
        kernel = _tables.get(key)
        table = [] if kernel is None else kernel
        if any(_overlaps(existing.dtypes, entry.dtypes) for existing in table):
            raise errors.AlreadyRegisteredError(
                f"a kernel of {entry.op} for {entry.device_type} is already registered"
            )
        table.append(entry)
        _tables[key] = table
        _count += 1
        _found.clear()
    if kernel is None:
        _registered.register(key, table)


def _overlaps(
    some: Mapping[str, frozenset[DType]], other_types: Mapping[str, frozenset[DType]]
) -> bool:
    """Return True if two registrations allow the element types of a common node."""
    return all(types & other_types[name] for name, types in some.items() if name in other_types)


def register_derivation(device_type: str, rule: Callable[[str, Definition], Kernel | None]) -> None:
    """Register a device type's rule for deriving kernels from scalar definitions.

    Args:
      rule: returns the kernel of an op type and its definition; None if it is not supported.
    Raises: AlreadyExistsError: the device type already has a rule.
    """
    if device_type in _rules:
        raise errors.AlreadyExistsError(f"kernels for {device_type} already have a derivation rule")
    _rules[device_type] = rule


# ------------------------------------------------------------------------------- looking up


def find_kernel(node: Node, device_type: str) -> Kernel | None:
    """Return the kernel that runs `node` on a device type, or None if there is none.

    Kernels registered for the type come first, then shared ones, then those for any device.
    """
    for entry in kernels_of(node.type, device_type):
        if entry.accepts(node):
            return entry
    for entry in kernels_of(node.type, ANY_DEVICE):
        if entry.accepts(node):
            return entry
    return None


def require_kernel(node: Node, device_type: str, place: str = "") -> Kernel:
    """Return the kernel that runs `node` on a device type.

    Args:
      place: the device, as the end of the error message.
    Raises: UnimplementedError: there is no such kernel.
    """
    kernel = find_kernel(node, device_type)
    if kernel is None:
        raise errors.UnimplementedError(
            f"no kernel of {node.type} for {device_type}{place}",
            op=node.type,
            node=node.name,
            line=node.line or None,
        )
    return kernel


def kernels_of(op: str, device_type: str) -> tuple[Kernel, ...]:
    """Return the kernels of an op on a device type by preference, except those for any device."""
    put_together = _found.get((op, device_type))
    if put_together is None:
        put_together = _put_together(op, device_type)
    return put_together


def _put_together(op: str, device_type: str) -> tuple[Kernel, ...]:
    device_info = device_type_of(device_type)
    origins = _origins(device_type, device_info)
    keys = [f"{op} on {origin}" for origin in origins]
    _import_kernels(op, keys)
    with _lock:
        count, entries = _count, [entry for key in keys for entry in _tables.get(key, ())]
    if not entries:
        entries = _derived_kernels(op, origins)
    if device_info is not None:
        entries = [
            matching for matching in (_on(entry, device_info) for entry in entries) if matching
        ]
    if traits_of(op).asynchronous:
        entries = [replace(entry, asynchronous=True) for entry in entries]
    with _lock:
        if count == _count:
            _found[op, device_type] = tuple(entries)
    return tuple(entries)


_FAMILIES: Final = {"resource_state": "state", "step": "transfer"}
"""Op families whose kernels are in the module of another family."""


def _import_kernels(op: str, keys: Sequence[str]) -> None:
    """Import the modules that may have kernels of an op: that of its family, or else all.

    An op whose kernels are derived may have no module.
    """
    package, _, family = declaring_module(op).rpartition(".ops.")
    if not package:  # of another package, or unknown
        return _import_all(keys)
    home = "weft_exec" if package == "weft_graph" else package
    name = f"{home}.kernels.{_FAMILIES.get(family, family)}"
    _registered.load_near([name, "weft_exec.kernels.elementwise"])
    definition = traits_of(op).scalar
    derivable = definition is not None and not definition.by_kernel
    if not derivable and not any(key in _tables for key in (*keys, f"{op} on {ANY_DEVICE}")):
        _import_all(keys)


def _import_all(keys: Sequence[str]) -> None:
    for key in keys:
        _registered.get(key)


def _derived_kernels(op: str, origins: Sequence[str]) -> list[Kernel]:
    """Return the derived kernel of an op that has no registered kernel.

    None if it cannot be derived.
    """
    definition = traits_of(op).scalar
    rule = next((_rules[origin] for origin in origins if origin in _rules), None)
    if definition is None or definition.by_kernel or rule is None:
        return []
    entry = rule(op, definition)
    return [] if entry is None else [entry]


def derivable_ops() -> list[str]:
    """Return the sorted op types with derivable kernels."""
    scalars = {op: loaded_traits(op).scalar for op in registered_ops()}
    return [op for op, scalar in scalars.items() if scalar is not None and not scalar.by_kernel]


def _origins(device_type: str, device_info: DeviceType | None) -> list[str]:
    """Return the device types whose kernels a device type uses, itself first."""
    if device_info is None:
        return [device_type]
    if device_info.kernels is not None:
        _device_kernels.setdefault(device_info.kernels, PackageModules(device_info.kernels)).load()
    result = [device_type]
    if device_info.array_module is not None:
        result.append(ARRAY_DEVICE)
    if device_info.array_module == "numpy" and device_type != "CPU":
        result.append("CPU")
    return result


def _on(entry: Kernel, device_type: DeviceType) -> Kernel | None:
    """Return a kernel as a device type uses it; None if it does not support the type's values."""
    is_own = entry.device_type == device_type.name
    if is_own and device_type.dtypes is None:
        return entry
    op_def = lookup_op(entry.op)
    if entry.device_type == "CPU" and not is_own and not _computes_with_arrays(entry, op_def):
        return None
    allowed = dict(entry.dtypes)
    if device_type.dtypes is not None:
        for name, attr in op_def.attrs.items():
            if attr.type == "type":
                selected = allowed.get(name) or attr.allowed or device_type.dtypes
                allowed[name] = selected & device_type.dtypes & (attr.allowed or selected)
    if not all(allowed.values()):
        return None
    on_stream = device_type.asynchronous and not is_own and not _has_kernel(entry.op)
    return replace(
        entry,
        device_type=device_type.name,
        dtypes=MappingProxyType(allowed),
        heavy=entry.heavy and device_type.name == "CPU",
        asynchronous=entry.asynchronous or on_stream,
    )


_NOT_ARRAYS: Final = frozenset((dtypes.string, dtypes.variant, dtypes.resource))


def _computes_with_arrays(entry: Kernel, op_def: OpDef) -> bool:
    """Return True if a CPU kernel reads and returns only numeric arrays."""
    traits = op_def.traits
    if entry.asynchronous or traits.asynchronous or (op_def.stateful and not traits.random):
        return False
    args = (*op_def.inputs, *op_def.outputs)
    return not any(arg.is_ref or arg.list_attr or arg.dtype in _NOT_ARRAYS for arg in args)


def registered_kernels() -> list[tuple[str, str]]:
    """Return all (op type, device type) pairs with a kernel, sorted; includes `ANY_DEVICE`."""
    types = device_types()
    for device_type in types:
        kernels_of("NoOp", device_type)  # imports the kernels of the type
    keys = [key.split(" on ") for key in _registered.keys()]  # noqa: SIM118 (it imports)
    ops = sorted({op for op, _ in keys}.union(derivable_ops()))
    result = {(op, device_type) for op, device_type in keys if device_type == ANY_DEVICE}
    result |= {
        (op, device_type) for op in ops for device_type in types if kernels_of(op, device_type)
    }
    return sorted(result)

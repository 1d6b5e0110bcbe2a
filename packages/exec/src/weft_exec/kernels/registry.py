"""The table of kernels: op type and device type to a factory.

A factory `make(node, device)` runs once per executable, with the node's attributes baked in, and
returns the function that computes: `fn(*inputs) -> value`, or a tuple for several outputs, or None
for none.  An asynchronous kernel is `fn(ctx, inputs, done)` and calls `done(value)` or
`done.fail(error)` exactly once, from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from weft_graph.ir.registry import Registry
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

ANY_DEVICE: Final = "*"
"""In place of a device type: for kernels that hand values on without looking at them."""

KernelFunction = Callable[..., Any]
KernelFactory = Callable[["Node", "Device"], KernelFunction]
F = TypeVar("F", bound=Callable[..., Any])


class Kernel:
    """One registration.

    Attributes:
      make: the factory.
      dtypes: allowed element types per type attribute; empty means all.
      heavy: worth a thread of the pool when something else can run meanwhile.
      alias: the result may share memory with an input.
      asynchronous: `fn(ctx, inputs, done)`.
    """

    __slots__ = ("alias", "asynchronous", "device_type", "dtypes", "heavy", "make", "op")

    def __init__(
        self,
        op: str,
        device_type: str,
        make: KernelFactory,
        dtypes: Mapping[str, frozenset[DType]],
        *,
        heavy: bool,
        alias: bool,
        asynchronous: bool,
    ) -> None:
        self.op = op
        self.device_type = device_type
        self.make = make
        self.dtypes = dtypes
        self.heavy = heavy
        self.alias = alias
        self.asynchronous = asynchronous

    def accepts(self, node: Node) -> bool:
        """Whether the node's element types are among those of this kernel."""
        return all(node.attrs.get(key) in allowed for key, allowed in self.dtypes.items())


_kernels: Registry[list[Kernel]] = Registry(
    "kernel",
    package=("weft_exec.kernels", "weft_exec.functions"),
    group="weft_exec.kernels",
)
_tables: dict[tuple[str, str], list[Kernel]] = {}


def kernel(
    *ops: str,
    device: str | Sequence[str] = "CPU",
    dtypes: Mapping[str, Sequence[Any]] | None = None,
    heavy: bool = False,
    alias: bool = False,
    asynchronous: bool = False,
) -> Callable[[F], F]:
    """Decorator that registers a factory for op types on device types.

    Args:
      ops: op types.
      device: one device type or several, for kernels written over the array module; `ANY_DEVICE`
        for those that are the same on all, of other packages too.
      dtypes: type attribute to allowed element types; several registrations may share an op.
      heavy, alias, asynchronous: see Kernel.
    Raises: AlreadyExistsError: an equal registration exists.
    """
    devices = (device,) if isinstance(device, str) else tuple(device)
    allowed = {key: frozenset(map(_as_dtype, types)) for key, types in (dtypes or {}).items()}

    def register(make: F) -> F:
        for op in ops:
            for device_type in devices:
                entry = Kernel(
                    op,
                    device_type,
                    make,
                    allowed,
                    heavy=heavy,
                    alias=alias,
                    asynchronous=asynchronous,
                )
                _add(entry)
        return make

    return register


def _as_dtype(value: Any) -> DType:
    return dtypes.as_dtype(value)


def _add(entry: Kernel) -> None:
    key = (entry.op, entry.device_type)
    table = _tables.get(key)
    if table is None:
        table = _tables[key] = []
        _kernels.register(f"{entry.op} on {entry.device_type}", table)
    if any(other.dtypes == entry.dtypes for other in table):
        raise errors.AlreadyExistsError(
            f"a kernel of {entry.op} for {entry.device_type} is registered already"
        )
    table.append(entry)


def kernels_of(op: str, device_type: str) -> list[Kernel]:
    """The registrations of an op on a device type; empty when there are none."""
    return _kernels.get(f"{op} on {device_type}") or []


def find_kernel(node: Node, device_type: str) -> Kernel | None:
    """The kernel that runs `node` on a device type, or None; its own before that of any device."""
    for where in (device_type, ANY_DEVICE):
        for entry in kernels_of(node.type, where):
            if entry.accepts(node):
                return entry
    return None


def may_wait(node: Node) -> bool:
    """Whether a node may wait for others than its inputs, and not only for its device.

    Devices with streams of their own have asynchronous kernels for all ops; those of the CPU tell.
    """
    found = find_kernel(node, "CPU")
    return found is not None and found.asynchronous


def registered_kernels() -> list[tuple[str, str]]:
    """All (op type, device type) pairs that have a kernel, sorted."""
    _kernels.keys()
    return sorted(_tables)

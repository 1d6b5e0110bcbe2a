"""Memory of a step: sizes of values and the peak of live ones (paper, 5.2).

A value is live from its node to its last user; a fetched one to the end. A view of a value, such as
a Reshape, extends the live range and takes no memory. Constants, feeds and variables exist
independently of the step and do not count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from weft_graph.ir.costs import Sizes
from weft_graph.ir.node import Node, Output
from weft_graph.ir.traits import EACH, Role
from weft_tensor import dtypes

BytesOf = Callable[[Output], int]
"""The size of an output's value."""


class MemoryEstimate(NamedTuple):
    """Peak memory of values.

    Attributes:
      peak: peak bytes by device; "" if there is only one device.
      at: node that runs at the peak, by device.
    """

    peak: dict[str, int]
    at: dict[str, Node]

    @property
    def largest(self) -> int:
        """The largest peak of all devices."""
        return max(self.peak.values(), default=0)

    @property
    def total(self) -> int:
        """The sum of the peaks of all devices."""
        return sum(self.peak.values())


class MemoryLimits(NamedTuple):
    """The memory limits of a step.

    Attributes:
      limits: bytes by device; other devices have no limit.
      device_of: function that returns the device of a node; None if there is only one, named "".
      spaces: memory space of devices that share one; by default the name of the device.
    """

    limits: Mapping[str, int]
    device_of: Callable[[Node], str] | None = None
    spaces: Mapping[str, str] = {}

    def spread(self, nodes: Sequence[Node], values: Values) -> tuple[dict[str, int], Values]:
        """Return the values assigned to the nodes' devices, and the numbers of these devices."""
        device_of = self.device_of
        names = ["" if device_of is None else device_of(node) for node in nodes]
        numbers = {name: i for i, name in enumerate(dict.fromkeys(names))}
        spaces = [self.spaces.get(name, name) for name in numbers]
        return numbers, values.on_devices([numbers[name] for name in names], spaces)

    def excess(self, peaks: Mapping[str, int]) -> int:
        """Return the largest excess over a device's limit in bytes; negative if there is none."""
        excesses = [peaks.get(name, 0) - limit for name, limit in self.limits.items()]
        return max(excesses, default=-1)


def static_bytes(output: Output) -> int:
    """Return the size in bytes of a static shape; unknown sizes count as 1, unknown ranks as 0."""
    if output.dims is None:
        return 0
    sizes = [1 if size is None else size for size in output.dims]
    return math.prod(sizes) * output.dtype.base_dtype.size


def estimate_memory(
    nodes: Sequence[Node],
    fetches: Iterable[Output] = (),
    bytes_of: BytesOf | None = None,
    device_of: Callable[[Node], str] | None = None,
    spaces: Mapping[str, str] | None = None,
) -> MemoryEstimate:
    """Return the peak memory of a step that runs its nodes sequentially.

    A value that is used in another memory space is copied there, and the copy is live from its
    first to its last use in that space.

    Args:
      nodes: the nodes in execution order.
      fetches: the outputs that the step returns.
      bytes_of: function that returns the size of a value; by default from its static shape.
      device_of, spaces: as for `MemoryLimits`.
    """
    values = Values(nodes, fetches, bytes_of or static_bytes)
    numbers, limits = MemoryLimits({}, device_of, spaces or {}).spread(nodes, values)
    return _name_peaks(limits.peaks(), nodes, list(numbers))


def _name_peaks(
    peaks: Sequence[tuple[int, int]], nodes: Sequence[Node], names: Sequence[str]
) -> MemoryEstimate:
    peak_of = dict(zip(names, peaks, strict=False))
    return MemoryEstimate(
        {name: peak for name, (peak, _) in peak_of.items()},
        {name: nodes[place] for name, (_, place) in peak_of.items() if nodes},
    )


def aliased_value(output: Output) -> Output:
    """Return the value whose memory an output aliases: itself or its base."""
    while True:
        node = output.node
        view = node.traits.view
        if view is None or not node.inputs or _moves_value(node):
            return output
        source = node.inputs[output.index if view == EACH else view]
        if source.dtype is dtypes.resource:
            return output
        output = source


def _moves_value(node: Node) -> bool:
    """Return True if an Identity moves its value to another device, or delays it."""
    if not node.traits.identity or not node.device:
        return False
    return bool(node.controls) or node.device != node.inputs[0].node.device


def occupies_memory(output: Output) -> bool:
    """Return True if the memory of an output's value is allocated by the step."""
    return not (_is_immovable(output) or _is_kept(output.node))


def _is_kept(node: Node) -> bool:
    """Return True if a node's value exists without the step: a constant, feed or variable."""
    view = node.traits.view
    if view is not None and view != EACH:
        return node.inputs[view].dtype is dtypes.resource
    return node.role is Role.CONSTANT or node.role is Role.ARGUMENT


def _is_immovable(output: Output) -> bool:
    """Return True if an output cannot be moved to other memory: a reference or handle."""
    dtype = output.dtype
    return dtype.is_ref or dtype in (dtypes.resource, dtypes.variant)


def scratch_bytes(node: Node, bytes_of: BytesOf) -> int:
    """Return the bytes that a kernel allocates as scratch memory while it runs."""
    rule = node.traits.scratch
    return 0 if rule is None else round(rule(sizes_of(node, bytes_of)))


def sizes_of(node: Node, bytes_of: BytesOf = static_bytes) -> Sizes:
    """Return the `Sizes` of a node for cost rules; unknown sizes count as 1."""
    return Sizes(
        node.attrs,
        tuple(map(_shape, node.inputs)),
        tuple(map(_shape, node.outputs)),
        tuple([value.dtype for value in node.inputs]),
        tuple([value.dtype for value in node.outputs]),
        tuple(map(bytes_of, node.inputs)),
        tuple(map(bytes_of, node.outputs)),
    )


def _shape(output: Output) -> tuple[int, ...]:
    return tuple([size or 1 for size in output.dims or ()])


class Values:
    """The numbered values of a step, and the values that each node reads and produces.

    Attributes:
      numbers: the number of each output; a view has the number of its base.
      sizes: size in bytes, by number.
      moved: size in bytes in another memory space, by number.
      reads, makes: numbers of the values that each node reads and produces, by index of the node;
        scratch memory of kernels counts as produced.
      kept: the numbers of fetched values.
    """

    def __init__(self, nodes: Sequence[Node], fetches: Iterable[Output], bytes_of: BytesOf) -> None:
        self.numbers: dict[Output, int] = {}
        self.sizes: list[int] = []
        self.moved: list[int] = []
        self.reads: list[tuple[int, ...]] = []
        self.makes: list[tuple[int, ...]] = []
        self._bytes_of = bytes_of
        for node in nodes:
            self.reads.append(tuple(dict.fromkeys([self._number(s) for s in node.inputs])))
            numbered = [(self._number(o), aliased_value(o) is o) for o in node.outputs]
            self.makes.append(
                (*[number for number, is_new in numbered if is_new], *self._scratch(node))
            )
        self.kept = {self._number(output) for output in fetches}
        self._devices: list[int] | None = None

    def _number(self, output: Output) -> int:
        number = self.numbers.get(output)
        if number is not None:
            return number
        root = aliased_value(output)
        if root is not output:
            number = self._number(root)
        else:
            number = len(self.sizes)
            size = 0 if _is_immovable(output) else self._bytes_of(output)
            self.sizes.append(size if occupies_memory(output) else 0)
            self.moved.append(size)
        self.numbers[output] = number
        return number

    def _scratch(self, node: Node) -> tuple[int, ...]:
        """Return the number of a kernel's scratch memory, if large enough to count."""
        size = scratch_bytes(node, self._bytes_of)
        if not size:
            return ()
        self.sizes.append(size)
        self.moved.append(0)
        return (len(self.sizes) - 1,)

    def on_devices(self, places: Sequence[int], spaces: Sequence[str]) -> Values:
        """Return values with a separate value for each memory space of their uses.

        Args:
          places: the device of each node.
          spaces: the memory space of each device.
        """
        result = Values((), (), self._bytes_of)
        result.kept = set(self.kept)
        result.reads, result.makes, result.sizes, result._devices = on_devices(
            self.reads, self.makes, self.sizes, self.moved, places, spaces
        )
        return result

    def made_on(self, device: int) -> list[int]:
        """Return the bytes that each node produces on a device, including copies."""
        assert self._devices is not None
        sizes = [
            size if node_device == device else 0
            for size, node_device in zip(self.sizes, self._devices, strict=True)
        ]
        return [sum([sizes[value] for value in new_values]) for new_values in self.makes]

    def peaks(self) -> list[tuple[int, int]]:
        """Return the peak memory of each device in bytes, and the index of its peak node."""
        return peaks(self.reads, self.makes, self.sizes, self.kept, self._devices)

    def live(self, device: int) -> list[int]:
        """Return the live bytes on a device while each node runs."""
        change = [0] * (len(self.reads) + 1)
        for value, (begin, end) in lifetimes(self.reads, self.makes, self.kept).items():
            if self._devices is None or self._devices[value] == device:
                change[begin] += self.sizes[value]
                change[end] -= self.sizes[value]
        return list(accumulate(change[:-1]))


def on_devices(
    reads: Sequence[Sequence[int]],
    produced: Sequence[Sequence[int]],
    sizes: Sequence[int],
    moved_bytes: Sequence[int],
    places: Sequence[int],
    spaces: Sequence[str],
) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]], list[int], list[int]]:
    """Return values with a separate number for each device they are copied to.

    Values are copied as late as possible; the original is live until then.

    Args:
      reads, produced: the numbers of the values of each node.
      sizes, moved_bytes: sizes of the values, and of their copies, by number.
      places: the device of each node.
      spaces: the memory space of each device.
    Returns: reads, produced values and sizes including the copies, and the device of each value.
    """
    all_sizes, devices = list(sizes), [-1] * len(sizes)
    all_reads: list[tuple[int, ...]] = []
    all_makes: list[tuple[int, ...]] = []
    copies: dict[tuple[int, int], int] = {}
    for place, used, created in zip(places, reads, produced, strict=True):
        device_reads, device_values = [], list(created)
        for value in used:
            device = devices[value]
            if device < 0 or spaces[device] == spaces[place]:
                device_reads.append(value)
                continue
            copy = copies.get((value, place))
            if copy is None:
                device_reads.append(value)
                copy = copies[value, place] = len(all_sizes)
                device_values.append(copy)
                all_sizes.append(moved_bytes[value])
                devices.append(place)
            device_reads.append(copy)
        for value in created:
            devices[value] = place
        all_reads.append(tuple(device_reads))
        all_makes.append(tuple(device_values))
    return all_reads, all_makes, all_sizes, [max(0, device) for device in devices]


def peaks(
    reads: Sequence[Sequence[int]],
    produced: Sequence[Sequence[int]],
    sizes: Sequence[int],
    live_out: Iterable[int],
    devices: Sequence[int] | None = None,
) -> list[tuple[int, int]]:
    """Return the peak memory in bytes and the index of its node: of one device, or of each.

    Args:
      reads, produced: the numbers of the values of each node, in execution order.
      sizes, devices: sizes and devices of the values, by number.
      live_out: the numbers of the values that are live at the end.
    """
    count = 1 if devices is None else max(devices, default=0) + 1
    change = [[0] * (len(reads) + 1) for _ in range(count)]
    for value, (begin, end) in lifetimes(reads, produced, live_out).items():
        row = change[0 if devices is None else devices[value]]
        row[begin] += sizes[value]
        row[end] -= sizes[value]
    result: list[tuple[int, int]] = []
    for row in change:
        live = list(accumulate(row[: len(reads)])) or [0]
        limit = max(live)
        result.append((limit, live.index(limit)))
    return result


def lifetimes(
    reads: Sequence[Sequence[int]], produced: Sequence[Sequence[int]], live_out: Iterable[int]
) -> dict[int, tuple[int, int]]:
    """Return for each value the index of its producer and the one after its last use."""
    born: dict[int, int] = {}
    end: dict[int, int] = {}
    for index, used in enumerate(reads):
        end.update(dict.fromkeys(used, index + 1))
        for value in produced[index]:
            born[value] = index
            end[value] = index + 1
    end.update(dict.fromkeys(live_out, len(reads)))
    return {value: (place, end[value]) for value, place in born.items()}

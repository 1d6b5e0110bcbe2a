"""How much memory a step needs: sizes of values, and the most that live at a time (paper, 5.2).

A value lives from its node to its last user, one that is fetched to the end.  What only shows
another value, such as a Reshape, makes that one live longer and takes nothing itself.  Constants,
fed values and variables are there with or without the step, and do not count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from weft_graph.node import Node, Output
from weft_tensor import dtypes

BytesOf = Callable[[Output], int]
"""The size of an output's value."""

_ELSEWHERE = frozenset({"Const", "_Arg"})
"""Ops whose values are there before the step."""

_SHOWS_FIRST = frozenset(
    {
        "Bitcast",
        "BroadcastTo",
        "CheckNumerics",
        "ConjugateTranspose",
        "EnsureShape",
        "ExpandDims",
        "Identity",
        "PreventGradient",
        "Reshape",
        "Slice",
        "Snapshot",
        "SplitV",
        "Squeeze",
        "StopGradient",
        "StridedSlice",
        "Transpose",
        "Unpack",
    }
)
"""Ops whose outputs are views of their first input."""


class MemoryEstimate(NamedTuple):
    """The most memory that values take at a time.

    Attributes:
      peak: bytes, by device; "" where no devices were told apart.
      at: while which node that is.
    """

    peak: dict[str, int]
    at: dict[str, Node]

    @property
    def largest(self) -> int:
        """The most on any device."""
        return max(self.peak.values(), default=0)

    @property
    def total(self) -> int:
        """The sum over all devices."""
        return sum(self.peak.values())


class Room(NamedTuple):
    """The memory that a step may take.

    Attributes:
      limits: bytes by device; what is not named has no limit.
      device_of: the device of each node; None where all is on one, which is named "".
    """

    limits: Mapping[str, int]
    device_of: Callable[[Node], str] | None = None

    def excess(self, found: MemoryEstimate) -> int:
        """The bytes that are too much on the device that is worst off, or less than 0."""
        return max([found.peak.get(name, 0) - limit for name, limit in self.limits.items()])


def sizes_of(
    measured: Mapping[str, int] | None = None, unknown: int = 0, dimension: int = 1
) -> BytesOf:
    """Sizes from what was measured, and else from static shapes.

    Args:
      measured: bytes by the names of outputs ("node:0").
      unknown: bytes of an output that was not measured and of whose shape nothing is known.
      dimension: what a size that is not known counts as where the others are, as of a batch.
    """
    known = {} if measured is None else measured

    def bytes_of(output: Output) -> int:
        found = known.get(output.name)
        if found is not None:
            return found
        if output.dims is None:
            return unknown
        sizes = [dimension if size is None else size for size in output.dims]
        return math.prod(sizes) * output.dtype.base_dtype.size

    return bytes_of


def estimate_memory(
    nodes: Sequence[Node],
    fetches: Iterable[Output] = (),
    bytes_of: BytesOf | None = None,
    device_of: Callable[[Node], str] | None = None,
) -> MemoryEstimate:
    """The peak of a step that runs its nodes one after the other.

    A value that is used on another device takes as much there, from its node to its last user
    there.

    Args:
      nodes: in the order in which they run.
      fetches: what the step returns.
      bytes_of: sizes; those of static shapes by default.
      device_of: where a node runs.
    """
    values = Values(nodes, fetches, bytes_of or sizes_of())
    if device_of is None:
        return _by_name(values.peaks(), nodes, [""])
    names = list(dict.fromkeys(map(device_of, nodes)))
    numbers = {name: i for i, name in enumerate(names)}
    places = [numbers[device_of(node)] for node in nodes]
    return _by_name(values.on_devices(places).peaks(), nodes, names)


def _by_name(
    peaks: Sequence[tuple[int, int]], nodes: Sequence[Node], names: Sequence[str]
) -> MemoryEstimate:
    named = dict(zip(names, peaks, strict=False))
    return MemoryEstimate(
        {name: peak for name, (peak, _) in named.items()},
        {name: nodes[place] for name, (_, place) in named.items() if nodes},
    )


def shown(output: Output) -> Output:
    """The value whose memory an output shows: itself, or what it is a view of."""
    while True:
        node = output.node
        if node.type == "IdentityN":
            source = node.inputs[output.index]
        elif node.type == "Split":
            source = node.inputs[1]
        elif node.type in _SHOWS_FIRST and node.inputs and not _moves(node):
            source = node.inputs[0]
        else:
            return output
        output = source


def _moves(node: Node) -> bool:
    """Whether a node takes its value to another device, or tells when it is taken there."""
    if node.type != "Identity" or not node.device:
        return False
    return bool(node.control_inputs) or node.device != node.inputs[0].node.device


def takes_memory(output: Output) -> bool:
    """Whether the value of an output is there because of the step alone."""
    dtype = output.dtype
    return not (
        dtype.is_ref
        or dtype in (dtypes.resource, dtypes.variant)
        or output.node.type in _ELSEWHERE
        or output.node.type == "ReadVariableOp"
    )


class Values:
    """The values of a step by number, and which of them each node reads and makes.

    Attributes:
      numbers: of each output; views have the number of what they show.
      sizes: bytes, by number.
      reads, makes: numbers, by the places of nodes.
      kept: the numbers of what is fetched.
    """

    def __init__(self, nodes: Sequence[Node], fetches: Iterable[Output], bytes_of: BytesOf) -> None:
        self.numbers: dict[Output, int] = {}
        self.sizes: list[int] = []
        self.reads: list[tuple[int, ...]] = []
        self.makes: list[tuple[int, ...]] = []
        self._bytes_of = bytes_of
        for node in nodes:
            self.reads.append(tuple(dict.fromkeys([self._number(s) for s in node.inputs])))
            made = [(self._number(o), shown(o) is o) for o in node.outputs]
            self.makes.append(tuple([number for number, own in made if own]))
        self.kept = {self._number(output) for output in fetches}
        self._devices: list[int] | None = None

    def _number(self, output: Output) -> int:
        found = self.numbers.get(output)
        if found is not None:
            return found
        root = shown(output)
        if root is not output:
            found = self._number(root)
        else:
            found = len(self.sizes)
            self.sizes.append(self._bytes_of(output) if takes_memory(output) else 0)
        self.numbers[output] = found
        return found

    def on_devices(self, places: Sequence[int]) -> Values:
        """The same with a value for each device that it is used on.

        Args:
          places: the device of each node.
        """
        result = Values((), (), self._bytes_of)
        result.kept = set(self.kept)
        result.reads, result.makes, result.sizes, result._devices = on_devices(
            self.reads, self.makes, self.sizes, places
        )
        return result

    def peaks(self) -> list[tuple[int, int]]:
        """For each device the most bytes that live at a time, and the place of that node."""
        return peaks(self.reads, self.makes, self.sizes, self.kept, self._devices)

    def live(self, device: int) -> list[int]:
        """The bytes that live on a device while each node runs."""
        change = [0] * (len(self.reads) + 1)
        for value, (begin, end) in lifetimes(self.reads, self.makes, self.kept).items():
            if self._devices is None or self._devices[value] == device:
                change[begin] += self.sizes[value]
                change[end] -= self.sizes[value]
        return list(accumulate(change[:-1]))


def on_devices(
    reads: Sequence[Sequence[int]],
    makes: Sequence[Sequence[int]],
    sizes: Sequence[int],
    places: Sequence[int],
) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]], list[int], list[int]]:
    """Values with a number of their own on each device that they are used on.

    Args:
      reads, makes: the numbers of the values of each node.
      sizes: by number of a value.
      places: the device of each node.
    Returns: reads, makes and sizes with more values, and the device of each.
    """
    all_sizes, devices = list(sizes), [0] * len(sizes)
    all_reads: list[tuple[int, ...]] = []
    all_makes: list[tuple[int, ...]] = []
    copies: dict[tuple[int, int], int] = {}
    needed: dict[int, dict[int, None]] = {}
    for place, used in zip(places, reads, strict=True):
        for value in used:
            needed.setdefault(value, {})[place] = None
    for place, used, made in zip(places, reads, makes, strict=True):
        more = list(made)
        for value in made:
            devices[value] = place
            for other in needed.get(value, ()):
                if other != place:
                    copies[value, other] = len(all_sizes)
                    more.append(len(all_sizes))
                    all_sizes.append(sizes[value])
                    devices.append(other)
        all_reads.append(tuple([copies.get((value, place), value) for value in used]))
        all_makes.append(tuple(more))
    return all_reads, all_makes, all_sizes, devices


def peaks(
    reads: Sequence[Sequence[int]],
    makes: Sequence[Sequence[int]],
    sizes: Sequence[int],
    kept: Iterable[int],
    devices: Sequence[int] | None = None,
) -> list[tuple[int, int]]:
    """The most bytes that live at a time, and when: for one device, or for each.

    Args:
      reads, makes: the numbers of the values of each node, in the order in which they run.
      sizes, devices: by number of a value.
      kept: what lives to the end.
    """
    count = 1 if devices is None else max(devices, default=0) + 1
    change = [[0] * (len(reads) + 1) for _ in range(count)]
    for value, (begin, end) in lifetimes(reads, makes, kept).items():
        row = change[0 if devices is None else devices[value]]
        row[begin] += sizes[value]
        row[end] -= sizes[value]
    found: list[tuple[int, int]] = []
    for row in change:
        live = list(accumulate(row[: len(reads)])) or [0]
        most = max(live)
        found.append((most, live.index(most)))
    return found


def lifetimes(
    reads: Sequence[Sequence[int]], makes: Sequence[Sequence[int]], kept: Iterable[int]
) -> dict[int, tuple[int, int]]:
    """For each value the place where it is made, and the one that follows its last use."""
    born: dict[int, int] = {}
    end: dict[int, int] = {}
    for place, used in enumerate(reads):
        end.update(dict.fromkeys(used, place + 1))
        for value in makes[place]:
            born[value] = place
            end[value] = place + 1
    end.update(dict.fromkeys(kept, len(reads)))
    return {value: (place, end[value]) for value, place in born.items()}

"""What nodes took and how large their outputs were: means that forget, in bounded tables."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Generic, NamedTuple, TypeVar

_V = TypeVar("_V")

WARM_UP: Final = 0.25
"""What a node's first run counts, as memory is touched and libraries start in it."""
_MEMORY: Final = 5.0
"""A mean is the plain one of the first five, and later ones count a fifth each."""
_DOUBT: Final = 3.0
"""A mean of three counts as much as the estimate that it is blended with."""
_RATIO_MEMORY: Final = 1000.0
_RATIO_LIMIT: Final = 1000.0


class Mean(NamedTuple):
    """An exponentially weighted mean; never changed, so that readers need no lock.

    Attributes:
      value: the mean, in any unit.
      weight: how many values it is of; the first counts less.
      fresh: whether nothing was added in this process.
    """

    value: float
    weight: float
    fresh: bool = False

    def add(self, value: float, weight: float) -> Mean:
        """The mean with one value more."""
        total = self.weight + weight
        share = weight / min(total, _MEMORY)
        return Mean(self.value + share * (value - self.value), total)

    def merge(self, other: Mean) -> Mean:
        """The mean of both, each by its weight."""
        total = self.weight + other.weight
        value = (self.value * self.weight + other.value * other.weight) / total
        return Mean(value, total, self.fresh and other.fresh)

    def blend(self, estimate: float) -> float:
        """The mean, the more like `estimate` the fewer values it is of."""
        share = self.weight / (self.weight + _DOUBT)
        return estimate + share * (self.value - estimate)


def added(found: Mean | None, value: float) -> tuple[Mean, float]:
    """A mean with one value more, and what that value counted."""
    if found is None:
        return Mean(value, WARM_UP), WARM_UP
    weight = WARM_UP if found.fresh else 1.0
    return found.add(value, weight), weight


class Ratio(NamedTuple):
    """How much slower than estimated a type of device is, by what all nodes took together.

    Attributes:
      measured: seconds that were measured, the latest thousand executions or so.
      estimated: seconds that were estimated for the same.
      weight: how many executions.
    """

    measured: float = 0.0
    estimated: float = 0.0
    weight: float = 0.0

    def add(self, measured: float, estimated: float, weight: float) -> Ratio:
        """The ratio with one execution more."""
        keep = 1.0 - 1.0 / _RATIO_MEMORY
        return Ratio(
            self.measured * keep + weight * measured,
            self.estimated * keep + weight * estimated,
            self.weight * keep + weight,
        )

    def merge(self, other: Ratio) -> Ratio:
        """The ratio of both."""
        return Ratio(*(a + b for a, b in zip(self, other, strict=True)))

    @property
    def factor(self) -> float:
        """By what to multiply an estimate; near 1 as long as little was measured."""
        if not self.estimated or not self.measured:
            return 1.0
        factor = self.measured / self.estimated
        factor = min(max(factor, 1.0 / _RATIO_LIMIT), _RATIO_LIMIT)
        return float(factor ** (self.weight / (self.weight + _DOUBT)))


class Table(Generic[_V]):
    """A mapping from tuples of strings that forgets what was not set for the longest time.

    `get` may be called while another thread sets; everything else is the owner's, under its lock.
    """

    def __init__(self, limit: int, rows: Iterable[tuple[tuple[str, ...], _V]] = ()) -> None:
        self._limit = limit
        self._rows: OrderedDict[tuple[str, ...], _V] = OrderedDict()
        self.get = self._rows.get
        for key, value in rows:
            self.put(key, value)

    def put(self, key: tuple[str, ...], value: _V) -> None:
        """Set a value; it is the newest then."""
        self._rows[key] = value
        self._rows.move_to_end(key)
        if len(self._rows) > self._limit:
            self._rows.popitem(last=False)

    def items(self) -> Iterator[tuple[tuple[str, ...], _V]]:
        """All of them, the oldest first."""
        return iter(self._rows.items())

    def __len__(self) -> int:
        return len(self._rows)


class Measurements:
    """All that a cost model has measured.

    Attributes:
      nodes: (device type, node name, signature) to seconds.
      ops: (device type, signature) to seconds.
      sizes: (node name, signature) to bytes of each output; of nodes with unknown sizes alone.
      ratios: device type to how far estimates are off there.
      unknown: the size that unknown sizes turned out to have, as a mean of logarithms; or None.
    """

    def __init__(self, node_limit: int, op_limit: int) -> None:
        self.node_limit, self.op_limit = node_limit, op_limit
        self.nodes: Table[Mean] = Table(node_limit)
        self.ops: Table[Mean] = Table(op_limit)
        self.sizes: Table[tuple[Mean, ...]] = Table(node_limit)
        self.ratios: dict[str, Ratio] = {}
        self.unknown: Mean | None = None

    def merge(self, older: Measurements) -> None:
        """Add what was measured before, without forgetting anything of this for it."""
        self.nodes = _merged(self.node_limit, older.nodes, self.nodes, Mean.merge)
        self.ops = _merged(self.op_limit, older.ops, self.ops, Mean.merge)
        self.sizes = _merged(self.node_limit, older.sizes, self.sizes, _merged_sizes)
        self.ratios = {
            kind: self.ratios.get(kind, Ratio()).merge(older.ratios.get(kind, Ratio()))
            for kind in (*self.ratios, *(set(older.ratios) - set(self.ratios)))
        }
        if self.unknown is None:
            self.unknown = older.unknown
        elif older.unknown is not None:
            self.unknown = self.unknown.merge(older.unknown)


def _merged(
    limit: int, older: Table[_V], newer: Table[_V], merge: Callable[[_V, _V], _V]
) -> Table[_V]:
    table: Table[_V] = Table(limit, older.items())
    for key, value in newer.items():
        before = older.get(key)
        table.put(key, value if before is None else merge(value, before))
    return table


def _merged_sizes(newer: tuple[Mean, ...], older: tuple[Mean, ...]) -> tuple[Mean, ...]:
    if len(newer) != len(older):
        return newer
    return tuple(a.merge(b) for a, b in zip(newer, older, strict=True))

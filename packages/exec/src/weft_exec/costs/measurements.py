"""Measured node times and output sizes, as exponentially weighted means in bounded tables."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Generic, NamedTuple, TypeVar

_V = TypeVar("_V")

WARM_UP: Final = 0.25
"""Weight of a node's first run, which includes page faults and the initialization of libraries."""
_MEMORY: Final = 5.0
"""Number of values that are averaged equally; each later value weighs one over this."""
_DOUBT: Final = 3.0
"""Number of values at which a mean has the same weight as the estimate."""
_RATIO_MEMORY: Final = 1000.0
_RATIO_LIMIT: Final = 1000.0


class Mean(NamedTuple):
    """An exponentially weighted mean; immutable, so that readers need no lock.

    Attributes:
      value: the mean, in any unit.
      weight: the number of values; the first one has a lower weight.
      fresh: True if no value was added in this process.
    """

    value: float
    weight: float
    fresh: bool = False

    def add(self, value: float, weight: float) -> Mean:
        """Return the mean with one more value."""
        total = self.weight + weight
        share = weight / min(total, _MEMORY)
        return Mean(self.value + share * (value - self.value), total)

    def merge(self, other: Mean) -> Mean:
        """Return the mean of both means, each weighted by its number of values."""
        total = self.weight + other.weight
        value = (self.value * self.weight + other.value * other.weight) / total
        return Mean(value, total, self.fresh and other.fresh)

    def blend(self, estimate: float) -> float:
        """Return the mean blended with `estimate`, whose weight falls with the number of values."""
        share = self.weight / (self.weight + _DOUBT)
        return estimate + share * (self.value - estimate)


def add_to_mean(result: Mean | None, value: float) -> tuple[Mean, float]:
    """Add a value to a mean, which may be None; return the mean and the weight of the value."""
    if result is None:
        return Mean(value, WARM_UP), WARM_UP
    weight = WARM_UP if result.fresh else 1.0
    return result.add(value, weight), weight


class Ratio(NamedTuple):
    """The ratio of measured to estimated time of a device type, over all nodes.

    Attributes:
      measured: measured seconds of about the last thousand executions.
      estimated: estimated seconds of the same executions.
      weight: number of executions.
    """

    measured: float = 0.0
    estimated: float = 0.0
    weight: float = 0.0

    def add(self, measured: float, estimated: float, weight: float) -> Ratio:
        """Return the ratio with one more execution."""
        decay = 1.0 - 1.0 / _RATIO_MEMORY
        return Ratio(
            self.measured * decay + weight * measured,
            self.estimated * decay + weight * estimated,
            self.weight * decay + weight,
        )

    def merge(self, other: Ratio) -> Ratio:
        """Return the ratio over the executions of both ratios."""
        return Ratio(*(a + b for a, b in zip(self, other, strict=True)))

    @property
    def factor(self) -> float:
        """The factor that corrects an estimate; it is near 1 while there are few measurements."""
        if not self.estimated or not self.measured:
            return 1.0
        factor = self.measured / self.estimated
        factor = min(max(factor, 1.0 / _RATIO_LIMIT), _RATIO_LIMIT)
        return float(factor ** (self.weight / (self.weight + _DOUBT)))


class Table(Generic[_V]):
    """A mapping from tuples of strings that evicts the least recently set entry.

    `get` is safe while another thread calls `put`; all other calls need the owner's lock.
    """

    def __init__(self, limit: int, rows: Iterable[tuple[tuple[str, ...], _V]] = ()) -> None:
        self._limit = limit
        self._rows: OrderedDict[tuple[str, ...], _V] = OrderedDict()
        self.get = self._rows.get
        for key, value in rows:
            self.put(key, value)

    def put(self, key: tuple[str, ...], value: _V) -> None:
        """Set a value and make it the newest."""
        self._rows[key] = value
        self._rows.move_to_end(key)
        if len(self._rows) > self._limit:
            self._rows.popitem(last=False)

    def items(self) -> Iterator[tuple[tuple[str, ...], _V]]:
        """Iterate over all entries, oldest first."""
        return iter(self._rows.items())

    def __len__(self) -> int:
        return len(self._rows)


class Measurements:
    """All measurements of a cost model.

    Attributes:
      nodes: (device type, node name, signature) to seconds.
      ops: (device type, signature) to seconds.
      sizes: (node name, signature) to bytes of each output; only for nodes with unknown sizes.
      ratios: device type to the ratio of measured to estimated time.
      unknown: the mean logarithm of the measured values of statically unknown sizes; or None.
    """

    def __init__(self, node_limit: int, op_limit: int) -> None:
        self.node_limit, self.op_limit = node_limit, op_limit
        self.nodes: Table[Mean] = Table(node_limit)
        self.ops: Table[Mean] = Table(op_limit)
        self.sizes: Table[tuple[Mean, ...]] = Table(node_limit)
        self.ratios: dict[str, Ratio] = {}
        self.unknown: Mean | None = None

    def merge(self, older: Measurements) -> None:
        """Add earlier measurements, which never evict an entry of this object."""
        self.nodes = _merge_tables(self.node_limit, older.nodes, self.nodes, Mean.merge)
        self.ops = _merge_tables(self.op_limit, older.ops, self.ops, Mean.merge)
        self.sizes = _merge_tables(self.node_limit, older.sizes, self.sizes, _merge_sizes)
        self.ratios = {
            kind: self.ratios.get(kind, Ratio()).merge(older.ratios.get(kind, Ratio()))
            for kind in (*self.ratios, *(set(older.ratios) - set(self.ratios)))
        }
        if self.unknown is None:
            self.unknown = older.unknown
        elif older.unknown is not None:
            self.unknown = self.unknown.merge(older.unknown)


def _merge_tables(
    limit: int, older: Table[_V], newer: Table[_V], merge: Callable[[_V, _V], _V]
) -> Table[_V]:
    table: Table[_V] = Table(limit, older.items())
    for key, value in newer.items():
        old_value = older.get(key)
        table.put(key, value if old_value is None else merge(value, old_value))
    return table


def _merge_sizes(newer: tuple[Mean, ...], older: tuple[Mean, ...]) -> tuple[Mean, ...]:
    if len(newer) != len(older):
        return newer
    return tuple(a.merge(b) for a, b in zip(newer, older, strict=True))

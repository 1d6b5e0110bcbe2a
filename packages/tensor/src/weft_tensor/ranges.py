"""Free ranges of memory: best fit with coalescing, as plain bookkeeping over numbers.

Nothing here touches memory or locks: `CpuAllocator` uses it, and tests exercise it alone. A region
is a separate piece of address space; ranges of different regions never merge.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from itertools import pairwise

from weft_tensor.errors import InternalError

# One entry of the size-ordered list: (size, region, offset).
_Entry = tuple[int, int, int]


class FreeRanges:
    """The free ranges of some regions, kept by size and by their borders.

    Attributes:
      free_bytes: sum of the sizes of all free ranges.
    """

    __slots__ = ("_by_size", "_ends", "_sizes", "_starts", "free_bytes")

    def __init__(self) -> None:
        """Create an instance without regions."""
        self._by_size: list[_Entry] = []
        self._sizes: dict[int, int] = {}
        self._starts: dict[tuple[int, int], int] = {}
        self._ends: dict[tuple[int, int], int] = {}
        self.free_bytes = 0

    def add_region(self, region: int, size: int) -> None:
        """Add a region, free from 0 to `size`."""
        self._sizes[region] = size
        self._insert(region, 0, size)

    def remove_region(self, region: int) -> None:
        """Drop a region that is wholly free.

        Raises:
          InternalError: a part of it is in use.
        """
        size = self._sizes[region]
        if self._starts.get((region, 0)) != size:
            raise InternalError(f"memory region {region} of {size} bytes is still in use")
        self._remove(region, 0, size)
        del self._sizes[region]

    def take(self, size: int) -> tuple[int, int] | None:
        """Take `size` bytes from the smallest range that fits; return (region, offset).

        Of equal ranges it takes the one in the oldest region at the lowest offset. It returns None
        if no range is large enough.
        """
        index = bisect_left(self._by_size, (size,))
        if index == len(self._by_size):
            return None
        range_size, region, offset = self._by_size[index]
        self._remove(region, offset, range_size)
        if range_size > size:
            self._insert(region, offset + size, range_size - size)
        return region, offset

    def release_range(self, region: int, offset: int, size: int) -> None:
        """Return a taken range; it merges with the free ranges on both sides."""
        preceding_size = self._ends.get((region, offset))
        if preceding_size is not None:
            self._remove(region, offset - preceding_size, preceding_size)
            offset, size = offset - preceding_size, size + preceding_size
        following_size = self._starts.get((region, offset + size))
        if following_size is not None:
            self._remove(region, offset + size, following_size)
            size += following_size
        self._insert(region, offset, size)

    def free_regions(self) -> list[int]:
        """Return the regions that are wholly free."""
        starts = self._starts
        return [region for region, size in self._sizes.items() if starts.get((region, 0)) == size]

    def largest(self) -> int:
        """Return the size of the largest free range, 0 if there is none."""
        return self._by_size[-1][0] if self._by_size else 0

    def ranges(self) -> list[tuple[int, int, int]]:
        """Return all free ranges as (region, offset, size), in order."""
        return sorted((region, offset, size) for size, region, offset in self._by_size)

    def check_integrity(self) -> None:
        """Recompute the redundant tables and compare.

        Raises:
          InternalError: the tables disagree, or two free ranges overlap or touch.
        """
        listed = self.ranges()
        if {(r, o): s for r, o, s in listed} != self._starts:
            raise InternalError("the free ranges by size and by start differ")
        if {(r, o + s): s for r, o, s in listed} != self._ends:
            raise InternalError("the free ranges by size and by end differ")
        if sum(size for _, _, size in listed) != self.free_bytes:
            raise InternalError("the sum of the free ranges is wrong")
        for (r1, o1, s1), (r2, o2, _) in pairwise(listed):
            if r1 == r2 and o1 + s1 >= o2:
                raise InternalError(f"free ranges at {o1} and {o2} of region {r1} are not apart")

    def _insert(self, region: int, offset: int, size: int) -> None:
        insort(self._by_size, (size, region, offset))
        self._starts[region, offset] = size
        self._ends[region, offset + size] = size
        self.free_bytes += size

    def _remove(self, region: int, offset: int, size: int) -> None:
        del self._by_size[bisect_left(self._by_size, (size, region, offset))]
        del self._starts[region, offset]
        del self._ends[region, offset + size]
        self.free_bytes -= size

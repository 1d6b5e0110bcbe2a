"""Cases of stacks: pushed and popped values.

Their ops take handles rather than arrays, so `CASES` is empty; `STACK_CASES` are run by
tests/exec/kernels/test_stack.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft_testing.cases import BOOL, NUMBERS, STRING, Case

CASES: list[Case] = []


class StackCase:
    """One program.

    Args:
      name: of the case.
      max_size: of the stack.
      shapes: of the values pushed, in order.
      pops: how many are taken off after that.
    """

    dtypes = (*NUMBERS, *BOOL, *STRING)

    def __init__(
        self, name: str, max_size: int, shapes: Sequence[tuple[int, ...]], pops: int
    ) -> None:
        self.name = name
        self.max_size = max_size
        self.shapes = tuple(shapes)
        self.pops = pops


STACK_CASES = [
    StackCase("one", -1, [(2, 3)], 1),
    StackCase("several shapes", -1, [(), (3,), (0, 2), (2, 1)], 4),
    StackCase("some left", -1, [(2,), (2,), (2,)], 2),
    StackCase("just enough room", 2, [(2,), (2,)], 2),
    StackCase("large", -1, [(100, 100), (100, 100)], 2),
]

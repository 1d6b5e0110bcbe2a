"""Cases of the permutations of indices; draws from a variable have tests of their own."""

from __future__ import annotations

import numpy as np
from weft_testing.cases import Case, Raw

INTEGERS = ("int32", "int64", "uint32", "uint64")
CASES = [
    Case("RandomIndexShuffle", [np.array([0, 4, 2]), Raw([1, 2, 3], "int32"), np.array(4)], {},
         None, dtypes=INTEGERS, type_attr="dtype", grad=False),
    Case("RandomIndexShuffle", [np.array(0), Raw(np.ones((2, 3)), "uint64"), np.array([0, 0])], {},
         lambda index, seed, largest: np.zeros(2), dtypes=INTEGERS, type_attr="dtype", grad=False,
         label="of-one"),
]  # fmt: skip

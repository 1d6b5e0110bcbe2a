"""Rounding against NumPy."""

from __future__ import annotations

import numpy as np
from weft_testing.cases import (
    INTEGERS,
    Case,
    integers,
)

SIGNED_COUNTS = integers(-7, 8, 3, 4)
HALVES = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.3, -0.7])

CASES = [
    *(
        Case(op, [HALVES], expected=function)
        for op, function in (
            ("Floor", np.floor),
            ("Ceil", np.ceil),
            ("Rint", np.rint),
            ("Round", np.rint),
        )
    ),
    Case("Round", [SIGNED_COUNTS], expected=lambda x: x, dtypes=INTEGERS, label="int"),
]

"""Ops that exist for order and effects, as far as they have values."""

from __future__ import annotations

import numpy as np
from weft_testing.cases import NUMBERS, UNTYPED, Case, Raw, complex_normal

from weft_graph.ops.control import hold_function

X = complex_normal(2, 3)
DOUBLED = hold_function(lambda x, text: (x * 2, text + b"!"))

CASES = [
    Case("NoOp", [], {}, lambda: (), dtypes=UNTYPED, grad=False),
    Case(
        "Assert",
        [Raw(np.array(True)), [Raw(np.array([1.0, 2.0]))]],
        {},
        lambda condition, data: (),
        dtypes=UNTYPED,
        grad=False,
    ),
    Case(
        "Print",
        [X, [Raw(np.array([1, 2]))]],
        {"message": "value "},
        lambda x, data: x,
        dtypes=NUMBERS,
        grad=[0],
    ),
    Case(
        "PrintV2",
        [Raw(np.array(b"line", object), "string")],
        {"end": "\n"},
        lambda line: (),
        dtypes=UNTYPED,
        grad=False,
    ),
    Case(
        "PyFuncStateless",
        [[Raw(X), Raw(np.array([b"a"], object), "string")]],
        {"token": DOUBLED.token, "Tout": ["complex128", "string"]},
        lambda values: (values[0] * 2, values[1] + b"!"),
        dtypes=UNTYPED,
        grad=False,
        static=False,
    ),
]

"""Cases of the random ops: types and shapes; tests/exec/kernels/test_random.py has the rest."""

from __future__ import annotations

import numpy as np
from weft_testing.cases import FLOATS, Case, Raw

SHAPE = Raw([3, 4])
EMPTY = Raw(np.zeros(0, np.int32))
SEED = Raw(np.array([1, 2], np.int64))
SEEDS = {"seed": 5, "seed2": 6}
INTEGERS = ("int32", "int64")


CASES = [
    *[
        Case(op, [shape], SEEDS, dtypes=FLOATS, type_attr="dtype", grad=False, label=label)
        for op in ("RandomUniform", "RandomStandardNormal", "TruncatedNormal")
        for shape, label in ((SHAPE, ""), (EMPTY, "rank 0"), (Raw([2, 0]), "empty"))
    ],
    *[
        Case(op, [SHAPE, SEED], dtypes=FLOATS, type_attr="dtype", grad=False)
        for op in (
            "StatelessRandomUniform",
            "StatelessRandomNormal",
            "StatelessTruncatedNormal",
        )
    ],
    Case("RandomUniformInt", [SHAPE, 3, 9], SEEDS, dtypes=INTEGERS, type_attr="Tout", grad=False),
    Case(
        "StatelessRandomUniformInt",
        [SHAPE, SEED, -3, 9],
        dtypes=INTEGERS,
        type_attr="dtype",
        grad=False,
    ),
    Case("RandomShuffle", [np.ones((5, 2))], SEEDS, lambda x: x, dtypes=FLOATS, grad=False),
    Case("RandomShuffle", [np.ones(())], SEEDS, lambda x: x, dtypes=FLOATS, grad=False, label="0"),
    Case("Multinomial", [np.zeros((2, 3)), Raw(np.int32(7))], SEEDS, dtypes=FLOATS, grad=False),
    Case(
        "Multinomial",
        [np.array([[-np.inf, 0.0]]), Raw(np.int32(4))],
        SEEDS,
        lambda logits, count: np.ones((1, 4)),
        dtypes=("float32", "float64"),
        grad=False,
        label="certain",
    ),
    Case(
        "RandomGamma",
        [SHAPE, np.array([0.5, 2.0])],
        SEEDS,
        dtypes=("float16", "float32", "float64"),
        grad=False,
    ),
    Case(
        "RandomPoissonV2",
        [SHAPE, Raw(np.array([0.5, 20.0]))],
        SEEDS,
        dtypes=("float16", "float32", "float64", "int32", "int64"),
        type_attr="dtype",
        grad=False,
    ),
    Case(
        "RandomPoisson",
        [SHAPE, np.array([0.5, 20.0])],
        SEEDS,
        dtypes=("float16", "float32", "float64"),
        type_attr="dtype",
        grad=False,
    ),
]

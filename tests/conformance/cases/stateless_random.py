"""Random numbers that depend on a seed alone: types and shapes here, distributions elsewhere."""

from __future__ import annotations

import numpy as np
from weft_testing.cases import Case, Raw, normal

SHAPE = Raw(np.array([3, 2]), "int32", constant=True)
SEED = Raw(np.array([1, 2]), "int64")
FLOATS = ("float16", "float32", "float64")
NUMBERS = (*FLOATS, "int32", "int64")

CASES = [
    Case("StatelessMultinomial", [normal(3, 4), Raw(5, "int32", constant=True), SEED], {}, None,
         dtypes=FLOATS),
    Case("StatelessRandomGammaV2", [SHAPE, SEED, np.array([0.5, 3.0])], {}, None, dtypes=FLOATS,
         type_attr="dtype"),
    Case("StatelessRandomPoisson", [SHAPE, SEED, Raw([0.5, 3.0], "float32")], {}, None,
         dtypes=NUMBERS, type_attr="dtype"),
    Case("StatelessRandomBinomial", [SHAPE, SEED, Raw([5.0, 3.0], "float32"), Raw(0.5, "float32")],
         {}, None, dtypes=NUMBERS, type_attr="dtype"),
    Case("StatelessParameterizedTruncatedNormal",
         [SHAPE, SEED, np.array(0.0), np.array([1.0, 2.0]), np.array(-1.0), np.array(2.0)], {},
         None, dtypes=FLOATS, type_attr="dtype"),
]  # fmt: skip

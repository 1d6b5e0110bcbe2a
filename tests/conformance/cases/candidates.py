"""Candidate samplers: properties of all samples; statistics are tested elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
from weft_testing.cases import UNTYPED, Case, Raw

TRUE = Raw([[1, 3], [0, 7]], "int64", constant=False)
COUNTS: dict[str, Any] = {"num_true": 2, "num_sampled": 4, "unique": True}
RANGE = {**COUNTS, "range_max": 8, "seed": 7}


def _hits(true: Any, sampled: Any) -> Any:
    found = [
        (row, place)
        for row, classes in enumerate(true)
        for each in classes
        for place, other in enumerate(sampled)
        if each == other
    ]
    lowest = np.full(len(found), -np.finfo(np.float32).max)
    return np.array([r for r, _ in found]), np.array([p for _, p in found]), lowest


CASES = [
    *[
        Case(op, [TRUE], RANGE, dtypes=UNTYPED, grad=False)
        for op in (
            "UniformCandidateSampler",
            "LogUniformCandidateSampler",
            "LearnedUnigramCandidateSampler",
        )
    ],
    Case(
        "FixedUnigramCandidateSampler",
        [TRUE],
        {**RANGE, "unigrams": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]},
        dtypes=UNTYPED,
        grad=False,
    ),
    Case(
        "AllCandidateSampler",
        [TRUE],
        COUNTS,
        lambda true: (np.arange(4), np.ones(true.shape), np.ones(4)),
        dtypes=UNTYPED,
        grad=False,
    ),
    Case(
        "ComputeAccidentalHits",
        [TRUE, Raw([7, 2, 3, 0], "int64", constant=False)],
        {"num_true": 2},
        _hits,
        dtypes=UNTYPED,
        grad=False,
        static=False,
    ),
]

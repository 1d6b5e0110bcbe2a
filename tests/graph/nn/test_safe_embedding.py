"""Embeddings of sparse ids among which some are bad, and of rows without any."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from weft_testing.parts import Parts

import weft as wf
from weft import errors

TABLE = np.random.default_rng(5).standard_normal((6, 3)).astype(np.float32)
PLACES = np.array([[0, 0, 0], [0, 0, 1], [0, 1, 0], [1, 0, 2], [1, 1, 0], [1, 1, 1]])
IDS = np.array([1, 4, -1, 5, 2, 3])
WEIGHTS = np.array([0.5, 2.0, 1.0, -1.0, 0.0, 3.0], np.float32)


@pytest.fixture(autouse=True)
def _graph() -> Any:
    with wf.Graph().as_default():
        yield


def ids(rank: int = 3) -> wf.SparseTensor:
    shape = [2, 2, 3]
    return wf.SparseTensor(PLACES[:, 3 - rank :], wf.constant(IDS, wf.int64), shape[3 - rank :])


def reference(combiner: str, weighted: bool, default: int | None) -> np.ndarray:
    result = np.zeros((2, 2, 3))
    weights = WEIGHTS if weighted else np.ones(6)
    kept = (IDS >= 0) & ((weights > 0) | (combiner == "sum"))
    for row in np.ndindex(2, 2):
        chosen = kept & (PLACES[:, :2] == row).all(1)
        each, rows = weights[chosen], TABLE[IDS[chosen]]
        if not chosen.any():
            each, rows = np.ones(1), TABLE[[default]] if default is not None else np.zeros((1, 3))
        scale = {"sum": 1.0, "mean": each.sum(), "sqrtn": np.sqrt((each**2).sum())}[combiner]
        result[row] = each @ rows / scale
    return result


def test_bad_ids_are_left_out_and_empty_rows_filled() -> None:
    with Parts() as parts:
        for combiner in ("sum", "mean", "sqrtn"):
            for weighted in (False, True):
                for default in (None, 4):
                    with parts.part(f"{combiner}, {weighted}, {default}"):
                        weights = ids().with_values(WEIGHTS) if weighted else None
                        tables = [wf.constant(TABLE[:3]), wf.constant(TABLE[3:])]
                        found = wf.nn.safe_embedding_lookup_sparse(
                            tables, ids(), weights, combiner, default
                        )
                        assert found.shape.as_list() == [2, 2, 3]
                        expected = reference(combiner, weighted, default)
                        np.testing.assert_allclose(wf.Session().run(found), expected, rtol=1e-5)


def test_the_gradient_reaches_the_table() -> None:
    table = wf.constant(TABLE)
    found = wf.nn.safe_embedding_lookup_sparse(table, ids(), combiner="sum")
    grad = wf.convert_to_tensor(wf.gradients(wf.reduce_sum(found), table)[0])
    expected = np.bincount(IDS[IDS >= 0], minlength=6)[:, None] * np.ones(3)
    np.testing.assert_array_equal(wf.Session().run(grad), expected)


def test_refusals() -> None:
    wide = ids().with_values(WEIGHTS.astype(np.float64))
    refused: list[tuple[Any, ...]] = [
        (None, ids()),
        ([], ids()),
        (TABLE, ids(1)),
        (TABLE, wf.constant(IDS)),
        (TABLE, ids(), wide),
        (TABLE, ids(), None, "median"),
    ]
    for arguments in refused:
        with pytest.raises(errors.OpError):
            wf.nn.safe_embedding_lookup_sparse(*arguments)

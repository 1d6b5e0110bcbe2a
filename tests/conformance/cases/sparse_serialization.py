"""Sparse tensors through text and back."""

from __future__ import annotations

import numpy as np
from weft_testing.cases import STRING, UNTYPED, Case, Raw

from weft_graph.messages.tensor_proto import make_tensor_proto

PLACES = np.array([[0, 1], [2, 0], [2, 2]], np.int64)
VALUES = np.array([1.5, -2.0, 3.0], np.float32)
SHAPE = np.array([3, 4], np.int64)


def _text(*arrays: np.ndarray) -> list[bytes]:
    return [make_tensor_proto(array).SerializeToString() for array in arrays]


ROWS = [
    _text(PLACES[:1, 1:], VALUES[:1], SHAPE[1:]),
    _text(PLACES[:0, 1:], VALUES[:0], SHAPE[1:]),
    _text(PLACES[1:, 1:], VALUES[1:], SHAPE[1:]),
]
SPARSE = [Raw(PLACES), Raw(VALUES), Raw(SHAPE)]

CASES = [
    Case(
        "SerializeSparse",
        SPARSE,
        {},
        lambda *parts: np.array(_text(PLACES, VALUES, SHAPE), object),
        dtypes=UNTYPED,
    ),
    Case("SerializeManySparse", SPARSE, {}, lambda *parts: np.array(ROWS, object), dtypes=UNTYPED),
    Case(
        "DeserializeManySparse",
        [Raw(ROWS, "string")],
        {"dtype": "float32"},
        lambda text: (PLACES, VALUES, SHAPE),
        dtypes=UNTYPED,
        static=False,
    ),
    Case(
        "DeserializeSparse",
        [np.array([ROWS], object)],
        {"dtype": "float32"},
        lambda text: (np.insert(PLACES, 0, 0, axis=1), VALUES, np.array([1, 3, 4])),
        dtypes=STRING,
        type_attr="Tserialized",
        static=False,
    ),
]

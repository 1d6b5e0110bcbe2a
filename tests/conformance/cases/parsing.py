"""Formats of bytes against protobuf, Python's csv and zlib."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from weft_testing.cases import UNTYPED, Array, Case, Raw

from weft_graph import proto
from weft_graph.messages.tensor_proto import make_tensor_proto


def strings(values: Sequence[bytes]) -> Array:
    result = np.empty(len(values), object)
    result[:] = values
    return result


def text(value: bytes) -> Raw:
    return Raw(np.array(value, object), "string")


def texts(*values: bytes) -> Raw:
    return Raw(strings(values), "string")


def case(
    op: str, inputs: Sequence[Any], attrs: Mapping[str, Any], *expected: Any, label: str = ""
) -> Case:
    """A case whose expected values are given."""
    value = expected if len(expected) > 1 else expected[0]
    return Case(
        op, inputs, attrs, lambda *_: value, dtypes=UNTYPED, label=label, grad=False, static=False
    )


# ------------------------------------------------------------------------------ examples


def feature(values: Sequence[Any]) -> Any:
    message = proto.Feature()
    if values and isinstance(values[0], bytes):
        message.bytes_list.value.extend(values)
    elif values and isinstance(values[0], float):
        message.float_list.value.extend(values)
    elif values:
        message.int64_list.value.extend(values)
    return message


def example(**features: Sequence[Any]) -> bytes:
    message = proto.Example()
    for key, values in features.items():
        message.features.feature[key].CopyFrom(feature(values))
    serialized: bytes = message.SerializeToString()
    return serialized


def sequence(context: dict[str, Any], **lists: Sequence[Sequence[Any]]) -> bytes:
    message = proto.SequenceExample()
    for key, values in context.items():
        message.context.feature[key].CopyFrom(feature(values))
    for key, steps in lists.items():
        message.feature_lists.feature_list[key].feature.extend([feature(step) for step in steps])
    serialized: bytes = message.SerializeToString()
    return serialized


FIRST = example(i=[1, -2, 300], f=[1.5, 2.5], s=[b"x", b"yz"], extra=[b"not asked for"])
SECOND = example(i=[2**62], f=[-1.0, 0.25])
EMPTY = Raw(np.zeros(0, np.float32), "float32")
NAMES = texts()

SPARSE: dict[str, Any] = {"sparse_types": ["int64", "string"], "Nsparse": 2}
INDICES = np.array([[0, 0], [0, 1], [0, 2], [1, 0]])


def _examples() -> list[Case]:
    dense = Raw(np.array([[1.5, 2.5], [-1.0, 0.25]], np.float32))
    batch = texts(FIRST, SECOND)
    default = Raw(np.array([b"d", b"e"], object), "string")
    padding = [default, Raw(np.array(b"p", object), "string"), Raw(7, "int64")]
    return [
        case(
            "ParseExample",
            [batch, NAMES, [text(b"i"), text(b"s")], [text(b"f")], [EMPTY]],
            {**SPARSE, "dense_shapes": [[2]]},
            INDICES,
            np.array([[0, 0], [0, 1]]),
            np.array([1, -2, 300, 2**62]),
            strings([b"x", b"yz"]),
            np.array([2, 3]),
            np.array([2, 2]),
            dense.array,
        ),
        case(
            "ParseExample",
            [
                batch,
                NAMES,
                [],
                [text(b"s"), text(b"s2"), text(b"i")],
                padding,
            ],
            {"sparse_types": [], "dense_shapes": [[2], [None], [None]]},
            np.array([[b"x", b"yz"], [b"d", b"e"]], object),
            np.empty((2, 0), object),
            np.array([[1, -2, 300], [2**62, 7, 7]]),
            label="defaults",
        ),
        case(
            "ParseExample",
            [texts(), NAMES, [text(b"i")], [text(b"f")], [EMPTY]],
            {"sparse_types": ["int64"], "dense_shapes": [[2, 3]]},
            np.zeros((0, 2)),
            np.zeros(0),
            np.zeros(2),
            np.zeros((0, 2, 3)),
            label="nothing",
        ),
        case(
            "ParseSingleExample",
            [text(FIRST), [EMPTY]],
            {
                "num_sparse": 2,
                "sparse_keys": ["i", "s"],
                "dense_keys": ["f"],
                "sparse_types": ["int64", "string"],
                "dense_shapes": [[2]],
            },
            np.array([[0], [1], [2]]),
            np.array([[0], [1]]),
            np.array([1, -2, 300]),
            strings([b"x", b"yz"]),
            np.array([3]),
            np.array([2]),
            dense.array[0],
        ),
    ]


LONG = sequence({"k": [4], "t": [b"a", b"b"]}, x=[[1, 2], [3, 4]], y=[[b"a"], [], [b"b", b"c"]])
SHORT = sequence({"k": [5]}, x=[[9, 9]])
TYPES: dict[str, Any] = {
    "context_sparse_types": ["string"],
    "context_dense_shapes": [[]],
    "feature_list_sparse_types": ["string"],
    "feature_list_dense_types": ["int64"],
    "feature_list_dense_shapes": [[2]],
}
REQUIRED = Raw(np.zeros(0, np.int64), "int64")


def _sequences() -> list[Case]:
    return [
        case(
            "ParseSequenceExample",
            [texts(LONG, SHORT), NAMES, [REQUIRED]],
            {
                **TYPES,
                "Ncontext_sparse": 1,
                "Ncontext_dense": 1,
                "Nfeature_list_sparse": 1,
                "Nfeature_list_dense": 1,
                "feature_list_dense_missing_assumed_empty": [],
                "context_sparse_keys": ["t"],
                "context_dense_keys": ["k"],
                "feature_list_sparse_keys": ["y"],
                "feature_list_dense_keys": ["x"],
            },
            np.array([[0, 0], [0, 1]]),
            strings([b"a", b"b"]),
            np.array([2, 2]),
            np.array([4, 5]),
            np.array([[0, 0, 0], [0, 2, 0], [0, 2, 1]]),
            strings([b"a", b"b", b"c"]),
            np.array([2, 3, 2]),
            np.array([[[1, 2], [3, 4]], [[9, 9], [0, 0]]]),
            np.array([2, 1]),
        ),
        case(
            "ParseSingleSequenceExample",
            [
                text(LONG),
                texts(b"z"),
                [text(b"t")],
                [text(b"k")],
                [text(b"y")],
                [text(b"x"), text(b"z")],
                [REQUIRED],
                text(b"the name"),
            ],
            {
                **TYPES,
                "Nfeature_list_dense": 2,
                "feature_list_dense_types": ["int64", "float32"],
                "feature_list_dense_shapes": [[2], [3]],
            },
            np.array([[0], [1]]),
            strings([b"a", b"b"]),
            np.array([2]),
            np.array(4),
            np.array([[0, 0], [2, 0], [2, 1]]),
            strings([b"a", b"b", b"c"]),
            np.array([3, 2]),
            np.array([[1, 2], [3, 4]]),
            np.zeros((0, 3)),
        ),
    ]


# ------------------------------------------------------------------------- other formats


def _csv() -> list[Case]:
    lines = np.array([[b'a,1,2.5,"q ""x"", y"', b"b,,1e3,"]], object)
    none = Raw(np.zeros(0, object), "string")
    defaults = [none, Raw([7], "int32"), Raw(np.zeros(0, np.float64), "float64")]
    columns = (
        np.array([[b"a", b"b"]], object),
        np.array([[1, 7]]),
        np.array([[2.5, 1000.0]]),
        np.array([[b'q "x", y', b"-"]], object),
    )
    dash = Raw(np.array(b"-", object), "string")
    return [
        case("DecodeCSV", [Raw(lines, "string"), [*defaults, dash]], {}, *columns),
        case(
            "DecodeCSV",
            [texts(b'x;"2', b"NA;3"), [dash, dash]],
            {"field_delim": ";", "use_quote_delim": False, "na_value": "NA"},
            strings([b"x", b"-"]),
            strings([b'"2', b"3"]),
            label="bare",
        ),
        case(
            "DecodeCSV",
            [text(b"a,b,-3,d"), [Raw([0], "int64"), dash]],
            {"select_cols": [2, 3]},
            np.array(-3),
            np.array(b"d", object),
            label="chosen",
        ),
    ]


def _tensors() -> list[Case]:
    values = np.array([[0, 1], [2, 5]])

    def serialized(x: Array) -> Array:
        return np.array(make_tensor_proto(x).SerializeToString(), object)

    made = [
        case("SerializeTensor", [Raw(x)], {}, serialized(x), label=x.dtype.name)
        for x in [
            values.astype(kind)
            for kind in ("int8", "float32", "float64", "complex64", "bool", "uint64")
        ]
    ]
    taken = [
        case(
            "ParseTensor",
            [Raw(serialized(values.astype(kind)), "string")],
            {"out_type": kind},
            values.astype(kind),
            label=kind,
        )
        for kind in ("int8", "int64", "float32", "float64", "complex128", "bool", "uint16")
    ]
    words = strings([b"a", b"\xff"])
    return [
        *made,
        *taken,
        case("SerializeTensor", [Raw(words, "string")], {}, serialized(words), label="string"),
        case(
            "ParseTensor",
            [Raw(serialized(words), "string")],
            {"out_type": "string"},
            words,
            label="string",
        ),
    ]


def _forms() -> list[Case]:
    as_json = {
        "features": {
            "feature": {
                "a": {"int64List": {"value": [1, "-2"]}},
                "b": {"bytesList": {"value": ["eA=="]}},
            }
        }
    }
    wanted = proto.Example()
    wanted.features.feature["a"].int64_list.value.extend([1, -2])
    wanted.features.feature["b"].bytes_list.value.append(b"x")
    data = [b"", b"hello" * 100, bytes(range(256))]
    compress: list[tuple[str, Callable[[bytes], bytes]]] = [
        ("", bytes),
        ("ZLIB", zlib.compress),
        ("GZIP", gzip.compress),
    ]
    return [
        case(
            "DecodeJSONExample",
            [texts(json.dumps(as_json).encode(), b"{}")],
            {},
            strings([wanted.SerializeToString(deterministic=True), b""]),
        ),
        *[
            case(
                "DecodeCompressed",
                [texts(*map(squeeze, data))],
                {"compression_type": kind},
                strings(data),
                label=kind,
            )
            for kind, squeeze in compress
        ],
    ]


CASES = [*_examples(), *_sequences(), *_csv(), *_tensors(), *_forms()]

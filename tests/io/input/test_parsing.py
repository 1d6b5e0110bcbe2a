"""`parse_example` and related functions in sessions."""

from __future__ import annotations

import gzip
import json
import struct
import tracemalloc
import zlib
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_exec.session.session import Session
from weft_graph import proto
from weft_graph.ir.builder import constant
from weft_graph.ir.graph import Graph
from weft_graph.ir.indexed_slices import SparseTensor
from weft_graph.messages.tensor_proto import make_ndarray, make_tensor_proto
from weft_graph.ops.array import placeholder
from weft_io.input.parsing import (
    FixedLenFeature,
    FixedLenSequenceFeature,
    SparseFeature,
    VarLenFeature,
    parse_example,
    parse_sequence_example,
    parse_single_example,
    parse_single_sequence_example,
)
from weft_io.kernels import parsing as parsing_kernels
from weft_io.ops.parsing import (
    decode_compressed,
    decode_csv,
    decode_json_example,
    parse_tensor,
    serialize_tensor,
)
from weft_tensor import dtypes, errors

F32, I64, STRING = dtypes.float32, dtypes.int64, dtypes.string


@pytest.fixture
def session() -> Any:
    with Graph().as_default() as graph, Session(graph=graph) as session:
        yield session


def example(**features: Any) -> bytes:
    message = proto.Example()
    for key, values in features.items():
        kind = {bytes: "bytes_list", float: "float_list", int: "int64_list"}[
            type(values[0]) if values else int
        ]
        getattr(message.features.feature[key], kind).SetInParent()
        getattr(message.features.feature[key], kind).value.extend(values)
    serialized: bytes = message.SerializeToString()
    return serialized


FIRST = example(a=[1, 2], b=[1.5], c=[b"x", b"y"])
SECOND = example(a=[3])


def plain(value: Any) -> Any:
    """Fetched values as lists; sparse ones as (indices, values, shape)."""
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    return np.asarray(value).tolist()


# ------------------------------------------------------------------------------ examples


def test_every_kind_of_feature(session: Any) -> None:
    parsed = parse_example(
        [FIRST, SECOND],
        {
            "a": VarLenFeature(I64),
            "b": FixedLenFeature([], F32, default_value=9.0),
            "c": FixedLenSequenceFeature([], STRING, allow_missing=True, default_value="pad"),
        },
    )
    assert parsed["b"].dims == (2,)
    assert parsed["c"].dims == (2, None)
    assert isinstance(parsed["a"], SparseTensor)
    assert parsed["a"].indices.dims == (None, 2)
    got = session.run(parsed)
    assert list(got) == ["a", "b", "c"]
    assert plain(got["a"]) == ([[0, 0], [0, 1], [1, 0]], [1, 2, 3], [2, 2])
    assert plain(got["b"]) == [1.5, 9.0]
    assert plain(got["c"]) == [[b"x", b"y"], [b"pad", b"pad"]]


def test_fed_examples_of_any_number(session: Any) -> None:
    batch = placeholder(STRING, [None])
    value = parse_example(batch, {"a": FixedLenSequenceFeature([1], I64, allow_missing=True)})["a"]
    assert value.dims == (None, None, 1)
    for examples, wanted in (
        ([FIRST, SECOND], [[[1], [2]], [[3], [0]]]),
        ([SECOND], [[[3]]]),
        ([b"", b""], [[], []]),
    ):
        assert session.run(value, {batch: examples}).tolist() == wanted
    assert session.run(value, {batch: np.zeros(0, object)}).shape == (0, 0, 1)


def test_defaults_of_every_shape(session: Any) -> None:
    parsed = parse_example(
        [b""],
        {
            "matrix": FixedLenFeature([2, 2], I64, [[1, 2], [3, 4]]),
            "text": FixedLenFeature([1], STRING, "t"),
            "odd name!": FixedLenFeature([], F32, 2.5),
        },
    )
    got = session.run(parsed)
    assert {key: plain(value) for key, value in got.items()} == {
        "matrix": [[[1, 2], [3, 4]]],
        "text": [[b"t"]],
        "odd name!": [2.5],
    }


def test_sparse_features(session: Any) -> None:
    batch = [example(i=[5, 1], v=[1.0, 2.0]), b"", example(i=[3], v=[9.0])]
    spec = {"s": SparseFeature("i", "v", F32, 10)}
    got = plain(session.run(parse_example(batch, spec)["s"]))
    assert got == ([[0, 1], [0, 5], [2, 3]], [2.0, 1.0, 9.0], [3, 10])
    as_given = {"s": SparseFeature("i", "v", F32, 10, already_sorted=True), "i": VarLenFeature(I64)}
    parsed = session.run(parse_example(batch, as_given))
    assert list(parsed) == ["s", "i"]
    assert plain(parsed["s"])[0] == [[0, 5], [0, 1], [2, 3]]
    assert plain(parsed["i"])[1] == [5, 1, 3]
    one = session.run(parse_single_example(batch[0], spec)["s"])
    assert plain(one) == ([[1], [5]], [2.0, 1.0], [10])


def test_sparse_features_of_several_axes(session: Any) -> None:
    batch = [example(i=[5, 1], j=[0, 1], v=[1.0, 2.0]), example(i=[3], j=[3], v=[9.0])]
    spec = {"s": SparseFeature(["i", "j"], "v", F32, [10, 4])}
    got = plain(session.run(parse_example(batch, spec)["s"]))
    assert got == ([[0, 1, 1], [0, 5, 0], [1, 3, 3]], [2.0, 1.0, 9.0], [2, 10, 4])


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"i": [50], "v": [1.0]}, r"50 is not in \[0, 10\)"),
        ({"i": [5, 6], "v": [1.0]}, "equal sizes"),
    ],
)
def test_sparse_features_that_do_not_fit(session: Any, broken: Any, message: str) -> None:
    spec = {"s": SparseFeature("i", "v", F32, 10)}
    with pytest.raises(errors.InvalidArgumentError, match=message):
        session.run(parse_example([example(**broken)], spec)["s"])


def test_one_example(session: Any) -> None:
    spec = {
        "a": VarLenFeature(I64),
        "b": FixedLenFeature([], F32),
        "c": FixedLenFeature([2], STRING),
        "z": FixedLenSequenceFeature([], I64, allow_missing=True),
    }
    for names in (None, "the name"):
        parsed = parse_single_example(FIRST, spec, example_names=names)
        assert parsed["b"].dims == ()
        got = session.run(parsed)
        assert plain(got["a"]) == ([[0], [1]], [1, 2], [2])
        assert plain(got["b"]) == 1.5
        assert plain(got["c"]) == [b"x", b"y"]
        assert plain(got["z"]) == []


def test_errors_name_the_example(session: Any) -> None:
    spec = {"b": FixedLenFeature([], F32)}
    with pytest.raises(errors.InvalidArgumentError, match="Name: two, Key: b, Index: 1") as caught:
        session.run(parse_example([FIRST, SECOND], spec, example_names=["one", "two"]))
    assert caught.value.op_type == "ParseExample"
    with pytest.raises(errors.InvalidArgumentError, match="Name: x, Key: b"):
        session.run(parse_single_example(SECOND, spec, example_names="x"))
    with pytest.raises(
        errors.InvalidArgumentError, match="names must have one entry for each of 2 examples"
    ):
        session.run(parse_example([FIRST, SECOND], spec, example_names=["one"]))
    for parsed in (parse_example([FIRST, b"\xff"], spec), parse_single_example(b"\xff", spec)):
        with pytest.raises(errors.InvalidArgumentError, match="at offset 0 of 1 bytes"):
            session.run(parsed)


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ({}, "features must not be empty"),
        ({"a": VarLenFeature(None)}, "Missing type for feature a"),
        ({"a": VarLenFeature(dtypes.int32)}, "must be float32, int64 or string, got int32"),
        ({"a": FixedLenFeature(None, I64)}, "Missing shape for feature a"),
        ({"a": FixedLenFeature([None], I64)}, "First dimension of shape for feature a unknown"),
        ({"a": FixedLenFeature([2, None], I64)}, "All dimensions of shape for feature a"),
        ({"a": FixedLenSequenceFeature([2], I64)}, "requires allow_missing to be True"),
        ({"a": FixedLenSequenceFeature([None], I64, True)}, "All dimensions of shape"),
        ({"a": FixedLenFeature([2], I64, [1, 2, 3])}, "3 elements"),
        ({"a": FixedLenFeature([1], I64, 1.5)}, "expected int64, got 1.5"),
        ({"a": 3}, "Unsupported int 3 for key 'a'"),
        ({"s": SparseFeature("", "v", F32, 3)}, "Missing index_key"),
        ({"s": SparseFeature("i", None, F32, 3)}, "Missing value_key"),
        ({"s": SparseFeature(["i", "j"], "v", F32, 3)}, "one size per index_key"),
        ({"s": SparseFeature("i", "v", F32, 3), "v": VarLenFeature(I64)}, "Conflicting type"),
        ({"s": SparseFeature("i", "v", F32, 3), "v": FixedLenFeature([], F32)}, "not intersect"),
    ],
)
def test_features_are_checked_at_construction(session: Any, features: Any, message: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=message):
        parse_example([FIRST], features)


@pytest.mark.parametrize(
    ("shape", "default", "message"),
    [
        ([2], [1, 2], ""),
        ([2], [], ""),
        ([None, 2], 7, ""),
        ([2], [1, 2, 3], "must have that shape, got \\[3\\]"),
        ([2], 7, "must have that shape, got \\[\\]"),
        ([None, 2], [1, 2], "must have shape \\[\\], got \\[2\\]"),
        ([None, 2], [], "must have shape \\[\\], got \\[0\\]"),
        ([2, None], np.ones([2, 2]), "must be known"),
    ],
)
def test_defaults_of_the_op_have_the_shape_of_the_feature(
    session: Any, shape: Any, default: Any, message: str
) -> None:
    def build() -> Any:
        values = np.asarray(default, np.int64)
        return wf.raw_ops.ParseSingleExample(
            serialized=FIRST, dense_defaults=[values], num_sparse=0, sparse_keys=[],
            sparse_types=[], dense_keys=["a"], dense_shapes=[shape],
        )  # fmt: skip

    if not message:
        build()
        return
    with pytest.raises(errors.InvalidArgumentError, match=message):
        build()


def test_ranks_are_checked_at_construction(session: Any) -> None:
    spec = {"a": VarLenFeature(I64)}
    with pytest.raises(errors.InvalidArgumentError, match="must have rank 1"):
        parse_example(FIRST, spec)
    with pytest.raises(errors.InvalidArgumentError, match="must be a scalar"):
        parse_single_example([FIRST], spec)


def test_ranks_are_checked_when_it_runs(session: Any) -> None:
    batch = placeholder(STRING)
    value = parse_example(batch, {"a": FixedLenSequenceFeature([], I64, True)})["a"]
    with pytest.raises(errors.InvalidArgumentError, match="must be a vector, got shape"):
        session.run(value, {batch: [[FIRST]]})


# ----------------------------------------------------------------------------- sequences


def sequence(context: dict[str, Any], **lists: list[list[Any]]) -> bytes:
    message = proto.SequenceExample()
    message.context.ParseFromString(
        proto.Example.FromString(example(**context)).features.SerializeToString()
    )
    for key, steps in lists.items():
        for step in steps:
            inner = proto.Example.FromString(example(x=step)).features.feature["x"]
            feature = message.feature_lists.feature_list[key].feature.add()
            if step:
                feature.CopyFrom(inner)
    serialized: bytes = message.SerializeToString()
    return serialized


LONG = sequence({"k": [4]}, x=[[1, 2], [3, 4]], y=[[b"a"], [], [b"b", b"c"]])
SHORT = sequence({}, x=[[9, 9]])
LISTS = {"x": FixedLenSequenceFeature([2], I64), "y": VarLenFeature(STRING)}


def test_a_batch_of_sequences(session: Any) -> None:
    context, lists, lengths = parse_sequence_example(
        [LONG, SHORT], {"k": FixedLenFeature([], I64, 0)}, LISTS
    )
    assert lists["x"].dims == (2, None, 2)
    assert lengths["x"].dims == (2,)
    got = session.run([context, lists, lengths])
    assert plain(got[0]["k"]) == [4, 0]
    assert plain(got[1]["x"]) == [[[1, 2], [3, 4]], [[9, 9], [0, 0]]]
    assert plain(got[1]["y"]) == (
        [[0, 0, 0], [0, 2, 0], [0, 2, 1]],
        [b"a", b"b", b"c"],
        [2, 3, 2],
    )
    assert {key: plain(value) for key, value in got[2].items()} == {"x": [2, 1]}


def test_one_sequence(session: Any) -> None:
    context, lists = parse_single_sequence_example(LONG, {"k": VarLenFeature(I64)}, LISTS)
    got = session.run([context, lists])
    assert plain(got[0]["k"]) == ([[0]], [4], [1])
    assert plain(got[1]["x"]) == [[1, 2], [3, 4]]
    assert plain(got[1]["y"]) == ([[0, 0], [2, 0], [2, 1]], [b"a", b"b", b"c"], [3, 2])


def test_lists_that_may_be_missing(session: Any) -> None:
    optional = {"z": FixedLenSequenceFeature([2], F32, allow_missing=True)}
    one = session.run(parse_single_sequence_example(SHORT, None, optional)[1]["z"])
    assert one.shape == (0, 2)
    _, lists, lengths = parse_sequence_example([SHORT, LONG], None, optional)
    got = session.run([lists["z"], lengths["z"]])
    assert (got[0].shape, plain(got[1])) == ((2, 0, 2), [0, 0])
    required = {"z": FixedLenSequenceFeature([2], F32)}
    with pytest.raises(errors.InvalidArgumentError, match="Feature list: z is required"):
        session.run(parse_single_sequence_example(SHORT, None, required)[1])
    with pytest.raises(errors.InvalidArgumentError, match="Name: b, Key: x, Index: 1"):
        parsed = parse_sequence_example([LONG, b""], None, LISTS, ["a", "b"])
        session.run(parsed[1]["y"].values)


@pytest.mark.parametrize(
    ("context", "lists", "message"),
    [
        (None, None, "Both context_features and sequence_features are None"),
        ({"k": FixedLenSequenceFeature([], I64)}, None, "Unsupported FixedLenSequenceFeature"),
        ({"k": SparseFeature("i", "v", F32, 3)}, None, "Unsupported SparseFeature"),
        (None, {"x": FixedLenFeature([], I64)}, "Unsupported FixedLenFeature"),
        (None, {"x": FixedLenSequenceFeature([], I64, True, 3)}, "default_value .* must be None"),
    ],
)
def test_sequences_are_checked_at_construction(
    session: Any, context: Any, lists: Any, message: str
) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=message):
        parse_single_sequence_example(LONG, context, lists)
    with pytest.raises(errors.InvalidArgumentError, match=message):
        parse_sequence_example([LONG], context, lists)


# --------------------------------------------------------------------------- other formats


def test_csv(session: Any) -> None:
    required = constant([], STRING)
    columns = decode_csv(["a,1,2.5", "b,,"], [required, [7], constant([0.5], dtypes.float64)])
    assert [column.dims for column in columns] == [(2,)] * 3
    assert [plain(value) for value in session.run(columns)] == [[b"a", b"b"], [1, 7], [2.5, 0.5]]
    one = session.run(decode_csv("x;NA", [[""], [3]], field_delim=";", na_value="NA"))
    assert one == (b"x", 3)
    with pytest.raises(errors.InvalidArgumentError, match="Field 0 is required but missing"):
        session.run(decode_csv(",1", [required, [7]]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"select_cols": [1, 0]}, "must be ascending"),
        ({"select_cols": [-1, 0]}, "must not be negative"),
        ({"select_cols": [1]}, "must have the same length, got 1 and 2"),
        ({"field_delim": ";;"}, "must be one byte"),
        ({"field_delim": ""}, "must be one byte"),
        ({"record_defaults": [[""], [[1, 2]]]}, "a default must have shape"),
        ({"record_defaults": [[True], [1]]}, "must be one of"),
    ],
)
def test_csv_is_checked_at_construction(
    session: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=message):
        decode_csv("a,1", **{"record_defaults": [[""], [0]], **options})


def test_json_examples(session: Any) -> None:
    text = json.dumps({"features": {"feature": {"a": {"floatList": {"value": [1.5, "NaN"]}}}}})
    (data,) = session.run(decode_json_example([text]))
    np.testing.assert_array_equal(
        list(proto.Example.FromString(data).features.feature["a"].float_list.value), [1.5, np.nan]
    )
    for wrong in ("", "{", "[]", '{"feature": 1}', '{"features": {"x": 1}}', b"\xff", "[" * 10**5):
        with pytest.raises(errors.InvalidArgumentError, match="Error while parsing JSON"):
            session.run(decode_json_example([wrong]))


def test_compressed_strings(session: Any) -> None:
    data = [b"", b"a" * 100_000]
    for kind, squeeze in (("ZLIB", zlib.compress), ("GZIP", gzip.compress)):
        strings = [squeeze(each) for each in data]
        assert session.run(decode_compressed(strings, kind)).tolist() == data
        for broken in (strings[1][:-1], strings[1] + b"x", b"plain"):
            with pytest.raises(errors.InvalidArgumentError, match=f"not complete {kind} data from"):
                session.run(decode_compressed([broken], kind))
    parts = gzip.compress(b"a") + gzip.compress(b"b")
    assert session.run(decode_compressed(parts, "GZIP")) == b"ab"
    with pytest.raises(errors.InvalidArgumentError, match="compression_type must be"):
        decode_compressed(b"", "BZ2")


def test_what_compressed_strings_may_become_is_bounded(
    session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parsing_kernels, "MAX_INFLATED", 3000)
    strings = [zlib.compress(bytes(1000))] * 3
    assert len(b"".join(session.run(decode_compressed(strings, "ZLIB")))) == 3000
    bomb = zlib.compress(bytes(1 << 26))
    parts = zlib.compress(bytes(1000)) * 4
    tracemalloc.start()
    for many in ([*strings, zlib.compress(b"x")], [bomb], [parts]):
        with pytest.raises(errors.InvalidArgumentError, match="must have at most 3000 bytes"):
            session.run(decode_compressed(many, "ZLIB"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 22


def test_a_shape_that_no_example_has_costs_no_memory(session: Any) -> None:
    features = {"a": FixedLenFeature([1 << 40], dtypes.int64)}
    with pytest.raises(errors.InvalidArgumentError, match=r"Values size: 1 but output shape: "):
        session.run(parse_example([example(a=[1])], features))


@pytest.mark.parametrize("dtype", ["int8", "uint64", "float16", "bfloat16", "complex64", "bool"])
def test_tensors_there_and_back(session: Any, dtype: str) -> None:
    value = np.array([[0, 1, 2], [3, 4, 5]]).astype(dtypes.as_dtype(dtype).numpy)
    data = serialize_tensor(constant(value))
    got, back = session.run([data, parse_tensor(data, dtype)])
    np.testing.assert_array_equal(make_ndarray(proto.TensorProto.FromString(got)), value)
    np.testing.assert_array_equal(back, value)
    assert back.dtype == value.dtype
    back[...] = 0  # the caller's


def test_tensors_of_rank_0_and_strings(session: Any) -> None:
    for value, dtype in ((2.5, F32), (b"x", STRING), ([b"a", b""], STRING)):
        back = session.run(parse_tensor(serialize_tensor(constant(value, dtype)), dtype))
        assert plain(back) == value


def test_bytes_that_are_no_tensors(session: Any) -> None:
    good = make_tensor_proto([1, 2, 3], dtypes.int32).SerializeToString()
    with pytest.raises(errors.InvalidArgumentError, match="Type mismatch"):
        session.run(parse_tensor(good, F32))
    with pytest.raises(errors.InvalidArgumentError, match="Could not parse 3 bytes"):
        session.run(parse_tensor(b"\xff\xff\xff", F32))
    huge = proto.TensorProto(dtype=dtypes.int32.as_datatype_enum)
    huge.tensor_shape.dim.add(size=2**40)
    huge.int_val.append(1)
    with pytest.raises(errors.InvalidArgumentError, match="would expand to"):
        session.run(parse_tensor(huge.SerializeToString(), dtypes.int32))
    short = proto.TensorProto(dtype=dtypes.int32.as_datatype_enum)
    short.tensor_shape.dim.add(size=2)
    short.tensor_content = struct.pack("<i", 1)
    with pytest.raises(errors.InvalidArgumentError, match="takes 8 bytes"):
        session.run(parse_tensor(short.SerializeToString(), dtypes.int32))


TYPE, VALUE = errors.InvalidTypeError, errors.InvalidArgumentError
SOME = VarLenFeature(I64)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: parse_example(["x"], b"\xff"), TYPE, "features must be a dict .*got b'"),  # type: ignore[arg-type]
        (lambda: parse_example(["x"], "abc"), TYPE, "features must be a dict .*got 'abc'"),  # type: ignore[arg-type]
        (lambda: parse_example(["x"], [1]), TYPE, r"features must be a dict .*got \[1\]"),  # type: ignore[arg-type]
        (lambda: parse_example(["x"], 3), TYPE, "features must be a dict .*got 3"),  # type: ignore[arg-type]
        (lambda: parse_example(["x"], {1: SOME, "a": SOME}), TYPE, "must be text, got 1"),  # type: ignore[dict-item]
        (lambda: parse_example(["x"], {"\udc80": SOME}), VALUE, "encodable as UTF-8"),
        (
            lambda: parse_example(["x"], {"a": VarLenFeature(np.zeros(2))}),
            TYPE,
            "feature a must be float32, int64 or string, got float64",
        ),
        (
            lambda: parse_example(["x"], {"a": FixedLenFeature([2**40, 2**40], I64)}),
            VALUE,
            "feature a must have at most",
        ),
        (
            lambda: parse_example(["x"], {"a": SparseFeature(3, "v", I64, 4)}),
            TYPE,
            "must be names of features, got 3",
        ),
        (
            lambda: parse_example(["x"], {"a": SparseFeature(["i", 3], "v", I64, [1, 2])}),
            TYPE,
            "must be names of features, got 3",
        ),
        (
            lambda: parse_example(["x"], {"a": SparseFeature("i", 3, I64, 4)}),  # type: ignore[arg-type]
            TYPE,
            "must be names of features, got 3",
        ),
        (lambda: parse_single_example("x", b"\xff"), TYPE, "features must be a dict"),  # type: ignore[arg-type]
        (lambda: parse_sequence_example(["x"], b"\xff"), TYPE, "features must be a dict"),  # type: ignore[arg-type]
        (lambda: parse_single_sequence_example("x", None, [1]), TYPE, "features must be a dict"),  # type: ignore[arg-type]
        (
            lambda: decode_csv(["1"], 3),  # type: ignore[arg-type]
            TYPE,
            "record_defaults must be a list or a tuple, got 3",
        ),
        (
            lambda: decode_csv(["1"], None),  # type: ignore[arg-type]
            TYPE,
            "record_defaults must be a list or a tuple, got None",
        ),
        (
            lambda: decode_csv(["1"], np.array([1])),  # type: ignore[arg-type]
            TYPE,
            "record_defaults must be a list or a tuple, got array",
        ),
        (
            lambda: decode_csv(["1"], iter([[1]])),  # type: ignore[arg-type]
            TYPE,
            "record_defaults must be a list or a tuple, got <",
        ),
        (
            lambda: decode_csv(["1"], [[1]], select_cols=np.array([0])),  # type: ignore[arg-type]
            TYPE,
            "select_cols must be a list or a tuple, got array",
        ),
        (lambda: decode_csv(["1"], [[1]], 3), TYPE, "field_delim must be text, got 3"),  # type: ignore[arg-type]
        (lambda: decode_csv(["1"], [[1]], select_cols=3), TYPE, "select_cols must be a list"),  # type: ignore[arg-type]
        (lambda: decode_csv(["1"], [[1]], select_cols=["a"]), TYPE, "must be an integer, got 'a'"),  # type: ignore[list-item]
        (lambda: decode_csv(["1"], [[1]], select_cols=[2**70]), VALUE, "must be at most"),
    ],
)
def test_wrong_arguments(session: Any, call: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        call()

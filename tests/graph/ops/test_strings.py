"""String functions: API and refusals, beyond the conformance table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from weft_testing.evaluate import evaluate

import weft as wf
from weft_graph import Graph
from weft_graph.ir.builder import constant
from weft_graph.ops import array, string_conversion, strings
from weft_tensor import dtypes, errors


@pytest.fixture(autouse=True)
def _graph() -> Any:
    with Graph().as_default():
        yield


def test_joins() -> None:
    assert evaluate(strings.string_join(["a", ["b", "c"]], "-")).tolist() == [b"a-b", b"a-c"]
    x = [["a", "b"], ["c", "d"]]
    assert evaluate(strings.reduce_join(x)).tolist() == b"abcd"
    assert evaluate(strings.reduce_join(x, [0, 1])).tolist() == b"acbd"
    assert evaluate(strings.reduce_join(x, 0, separator="+")).tolist() == [b"a+c", b"b+d"]
    assert strings.reduce_join(x, 1, keepdims=True).dims == (2, 1)
    hidden = array.placeholder(dtypes.string)
    joined = strings.reduce_join(hidden)
    assert evaluate(joined, {hidden: np.array([[b"x"], [b"y"]], object)}).tolist() == b"xy"
    with pytest.raises(errors.InvalidArgumentError, match=r"\[2\] and \[3\]"):
        strings.string_join([["a", "b"], ["c", "d", "e"]])


def test_splits_are_sparse() -> None:
    found = strings.string_split(["a b", "c"])
    assert evaluate(found.indices).tolist() == [[0, 0], [0, 1], [1, 0]]
    assert evaluate(found.dense_shape).tolist() == [2, 2]
    found = strings.string_split_v2(["a,b,c"], ",", maxsplit=1)
    assert evaluate(found.values).tolist() == [b"a", b"b,c"]
    assert evaluate(strings.string_split([""]).indices).shape == (0, 2)


def test_regular_expressions() -> None:
    x = constant(["ab1", "2"])
    assert strings.regex_replace(x, "[0-9]", "#").node.type == "StaticRegexReplace"
    pattern = constant("[0-9]")
    replaced = strings.regex_replace(x, pattern, "#")
    assert replaced.node.type == "RegexReplace"
    assert evaluate(replaced).tolist() == [b"ab#", b"#"]
    assert evaluate(strings.regex_full_match(x, "[0-9]")).tolist() == [False, True]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: string_conversion.string_to_number("1_000"), "b'1_000'"),
        (lambda: string_conversion.string_to_number("1.5", dtypes.int32), "int32, got b'1.5'"),
        (
            lambda: string_conversion.string_to_number("3000000000", dtypes.int32),
            "out of the range",
        ),
        (lambda: strings.substr("abc", 4, 1), "got 4"),
        (lambda: strings.substr("abc", -4, 1), "got -4"),
        (lambda: string_conversion.decode_base64("a+b/"), "web-safe"),
        (lambda: string_conversion.decode_base64("a"), "base64"),
        (lambda: string_conversion.decode_raw(["ab", "c"], dtypes.uint8), r"lengths \[1, 2\]"),
        (lambda: string_conversion.decode_raw(["abc"], dtypes.int16), "multiple of 2"),
        (lambda: strings.regex_replace("a", "(", "b"), r"'\(' is not a regular .*missing \)"),
        (lambda: strings.regex_replace("a", constant(b"\xff"), "b"), r"'\\\\xff' is not .*UTF-8"),
        (lambda: strings.regex_replace("a", "(?=a)", "b"), "not a regular expression in RE2"),
        (lambda: strings.regex_full_match("a", r"(a)\1"), "not a regular expression in RE2"),
        (lambda: strings.regex_replace("a", "a", "\\1"), r"rewrite '.*1' has .*groups of 'a'"),
        (lambda: strings.regex_replace("a", "a", "\\"), "accepted are two backslashes"),
        (lambda: strings.regex_replace("a", "a", "\\q"), r"has \\q"),
    ],
)
def test_bad_strings_are_refused_when_run(build: Any, message: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=message):
        evaluate(build())


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: string_conversion.as_string(1.0, scientific=True, shortest=True), "not both"),
        (lambda: string_conversion.as_string(1.0, fill="xy"), "one character"),
        (lambda: string_conversion.as_string(1, scientific=True), "scientific requires floating"),
        (lambda: string_conversion.as_string(True, shortest=True), "shortest requires floating"),
        (lambda: string_conversion.as_string(1, precision=0), "precision requires floating"),
        (lambda: string_conversion.string_format("{} {}", [constant(1)]), "2 placeholders"),
        (lambda: string_conversion.string_to_hash_bucket_fast("a", 0), "at least 1"),
        (lambda: string_conversion.string_to_hash_bucket_strong("a", 5, [1]), "two integers"),
        (lambda: strings.string_length("a", unit="WORD"), "unit"),
    ],
)
def test_bad_attributes_are_refused_when_built(build: Any, message: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=message):
        build()


def test_formats() -> None:
    line = string_conversion.string_format("{} of {}", [constant([1, 2]), constant("x")])
    assert evaluate(line).tolist() == b"[1 2] of x"
    assert evaluate(string_conversion.as_string([1.5], precision=1)).tolist() == [b"1.5"]


def test_round_trips() -> None:
    data = constant([bytes(range(256)), b""])
    assert evaluate(
        string_conversion.decode_base64(string_conversion.encode_base64(data))
    ).tolist() == [
        bytes(range(256)),
        b"",
    ]
    numbers = string_conversion.string_to_number(
        string_conversion.as_string(constant([1, -2])), dtypes.int64
    )
    assert evaluate(numbers).tolist() == [1, -2]


def test_split_makes_sparse_or_ragged_tensors() -> None:
    for kind in ("SparseTensor", "RaggedTensor"):
        assert strings.string_split(["a b"], result_type=kind).dtype is dtypes.string
    with pytest.raises(errors.InvalidArgumentError, match="'Tensor'"):
        strings.string_split(["a b"], result_type="Tensor")


def test_one_number_of_the_other_endianness() -> None:
    import weft as wf

    one, two = (wf.decode_raw(x, wf.int16, little_endian=False) for x in (b"\1\2", [b"\1\2\0\3"]))
    session = wf.Session()
    assert session.run(one).tolist() == [258] and session.run(two).tolist() == [[258, 3]]


def test_raw_bytes_of_one_length() -> None:
    with Graph().as_default(), wf.Session() as session:
        strings_in, length = constant(["ab", "c", "defgh"]), wf.placeholder("int32", [])
        assert wf.decode_raw(strings_in, wf.uint8, fixed_length=4).dims == (3, 4)
        numbers = wf.decode_raw(strings_in, wf.int16, fixed_length=length)
        assert session.run(numbers, {length: 2}).tolist() == [[25185], [99], [25956]]
        for wrong in (3, 0, -2):
            with pytest.raises(errors.InvalidArgumentError, match="multiple of 2"):
                session.run(numbers, {length: wrong})
            with pytest.raises(errors.InvalidArgumentError, match="multiple of 2"):
                wf.decode_raw(strings_in, wf.int16, fixed_length=wrong)
        assert session.run(wf.decode_raw(strings_in[:0], wf.int16, fixed_length=4)).shape == (0, 2)

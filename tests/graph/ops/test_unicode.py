"""Functions on code points and n-grams: shapes, arguments and errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from weft_testing.parts import Parts

from weft_exec.session.session import Session
from weft_graph import Graph
from weft_graph.ir.builder import create
from weft_graph.ops.array import placeholder
from weft_graph.ops.string_rows import ngrams, unsorted_segment_join
from weft_graph.ops.unicode import unicode_encode, unicode_transcode
from weft_tensor import dtypes, errors


@pytest.fixture(autouse=True)
def _graph() -> Iterator[None]:
    with Graph().as_default():
        yield


def value(fetch: Any, feeds: Any = None) -> Any:
    with Session() as session:
        return np.asarray(session.run(fetch, feeds)).tolist()


def test_encoding_tensors_of_any_rank() -> None:
    assert value(unicode_encode([97, 98], "UTF-16-BE")) == b"\0a\0b"
    assert value(unicode_encode([[[97], [98]]], "UTF-8")) == [[b"a", b"b"]]
    assert value(unicode_encode(np.zeros((2, 0), np.int32), "UTF-8")) == [b"", b""]
    assert value(unicode_encode(np.zeros((0, 2), np.int32), "UTF-8")) == []
    codes = placeholder(dtypes.int32, [None, None])
    made = unicode_encode(codes, "UTF-8")
    assert made.shape.as_list() == [None]
    assert value(made, {codes: [[97, 98], [99, 100]]}) == [b"ab", b"cd"]


def test_ngrams_of_tensors_of_any_rank() -> None:
    rows = [[["a", "b", "c"]], [["d", "e", "f"]]]
    assert value(ngrams(rows, [2, 3], "|")) == [[[b"a|b", b"b|c", b"a|b|c"]],
                                               [[b"d|e", b"e|f", b"d|e|f"]]]  # fmt: skip
    assert value(ngrams(["a"], 2, pad_values="P")) == [b"P a", b"a P"]
    assert value(ngrams(["a", "b"], 3)) == []
    assert value(ngrams(np.zeros((0, 3), object), 2)) == []
    short = ngrams([["a", "b"]], [3, 4], preserve_short_sequences=True)
    assert value(short) == [[b"a b"]]


BAD: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "rank 0": (lambda: ngrams("a", 2), errors.InvalidArgumentError, "got rank 0"),
    "width": (lambda: ngrams(["a"], 0), errors.InvalidArgumentError, "ngram_width"),
    "no padding": (
        lambda: ngrams(["a"], 2, padding_width=1),
        errors.InvalidArgumentError,
        "pad_values must be provided",
    ),
    "padding": (
        lambda: ngrams(["a"], 2, pad_values="a", padding_width=0),
        errors.InvalidArgumentError,
        "padding_width",
    ),
    "three paddings": (lambda: ngrams(["a"], 2, pad_values=("a",) * 3), TypeError, "a pair"),
    "one code": (lambda: unicode_encode(97, "UTF-8"), errors.InvalidArgumentError, "rank 0"),
    "replacement": (
        lambda: unicode_transcode("a", "UTF-8", "UTF-8", replacement_char=-1),
        errors.InvalidArgumentError,
        "replacement_char",
    ),
    "output": (
        lambda: unicode_transcode("a", "UTF-8", "latin1"),
        errors.InvalidArgumentError,
        "output_encoding",
    ),
    "ids": (
        lambda: unsorted_segment_join("a", 0, 2),
        errors.InvalidArgumentError,
        "rank at least 1",
    ),
}


def test_what_is_refused_when_it_is_written() -> None:
    with Parts() as parts:
        for name, (make, error, words) in BAD.items():
            with parts.part(name), pytest.raises(error, match=words):
                make()


def test_what_is_refused_when_it_runs() -> None:
    given = placeholder(dtypes.string, None)
    ids = placeholder(dtypes.int32, None)
    splits = placeholder(dtypes.int64, [None])
    attrs = {"output_encoding": "UTF-8", "errors": "strict"}
    cases: list[tuple[Any, Any, str]] = [
        (unicode_transcode([b"\xff"], "UTF-8", "UTF-8", "strict"), {}, "Invalid formatting"),
        (
            unicode_transcode([b"\1"], "UTF-8", "UTF-8", "strict", 65, True),
            {},
            "Invalid formatting",
        ),
        (unicode_transcode(["a"], "nonsense", "UTF-8"), {}, "input encoding"),
        (unicode_transcode(["61"], "hex", "UTF-8"), {}, "encoding"),
        (unicode_encode([0xD800], "UTF-8", "strict"), {}, "out of range for Unicode"),
        (unsorted_segment_join(given, ids, 2), {given: ["a"], ids: [2]}, r"in \[0, 2\)"),
        (unsorted_segment_join(given, ids, 2), {given: ["a"], ids: [-1]}, r"in \[0, 2\)"),
        (unsorted_segment_join(given, ids, 2), {given: ["a"], ids: [0, 1]}, "a prefix"),
        (create("UnicodeEncode", [[97], splits], attrs).outputs[0], {splits: [0, 2]}, "ascend"),
    ]
    with Parts() as parts:
        for fetch, feeds, words in cases:
            with parts.part(words), pytest.raises(errors.InvalidArgumentError, match=words):
                value(fetch, feeds)

"""Strings against Python's own."""

from __future__ import annotations

from typing import Any

import numpy as np
from weft_testing.cases import Array, Case, Raw
from weft_testing.string_cases import string_case, text, words

A = words([[b"a", b"bc"], [b"", b"d\0"]])
LETTERS = words([[b"a", b"b"], [b"c", b"d"]])
UTF8 = {"encoding": "utf-8"}
UMLAUT = "Straße Ä".encode()


def _joined() -> list[Case]:
    return [
        string_case(
            "StringJoin",
            [[A, words(b"-"), A]],
            text([[b"a-a", b"bc-bc"], [b"-", b"d\0-d\0"]]),
        ),
        string_case(
            "StringJoin", [[words(b"x"), words(b"y")]], text(b"x+y"), {"separator": "+"}, "rank0"
        ),
        string_case("StringJoin", [[A]], text([[b"a", b"bc"], [b"", b"d\0"]]), label="one"),
        string_case(
            "ReduceJoin", [A, Raw(0)], text([b"a.", b"bc.d\0"]), {"separator": "."}, "axis0"
        ),
        string_case("ReduceJoin", [LETTERS, Raw([0, 1])], text(b"acbd"), label="columns"),
        string_case("ReduceJoin", [LETTERS, Raw([1, 0])], text(b"abcd"), label="rows"),
        string_case(
            "ReduceJoin", [A, Raw([-1])], text([[b"abc"], [b"d\0"]]), {"keep_dims": True}, "kept"
        ),
        string_case("ReduceJoin", [A, Raw(np.zeros(0, np.int32))], A.array, label="nothing"),
    ]


def _cut() -> list[Case]:
    return [
        string_case("StringLength", [A], np.array([[1, 2], [0, 2]])),
        string_case("StringLength", [words(UMLAUT)], np.array(8), {"unit": "UTF8_CHAR"}, "utf8"),
        string_case(
            "Substr",
            [words([b"hello", b"world"]), Raw([1, -3]), Raw([3, 9])],
            text([b"ell", b"rld"]),
        ),
        string_case(
            "Substr", [A, Raw(0), Raw(1)], text([[b"a", b"b"], [b"", b"d"]]), label="scalar"
        ),
        string_case(
            "Substr",
            [words(UMLAUT), Raw(4), Raw(2)],
            text("ße".encode()),
            {"unit": "UTF8_CHAR"},
            "utf8",
        ),
        string_case("StringStrip", [words([b" a b\n", b"\t"])], text([b"a b", b""])),
        string_case("StringLower", [words([b"ABc", UMLAUT])], text([b"abc", "straße Ä".encode()])),
        string_case("StringUpper", [words(b"abC")], text(b"ABC")),
        string_case("StringUpper", [words("ä".encode())], text("Ä".encode()), UTF8, "utf8"),
        string_case(
            "StringLower", [words(UMLAUT)], text("straße ä".encode()), {"encoding": "utf-8"}, "8"
        ),
    ]


def _sparse(rows: list[list[bytes]]) -> tuple[Array, Array, Array]:
    places = [[i, j] for i, row in enumerate(rows) for j in range(len(row))]
    values = [part for row in rows for part in row]
    return (
        np.array(places, np.int64).reshape(-1, 2),
        text(values),
        np.array([len(rows), max(map(len, rows))]),
    )


def _split() -> list[Case]:
    lines = words([b"a b  c", b"", b" d,e"])

    def case(op: str, mark: bytes, attrs: dict[str, Any], rows: list[list[bytes]]) -> Case:
        label = f"{mark!r}{attrs}"
        return string_case(op, [lines, words(mark)], _sparse(rows), attrs, label, static=False)

    return [
        case("StringSplit", b" ", {}, [[b"a", b"b", b"c"], [], [b"d,e"]]),
        case("StringSplit", b" ,", {}, [[b"a", b"b", b"c"], [], [b"d", b"e"]]),
        case(
            "StringSplit",
            b" ",
            {"skip_empty": False},
            [[b"a", b"b", b"", b"c"], [], [b"", b"d,e"]],
        ),
        case(
            "StringSplit",
            b"",
            {},
            [[b"a", b" ", b"b", b" ", b" ", b"c"], [], [b" ", b"d", b",", b"e"]],
        ),
        case("StringSplitV2", b"", {}, [[b"a", b"b", b"c"], [], [b"d,e"]]),
        case("StringSplitV2", b" ", {}, [[b"a", b"b", b"", b"c"], [b""], [b"", b"d,e"]]),
        case("StringSplitV2", b" ", {"maxsplit": 1}, [[b"a", b"b  c"], [b""], [b"", b"d,e"]]),
    ]


def _patterns() -> list[Case]:
    lines = words([b"ab12", b"x", b"7 8 9"])
    cases = []
    for pattern, rewrite, attrs, wanted in (
        (rb"\d+", b"#", {}, [b"ab#", b"x", b"# # #"]),
        (rb"\d+", b"#", {"replace_global": False}, [b"ab#", b"x", b"# 8 9"]),
        (rb"(\w)(\d)", rb"\2\1\\", {}, [b"a1b\\2", b"x", b"7 8 9"]),
        (rb"\w+", rb"<\0>", {}, [b"<ab12>", b"<x>", b"<7> <8> <9>"]),
        (rb"b*", b"-", {}, [b"-a-1-2-", b"-x-", b"-7- -8- -9-"]),
        (rb"\d\z", b"!", {}, [b"ab1!", b"x", b"7 8 !"]),
    ):
        label = f"{pattern.decode()}{attrs}"
        cases.append(
            string_case(
                "RegexReplace", [lines, words(pattern), words(rewrite)], text(wanted), attrs, label
            )
        )
        given = {"pattern": pattern, "rewrite": rewrite, **attrs}
        cases.append(string_case("StaticRegexReplace", [lines], text(wanted), given, label))
    for pattern, matches in ((rb"\w+", [True, True, False]), (b"x|7.*", [False, True, True])):
        wanted_flags = np.array(matches)
        label = pattern.decode()
        cases.append(
            string_case("RegexFullMatch", [lines, words(pattern)], wanted_flags, {}, label)
        )
        cases.append(
            string_case("StaticRegexFullMatch", [lines], wanted_flags, {"pattern": pattern}, label)
        )
    umlauts = words("äöü".encode())
    cases.append(
        string_case("RegexFullMatch", [umlauts, words(b"...")], np.array(True), label="code points")
    )
    return cases


CASES = [
    *_joined(),
    *_cut(),
    *_split(),
    *_patterns(),
]

"""Strings against Python's own."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from weft_testing.cases import INTEGERS, UNTYPED, Array, Case, Raw


def text(values: Any) -> Array:
    """Bytes, or nested lists of them, as an array of objects."""
    shape: list[int] = []
    probe = values
    while isinstance(probe, list):
        shape.append(len(probe))
        probe = probe[0] if probe else None
    result = np.empty(shape, object)
    if not shape:
        result[()] = values
    else:
        flat = np.ravel(np.array(values, object)).tolist()
        result.reshape(-1)[:] = flat
    return result


def words(values: Any) -> Raw:
    return Raw(text(values), "string")


def _case(
    op: str,
    inputs: Sequence[Any],
    expected: Any,
    attrs: dict[str, Any] | None = None,
    label: str = "",
    static: bool = True,
) -> Case:
    """A case whose expected value does not depend on how the inputs come."""
    function: Callable[..., Any] = expected if callable(expected) else lambda *_: expected
    return Case(op, inputs, attrs, function, dtypes=UNTYPED, label=label, grad=False, static=static)


A = words([[b"a", b"bc"], [b"", b"d\0"]])
LETTERS = words([[b"a", b"b"], [b"c", b"d"]])
UTF8 = {"encoding": "utf-8"}
UMLAUT = "Straße Ä".encode()


def _joined() -> list[Case]:
    return [
        _case(
            "StringJoin",
            [[A, words(b"-"), A]],
            text([[b"a-a", b"bc-bc"], [b"-", b"d\0-d\0"]]),
        ),
        _case(
            "StringJoin", [[words(b"x"), words(b"y")]], text(b"x+y"), {"separator": "+"}, "rank0"
        ),
        _case("StringJoin", [[A]], text([[b"a", b"bc"], [b"", b"d\0"]]), label="one"),
        _case("ReduceJoin", [A, Raw(0)], text([b"a.", b"bc.d\0"]), {"separator": "."}, "axis0"),
        _case("ReduceJoin", [LETTERS, Raw([0, 1])], text(b"acbd"), label="columns"),
        _case("ReduceJoin", [LETTERS, Raw([1, 0])], text(b"abcd"), label="rows"),
        _case(
            "ReduceJoin", [A, Raw([-1])], text([[b"abc"], [b"d\0"]]), {"keep_dims": True}, "kept"
        ),
        _case("ReduceJoin", [A, Raw(np.zeros(0, np.int32))], A.array, label="nothing"),
    ]


def _cut() -> list[Case]:
    return [
        _case("StringLength", [A], np.array([[1, 2], [0, 2]])),
        _case("StringLength", [words(UMLAUT)], np.array(8), {"unit": "UTF8_CHAR"}, "utf8"),
        _case(
            "Substr",
            [words([b"hello", b"world"]), Raw([1, -3]), Raw([3, 9])],
            text([b"ell", b"rld"]),
        ),
        _case("Substr", [A, Raw(0), Raw(1)], text([[b"a", b"b"], [b"", b"d"]]), label="scalar"),
        _case(
            "Substr",
            [words(UMLAUT), Raw(4), Raw(2)],
            text("ße".encode()),
            {"unit": "UTF8_CHAR"},
            "utf8",
        ),
        _case("StringStrip", [words([b" a b\n", b"\t"])], text([b"a b", b""])),
        _case("StringLower", [words([b"ABc", UMLAUT])], text([b"abc", "straße Ä".encode()])),
        _case("StringUpper", [words(b"abC")], text(b"ABC")),
        _case("StringUpper", [words("ä".encode())], text("Ä".encode()), UTF8, "utf8"),
        _case(
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
        return _case(op, [lines, words(mark)], _sparse(rows), attrs, label, static=False)

    return [
        case("StringSplit", b" ", {}, [[b"a", b"b", b"c"], [], [b"d,e"]]),
        case("StringSplit", b" ,", {}, [[b"a", b"b", b"c"], [], [b"d", b"e"]]),
        case(
            "StringSplit",
            b" ",
            {"skip_empty": False},
            [[b"a", b"b", b"", b"c"], [b""], [b"", b"d,e"]],
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


def _numbers() -> list[Case]:
    cases = [
        _case(
            "StringToNumber",
            [words([b"1.5", b" -2e3 ", b".25", b"inf"])],
            np.array([1.5, -2000, 0.25, np.inf]),
            {"out_type": kind},
            kind,
        )
        for kind in ("float32", "float64")
    ]
    cases += [
        _case(
            "StringToNumber",
            [words([b"-7", b"+12"])],
            np.array([-7, 12]),
            {"out_type": kind},
            kind,
        )
        for kind in ("int32", "int64")
    ]
    cases.append(
        Case(
            "AsString",
            [np.array([0, 7, 100])],
            {"width": 4, "fill": "0"},
            lambda x: text([b"0000", b"0007", b"0100"]),
            dtypes=INTEGERS,
        )
    )
    x = Raw(np.array([0.5, -1e-7, 123456789.0]))
    for attrs, wanted in (
        ({}, [b"0.500000", b"-0.000000", b"123456789.000000"]),
        ({"precision": 2}, [b"0.50", b"-0.00", b"123456789.00"]),
        ({"scientific": True}, [b"5.000000e-01", b"-1.000000e-07", b"1.234568e+08"]),
        ({"shortest": True, "width": 8}, [b"     0.5", b"  -1e-07", b"1.23457e+08"]),
    ):
        cases.append(_case("AsString", [x], text(wanted), attrs, str(attrs)))
    cases += [
        _case("AsString", [Raw(np.array([True, False]))], text([b"true", b"false"]), label="bool"),
        _case("AsString", [Raw(np.array(1 - 2j))], text(b"(1.000000,-2.000000)"), label="complex"),
    ]
    raw = words([b"\1\0\2\0", b"\0\3\0\4"])
    for kind, little in (("uint8", True), ("int16", True), ("int16", False), ("int32", True)):
        order = "<" if little else ">"
        stored = np.dtype(kind).newbyteorder(order)
        wanted_numbers = np.stack([np.frombuffer(item, stored) for item in raw.array])
        attrs = {"out_type": kind, "little_endian": little}
        label = f"{kind}{little}"
        cases.append(_case("DecodeRaw", [raw], wanted_numbers, attrs, label, static=False))
    cases.append(
        _case(
            "DecodeRaw",
            [words(np.array([1 + 2j], ">c8").tobytes())],
            np.array([1 + 2j]),
            {"out_type": "complex64", "little_endian": False},
            "complex",
            static=False,
        )
    )
    return cases


def _hashes() -> list[Case]:
    letters = words([b"a", b"b", b"c", b"d"])
    long = [bytes((i * 7 + n) % 128 for i in range(n)) for n in FINGERPRINTS]
    return [
        _case("StringToHashBucketFast", [letters], np.array([9, 2, 2, 5]), {"num_buckets": 10}),
        _case(
            "StringToHashBucket",
            [words([b"a", b"b", b"c"])],
            np.array([8, 0, 7]),
            {"num_buckets": 10},
        ),
        _case(
            "StringToHashBucketFast",
            [words(long)],
            np.array([value % (2**63 - 1) for value in FINGERPRINTS.values()]),
            {"num_buckets": 2**63 - 1},
            "lengths",
        ),
        _case(
            "StringToHashBucketStrong",
            [words([b"a", b"b", b"c"])],
            np.array([4, 2, 8]),
            {"num_buckets": 10, "key": [98765, 132]},
        ),
    ]


FINGERPRINTS = {
    0: 11160318154034397263,
    1: 5161771770385946686,
    3: 4662423180930907492,
    4: 13909349088106176104,
    7: 17233423938440663304,
    8: 12627020141284786728,
    16: 9887023220782602712,
    17: 3915597107816820974,
    32: 1988438211799641417,
    33: 14244784830312336871,
    64: 2566009596992788872,
    65: 2806214541227295789,
    100: 4164912638924373238,
    127: 3157547758450126556,
    128: 9088877852803709361,
    129: 8167513824717542541,
    200: 10738008303758046737,
    500: 928849405674652168,
}
"""FarmHash's Fingerprint64, by its authors' code, of `bytes((i * 7 + n) % 128 …)` of n bytes."""


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
            _case(
                "RegexReplace", [lines, words(pattern), words(rewrite)], text(wanted), attrs, label
            )
        )
        given = {"pattern": pattern, "rewrite": rewrite, **attrs}
        cases.append(_case("StaticRegexReplace", [lines], text(wanted), given, label))
    for pattern, matches in ((rb"\w+", [True, True, False]), (b"x|7.*", [False, True, True])):
        wanted_flags = np.array(matches)
        label = pattern.decode()
        cases.append(_case("RegexFullMatch", [lines, words(pattern)], wanted_flags, {}, label))
        cases.append(
            _case("StaticRegexFullMatch", [lines], wanted_flags, {"pattern": pattern}, label)
        )
    umlauts = words("äöü".encode())
    cases.append(
        _case("RegexFullMatch", [umlauts, words(b"...")], np.array(True), label="code points")
    )
    return cases


def _forms() -> list[Case]:
    data = [b"", b"a", b"ab", b"abc", bytes(range(250, 256))]
    coded = [base64.urlsafe_b64encode(item) for item in data]
    bare = [item.rstrip(b"=") for item in coded]
    table = Raw(np.arange(24, dtype=np.float32).reshape(2, 12))
    return [
        _case("EncodeBase64", [words(data)], text(bare)),
        _case("EncodeBase64", [words(data)], text(coded), {"pad": True}, "padded"),
        _case("DecodeBase64", [words(bare)], text(data)),
        _case("DecodeBase64", [words(coded)], text(data), label="padded"),
        _case(
            "StringFormat",
            [[table, Raw(np.array(1.5)), words(b"x"), words([b"y"]), Raw(np.array([True]))]],
            text(b't=[[0 1 2 ... 9 10 11]\n [12 13 14 ... 21 22 23]], s=1.5 x ["y"] [1]'),
            {"template": "t={}, s={} {} {} {}", "placeholder": "{}"},
        ),
        _case("StringFormat", [[]], text(b"%"), {"template": "%", "placeholder": "{}"}, "nothing"),
        _case(
            "StringFormat",
            [[Raw(np.arange(8))]],
            text(b"<[0 1 2 3 4 5 6 7]>"),
            {"template": "<%s>", "summarize": -1},
            "all",
        ),
    ]


CASES = [*_joined(), *_cut(), *_split(), *_numbers(), *_hashes(), *_patterns(), *_forms()]

"""Conversion of values to strings and back, compared with Python."""

from __future__ import annotations

import base64

import numpy as np
from weft_testing.cases import INTEGERS, UNTYPED, Case, Raw
from weft_testing.string_cases import string_case, text, words

from weft_tensor import dtypes

A = words([[b"a", b"bc"], [b"", b"d\0"]])


def _numbers() -> list[Case]:
    cases = [
        string_case(
            "StringToNumber",
            [words([b"1.5", b" -2e3 ", b".25", b"inf"])],
            np.array([1.5, -2000, 0.25, np.inf]),
            {"out_type": kind},
            kind,
        )
        for kind in ("float32", "float64")
    ]
    cases += [
        string_case(
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
        cases.append(string_case("AsString", [x], text(wanted), attrs, str(attrs)))
    cases += [
        string_case(
            "AsString", [Raw(np.array([True, False]))], text([b"true", b"false"]), label="bool"
        ),
        string_case(
            "AsString", [Raw(np.array(1 - 2j))], text(b"(1.000000,-2.000000)"), label="complex"
        ),
    ]
    raw = words([b"\1\0\2\0", b"\0\3\0\4"])
    for kind, little in (("uint8", True), ("int16", True), ("int16", False), ("int32", True)):
        order = "<" if little else ">"
        stored = np.dtype(kind).newbyteorder(order)
        wanted_numbers = np.stack([np.frombuffer(item, stored) for item in raw.array])
        attrs = {"out_type": kind, "little_endian": little}
        label = f"{kind}{little}"
        cases.append(string_case("DecodeRaw", [raw], wanted_numbers, attrs, label, static=False))
    uneven = words([b"\1\0\2\0", b"\3", b"\0\4\0\5\6"])
    for kind, little in (("uint8", True), ("int16", True), ("int16", False), ("float32", True)):
        stored = np.dtype(kind).newbyteorder("<" if little else ">")
        filled = [item[:4].ljust(4, b"\0") for item in uneven.array]
        cases.append(
            string_case(
                "DecodePaddedRaw",
                [uneven, Raw(np.array(4, np.int32))],
                np.stack([np.frombuffer(item, stored) for item in filled]),
                {"out_type": kind, "little_endian": little},
                f"{kind}{little}",
                static=False,
            )
        )
    cases.append(
        string_case(
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
        string_case(
            "StringToHashBucketFast", [letters], np.array([9, 2, 2, 5]), {"num_buckets": 10}
        ),
        string_case(
            "StringToHashBucket",
            [words([b"a", b"b", b"c"])],
            np.array([8, 0, 7]),
            {"num_buckets": 10},
        ),
        string_case(
            "StringToHashBucketFast",
            [words(long)],
            np.array([value % (2**63 - 1) for value in FINGERPRINTS.values()]),
            {"num_buckets": 2**63 - 1},
            "lengths",
        ),
        string_case(
            "StringToHashBucketStrong",
            [words([b"a", b"b", b"c"])],
            np.array([4, 2, 8]),
            {"num_buckets": 10, "key": [98765, 132]},
        ),
    ]


FARM_HASHES = [
    Case(
        "Fingerprint",
        [Raw([b"a", b"bc"], "string"), Raw(b"farmhash64", "string")],
        {"T": dtypes.string},
        lambda x, m: np.array(
            [[227, 117, 223, 182, 101, 66, 69, 179], [119, 129, 82, 223, 68, 160, 90, 83]]
        ),
        dtypes=UNTYPED,
        grad=False,
    ),
    Case(
        "Fingerprint",
        [Raw([[b"a", b"bc"]], "string"), Raw(b"farmhash64", "string")],
        {"T": dtypes.string},
        lambda x, m: np.array([[85, 27, 103, 37, 147, 177, 144, 87]]),
        dtypes=UNTYPED,
        grad=False,
        label="rows of strings",
    ),
    Case(
        "Fingerprint",
        [np.arange(6).reshape(2, 3), Raw(b"farmhash64", "string")],
        {},
        lambda x, m: np.array(
            [[226, 97, 231, 35, 137, 217, 164, 52], [135, 205, 247, 214, 112, 21, 177, 81]]
        ),
        dtypes=("int32",),
        grad=False,
        label="numbers",
    ),
]
"""What TensorFlow 2.21 gives."""

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


def _forms() -> list[Case]:
    data = [b"", b"a", b"ab", b"abc", bytes(range(250, 256))]
    coded = [base64.urlsafe_b64encode(item) for item in data]
    bare = [item.rstrip(b"=") for item in coded]
    table = Raw(np.arange(24, dtype=np.float32).reshape(2, 12))
    return [
        string_case("EncodeBase64", [words(data)], text(bare)),
        string_case("EncodeBase64", [words(data)], text(coded), {"pad": True}, "padded"),
        string_case("DecodeBase64", [words(bare)], text(data)),
        string_case("DecodeBase64", [words(coded)], text(data), label="padded"),
        string_case(
            "StringFormat",
            [[table, Raw(np.array(1.5)), words(b"x"), words([b"y"]), Raw(np.array([True]))]],
            text(b't=[[0 1 2 ... 9 10 11]\n [12 13 14 ... 21 22 23]], s=1.5 x ["y"] [1]'),
            {"template": "t={}, s={} {} {} {}", "placeholder": "{}"},
        ),
        string_case(
            "StringFormat", [[]], text(b"%"), {"template": "%", "placeholder": "{}"}, "nothing"
        ),
        string_case(
            "StringFormat",
            [[Raw(np.arange(8))]],
            text(b"<[0 1 2 3 4 5 6 7]>"),
            {"template": "<%s>", "summarize": -1},
            "all",
        ),
    ]


CASES = [
    *FARM_HASHES,
    *_numbers(),
    *_hashes(),
    *_forms(),
]

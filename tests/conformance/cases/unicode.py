"""Unicode, compared with values of ICU, and of TensorFlow for malformed input."""

from __future__ import annotations

import numpy as np
from weft_testing.cases import Case, Raw
from weft_testing.string_cases import string_case, text, words

FFFD = "\ufffd".encode()
BAD = [b"a\xffb", b"\xe2\x82", b"\xc0\x80", b"\xed\xa0\x80x", b"a\0\x1f\x7f", b"\xe2\x28\xa1"]
MENDED = [
    b"a" + FFFD + b"b", FFFD, FFFD * 2, FFFD * 3 + b"x", b"a\0\x1f\x7f", FFFD + b"(" + FFFD,
]  # fmt: skip
FACE = "a\N{GRINNING FACE}é"


def _transcode() -> list[Case]:
    def case(given: list[bytes], found: list[bytes], label: str, **attrs: object) -> Case:
        all_attrs = {"input_encoding": "UTF-8", "output_encoding": "UTF-8", **attrs}
        return string_case("UnicodeTranscode", [words(given)], text(found), all_attrs, label)

    utf16 = FACE.encode("utf-16-be")
    return [
        case(BAD, MENDED, "replace"),
        case(BAD, [b"ab", b"", b"", b"x", b"a\0\x1f\x7f", b"("], "ignore", errors="ignore"),
        case([b"a\1"], [b"a" + FFFD], "controls", replace_control_characters=True),
        case(
            [b"a\1"], [b"a"], "no controls", errors="ignore", replace_control_characters=True
        ),
        case([b"\xff"], ["☺".encode()], "smile", replacement_char=ord("☺")),
        case([b"\xff"], [FFFD], "surrogate", replacement_char=0xD800),
        case([utf16, b"\xd8\x3d\0a", b"\0"], [FACE.encode(), FFFD + b"a", FFFD], "utf16",
             input_encoding="UTF-16-BE"),
        case([b"\xff\xfea\0", b"\0a"], [b"a", b"a"], "order", input_encoding="UTF-16"),
        case([b"\0\x11\0\0", b"\0\0\0a"], [FFFD, b"a"], "utf32", input_encoding="UTF-32-BE"),
        case([b"\x83e"], ["テ".encode()], "shift_jis", input_encoding="shift_jis"),
        case([FACE.encode()], [utf16], "to utf16", output_encoding="UTF-16-BE"),
        case([FACE.encode()], [FACE.encode("utf-32-be")], "to 32", output_encoding="UTF-32-BE"),
        string_case(
            "UnicodeTranscode", [words([[b"a"], [b"b"]])], text([[b"a"], [b"b"]]),
            {"input_encoding": "latin1", "output_encoding": "UTF-8"}, "matrix",
        ),
    ]  # fmt: skip


def _decode() -> list[Case]:
    codes = [97, 0xFFFD, 98, 0xFFFD, 0xFFFD, 0xFFFD, 0xFFFD, 0xFFFD, 0xFFFD, 120]
    splits = [0, 3, 4, 6, 10]
    plain = (np.array(splits), np.array(codes, np.int32))
    starts = np.array([0, 1, 2, 0, 0, 1, 0, 1, 2, 3])
    few = (np.array([0, 3], np.int32), np.array([97, 0x1F600, 233], np.int32))
    utf8 = {"input_encoding": "UTF-8"}

    def case(op: str, given: object, expected: object, label: str, **attrs: object) -> Case:
        return string_case(op, [words(given)], expected, {**utf8, **attrs}, label, static=False)

    narrow = {"Tsplits": "int32"}
    offsets = "UnicodeDecodeWithOffsets"
    return [
        case("UnicodeDecode", BAD[:4], plain, "replace"),
        case(offsets, BAD[:4], (*plain, starts), "replace"),
        case("UnicodeDecode", FACE.encode(), few, "one", **narrow),
        case(offsets, FACE.encode(), (*few, np.array([0, 1, 5])), "one", **narrow),
        case(offsets, FACE.encode("utf-16-be"), (*few, np.array([0, 2, 6])), "utf16",
             input_encoding="UTF-16-BE", **narrow),
        case(offsets, "aテ".encode("shift_jis"),
             (np.array([0, 2]), np.array([97, 0x30C6], np.int32), np.array([0, 1])), "shift_jis",
             input_encoding="shift_jis"),
        case(offsets, b"a\1b\xff",
             (np.array([0, 2]), np.array([97, 98], np.int32), np.array([0, 2])), "ignore",
             errors="ignore", replace_control_characters=True),
        case("UnicodeDecode", [], (np.array([0]), np.zeros(0, np.int32)), "nothing"),
    ]  # fmt: skip


def _encode() -> list[Case]:
    codes = Raw(np.array([0x61, 0xD800, 0x110000, -1, 0xFFFF, 0x1F600], np.int32))
    splits = Raw(np.array([0, 4, 4, 6]))
    last = "\uffff\N{GRINNING FACE}"

    def case(expected: list[bytes], label: str, **attrs: object) -> Case:
        all_attrs = {"output_encoding": "UTF-8", **attrs}
        return string_case("UnicodeEncode", [codes, splits], text(expected), all_attrs, label)

    return [
        case([b"a" + 3 * FFFD, b"", last.encode()], "replace"),
        case([b"aAAA", b"", last.encode()], "letters", replacement_char=65),
        case([b"a", b"", last.encode()], "ignore", errors="ignore"),
        case([b"\0a", b"", last.encode("utf-16-be")], "utf16", errors="ignore",
             output_encoding="UTF-16-BE"),
    ]  # fmt: skip


CASES: list[Case] = [
    *_transcode(),
    *_decode(),
    *_encode(),
    string_case(
        "UnicodeScript",
        [Raw(np.array([[97, 0x3B1, 0x4E00], [0x1F600, -1, 0x110000], [0x378, 0, 0x10FFFF]], "i4"))],
        np.array([[25, 14, 17], [0, -1, -1], [103, 0, 103]], np.int32),
    ),
]

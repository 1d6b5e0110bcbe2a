"""Regular expressions: results of RE2, running time, and the fallback without it."""

from __future__ import annotations

import sys
import time

import pytest

from weft_exec.kernels.regular_expressions import Pattern, replacer
from weft_tensor import errors

# What TensorFlow 2.21 gives for all matches, and for the first one alone.
REPLACED = [
    ("héllo", "x*", "-", "-h-é-l-l-o-", "-héllo"),
    ("日本", "", ".", ".日.本.", ".日本"),
    (b"a\xffb", "x*", "-", b"-a-\xff-b-", b"-a\xffb"),
    (b"\xff\xfe", ".", "x", b"\xff\xfe", b"\xff\xfe"),
    (b"\xff", r"\C", "x", b"x", b"x"),
    ("abc", "(a)(b)?", r"[\2\1\0]", "[baab]c", "[baab]c"),
    ("abc", "(?P<n>b)", r"<\1>", "a<b>c", "a<b>c"),
    ("aXbX", "X(.)?", r"<\1>", "a<b><>", "a<b>X"),
    ("aab", "(a|ab)(c|bcd)?", r"<\1\2>", "<a><a>b", "<a>ab"),
    ("aaa", "a*?", "x", "xaxaxax", "xaaa"),
    ("aaa", "a*", "x", "x", "x"),
    ("baaac", "a*", "x", "xbxcx", "xbaaac"),
    ("aaaa", "(?U)a+", "x", "xxxx", "xaaa"),
    ("\n", "$", "x", "\nx", "\nx"),
    ("a\nb", "(?m)^", "x", "xa\nxb", "xa\nb"),
    ("a\nb", ".", "x", "x\nx", "x\nb"),
    ("é٣\xa0\x0b", r"\w|\d|\s", "x", "é٣\xa0\x0b", "é٣\xa0\x0b"),
    ("é", r"\pL", "x", "x", "x"),
    ("ab", r"\Aa|b\z", "x", "xx", "xb"),
    ("a.b", r"\Qa.b\E", "x", "x", "x"),
    ("a\x00b", "\x00", "x", "axb", "axb"),
    ("a", "a", r"\\", "\\", "\\"),
    ("", "a*", "x", "x", "x"),
]
MATCHED = [
    ("aaa", "a*?", True),
    ("\n", "$", False),
    ("aab", "(a|ab)(c|bcd)?", False),
    ("ab", "a|ab", True),
    ("ab\n", "ab", False),
    (b"\xff", ".", False),
    ("äöü", "...", True),
    ("", "", True),
]


def octets(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode()


@pytest.mark.parametrize("row", REPLACED)
def test_replacing(row: tuple[str | bytes, ...]) -> None:
    text, pattern, rewrite, every, first = map(octets, row)
    assert replacer(pattern, rewrite, True)(text) == every
    assert replacer(pattern, rewrite, False)(text) == first


@pytest.mark.parametrize(("text", "pattern", "wanted"), MATCHED)
def test_matching(text: str | bytes, pattern: str, wanted: bool) -> None:
    for grouping in (False, True):
        assert Pattern(octets(pattern), grouping).matches(octets(text)) is wanted


@pytest.mark.parametrize("pattern", [b"(a+)+$", b"(a|a)*$", b"(a*)*(b?)*$", b"a?" * 30 + b"a{30}$"])
def test_no_pattern_takes_long(pattern: bytes) -> None:
    text = b"a" * 5000 + b"!"
    start = time.process_time()
    assert replacer(pattern, b"x", False)(text) in (text, text + b"x")
    assert replacer(pattern, rb"\0", False)(text) == text
    assert not Pattern(pattern, grouping=False).matches(text)
    assert (
        time.process_time() - start < 5
    )  # Python's engine takes more than the age of the universe


def test_without_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises(errors.UnimplementedError, match="install google-re2"):
        Pattern(b"a", grouping=False)

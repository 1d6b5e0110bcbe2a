"""Regular expressions by RE2, whose time is linear in the length of the text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from weft_tensor import errors

Span = tuple[int, int]
_NOWHERE: Final = (-1, -1)


class Pattern:
    """A regular expression in RE2's syntax, over UTF-8.

    Args:
      text: the expression.
      grouping: True to record the positions of groups, which takes more time.
    Attributes:
      text: the expression.
      groups: the number of groups.
    Raises:
      InvalidArgumentError: the text is not a regular expression.
      UnimplementedError: RE2 is not installed.
    """

    def __init__(self, text: bytes, grouping: bool) -> None:
        try:
            import re2  # imported here, since few programs need it
        except ImportError as cause:
            raise errors.UnimplementedError(
                "regular expressions require RE2, which cannot be imported: install google-re2"
            ) from cause
        options = re2.Options()
        options.log_errors = False
        options.never_capture = not grouping
        try:
            result = re2.compile(text, options)
        except re2.error as error:
            reason = error.args[0].decode(errors="replace")
            raise errors.InvalidArgumentError(
                f"{_format_text(text)} is not a regular expression in RE2's syntax: {reason}"
            ) from None
        self.text = text
        self.groups: int = result.groups
        # The package's wrapper costs several times as much as the match.
        self._match = result._regexp.Match
        self._anywhere, self._full_match = re2._Anchor.UNANCHORED, re2._Anchor.ANCHOR_BOTH

    def search(self, item: bytes, index: int) -> Sequence[Span] | None:
        """Return the spans of the first match from `index` on and of its groups.

        None if there is no match.
        """
        spans: Sequence[Span] = self._match(self._anywhere, item, index, len(item))
        return None if spans[0] == _NOWHERE else spans

    def matches(self, item: bytes) -> bool:
        """Return True if the pattern matches the whole string."""
        return bool(self._match(self._full_match, item, 0, len(item))[0] != _NOWHERE)


def _format_text(text: bytes) -> str:
    return repr(text.decode(errors="backslashreplace"))


def replacer(pattern: bytes, rewrite: bytes, everywhere: bool) -> Callable[[bytes], bytes]:
    r"""Return a function that replaces the matches of a pattern in a string.

    Args:
      rewrite: the replacement; \1 to \9 are groups, \0 is the match, and two backslashes are one.
      everywhere: replace all non-overlapping matches, not only the first.
    Raises: InvalidArgumentError: the pattern is invalid, or the rewrite refers to a missing group.
    """
    expression = Pattern(pattern, grouping=b"\\" in rewrite)
    apply = _rewriter(rewrite, expression)

    def replace(item: bytes) -> bytes:
        parts: list[bytes] = []
        index = end = 0
        last = -1
        while spans := expression.search(item, index):
            start, stop = spans[0]
            if start == stop == last:  # no empty match right after another match
                if index == len(item):
                    break
                index = _character_end(item, index)
                continue
            parts += item[end:start], apply(item, spans)
            index = end = last = stop
            if not everywhere:
                break
        return b"".join((*parts, item[end:])) if parts else item

    return replace


def _rewriter(rewrite: bytes, pattern: Pattern) -> Callable[[bytes, Sequence[Span]], bytes]:
    first, *remaining = rewrite.split(b"\\")
    parts: list[bytes | int] = [first]
    while remaining:
        text = remaining.pop(0)
        mark = text[:1]
        if mark.isdigit() and int(mark) <= pattern.groups:
            parts += int(mark), text[1:]
        elif not mark and remaining:  # an escaped backslash
            parts.append(b"\\" + remaining.pop(0))
        else:
            raise errors.InvalidArgumentError(
                f"the rewrite {_format_text(rewrite)} has \\{_format_text(mark)[1:-1]}; accepted "
                f"are two backslashes and \\0 to \\{pattern.groups}, the groups of "
                f"{_format_text(pattern.text)}"
            )
    if len(parts) == 1:
        return lambda item, spans: first

    def apply(item: bytes, spans: Sequence[Span]) -> bytes:
        return b"".join(
            [part if isinstance(part, bytes) else item[slice(*spans[part])] for part in parts]
        )

    return apply


def _character_end(item: bytes, index: int) -> int:
    """Return the end of the character at a position; an invalid byte counts as one character."""
    lead = item[index]
    size = 1 if lead < 0xC2 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
    try:
        item[index : index + size].decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return index + 1
    return index + size

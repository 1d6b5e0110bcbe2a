"""Regular expressions by RE2, which takes time linear in the text, whatever the pattern is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from weft_tensor import errors

Span = tuple[int, int]
_NOWHERE: Final = (-1, -1)


class Pattern:
    """A regular expression of RE2's syntax, over UTF-8.

    Args:
      text: the expression.
      grouping: whether somebody asks where its groups are, which costs time.
    Attributes:
      text: as it was given.
      groups: how many groups it has.
    Raises:
      InvalidArgumentError: the text is none.
      UnimplementedError: RE2 is not installed.
    """

    def __init__(self, text: bytes, grouping: bool) -> None:
        try:
            import re2  # here, since few programs need it
        except ImportError as cause:
            raise errors.UnimplementedError(
                "regular expressions require RE2, which cannot be imported: install google-re2"
            ) from cause
        options = re2.Options()
        options.log_errors = False
        options.never_capture = not grouping
        try:
            made = re2.compile(text, options)
        except re2.error as error:
            reason = error.args[0].decode(errors="replace")
            raise errors.InvalidArgumentError(
                f"{_shown(text)} is no regular expression of RE2: {reason}"
            ) from None
        self.text = text
        self.groups: int = made.groups
        # What the package wraps around it costs several times as much as the match.
        self._match = made._regexp.Match
        self._anywhere, self._whole = re2._Anchor.UNANCHORED, re2._Anchor.ANCHOR_BOTH

    def search(self, item: bytes, at: int) -> Sequence[Span] | None:
        """Where the first match from a place on is, and its groups; (-1, -1) is nowhere."""
        spans: Sequence[Span] = self._match(self._anywhere, item, at, len(item))
        return None if spans[0] == _NOWHERE else spans

    def matches(self, item: bytes) -> bool:
        """Whether all of a string is a match."""
        return bool(self._match(self._whole, item, 0, len(item))[0] != _NOWHERE)


def _shown(text: bytes) -> str:
    return repr(text.decode(errors="backslashreplace"))


def replacer(pattern: bytes, rewrite: bytes, everywhere: bool) -> Callable[[bytes], bytes]:
    r"""What replaces the matches of a pattern in a string.

    Args:
      rewrite: what to put there; \1 to \9 are groups, \0 is the match, and two backslashes are one.
      everywhere: all matches that do not overlap, not only the first.
    Raises: InvalidArgumentError: the pattern is none, or the rewrite refers to a group it lacks.
    """
    expression = Pattern(pattern, grouping=b"\\" in rewrite)
    apply = _rewriter(rewrite, expression)

    def replace(item: bytes) -> bytes:
        parts: list[bytes] = []
        at = end = 0
        last = -1
        while spans := expression.search(item, at):
            start, stop = spans[0]
            if start == stop == last:  # no empty match right behind another one
                if at == len(item):
                    break
                at = _behind_character(item, at)
                continue
            parts += item[end:start], apply(item, spans)
            at = end = last = stop
            if not everywhere:
                break
        return b"".join((*parts, item[end:])) if parts else item

    return replace


def _rewriter(rewrite: bytes, pattern: Pattern) -> Callable[[bytes, Sequence[Span]], bytes]:
    first, *rest = rewrite.split(b"\\")
    parts: list[bytes | int] = [first]
    while rest:
        text = rest.pop(0)
        mark = text[:1]
        if mark.isdigit() and int(mark) <= pattern.groups:
            parts += int(mark), text[1:]
        elif not mark and rest:  # two backslashes in a row
            parts.append(b"\\" + rest.pop(0))
        else:
            raise errors.InvalidArgumentError(
                f"the rewrite {_shown(rewrite)} has \\{_shown(mark)[1:-1]}, but may have two "
                f"backslashes and \\0 to \\{pattern.groups}, the groups of "
                f"{_shown(pattern.text)}"
            )
    if len(parts) == 1:
        return lambda item, spans: first

    def apply(item: bytes, spans: Sequence[Span]) -> bytes:
        return b"".join(
            [part if isinstance(part, bytes) else item[slice(*spans[part])] for part in parts]
        )

    return apply


def _behind_character(item: bytes, at: int) -> int:
    """Where the character at a place ends; a byte that begins none stands alone."""
    lead = item[at]
    size = 1 if lead < 0xC2 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
    try:
        item[at : at + size].decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return at + 1
    return at + size

"""Saying what is lost where a program gives numbers of another kind than is wanted."""

from __future__ import annotations

import logging

from weft_tensor.dtypes import DType

_log = logging.getLogger("weft")
_said: set[tuple[str | None, str]] = set()
_MOST = 1000
"""How often it is said in all."""


def say(what: str, dtype: DType, change: str, line: str | None) -> None:
    """Warn once for each line of the program and each `what`.

    Args:
      what: that takes the numbers.
      dtype: the type that they become.
      change: what becomes of one that changes.
      line: of the program.
    """
    if (line, what) in _said or len(_said) >= _MOST:
        return
    _said.add((line, what))
    _log.warning(
        "%s takes numbers of another kind as %s, and something is lost: %s, at %s; cast them "
        "where that is meant",
        what,
        dtype.name,
        change,
        line or "an unknown line",
    )

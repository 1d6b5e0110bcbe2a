"""Warnings about lossy conversions of numbers to another kind."""

from __future__ import annotations

import logging

from weft_tensor.dtypes import DType

_log = logging.getLogger("weft")
_said: set[tuple[str | None, str]] = set()
_MAX_WARNINGS = 1000
"""Largest number of warnings per process."""


def say(subject: str, dtype: DType, change: str, line: str | None) -> None:
    """Warn once for each line of the program and each `subject`.

    Args:
      subject: the receiver of the numbers, such as "a constant".
      dtype: the type they are converted to.
      change: an example of a change, such as "0.5 becomes 0".
      line: the line of the program.
    """
    if (line, subject) in _said or len(_said) >= _MAX_WARNINGS:
        return
    _said.add((line, subject))
    _log.warning(
        "%s converts numbers to %s with loss (%s) at %s; use cast if this is intended",
        subject,
        dtype.name,
        change,
        line or "an unknown line",
    )

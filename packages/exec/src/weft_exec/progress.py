"""Progress messages, which are also shown in programs that have not configured logging.

They report where training resumes, saved checkpoints, progress, and compilation. If the program has
configured logging or the level of the logger "weft", its settings apply. Otherwise the messages are
written to stderr without formatting.
"""

from __future__ import annotations

import logging
import sys
from typing import Final

log: Final = logging.getLogger("weft.progress")


def regions_text(count: int) -> str:
    """Return a number of regions as text."""
    return "1 region" if count == 1 else f"{count} regions"


class _Stderr(logging.Handler):
    """Handler that shows messages on stderr if no other handler does."""

    def emit(self, record: logging.LogRecord) -> None:
        if not _is_set_up():
            sys.stderr.write(f"{record.getMessage()}\n")


def _is_set_up() -> bool:
    return bool(logging.getLogger().handlers or logging.getLogger("weft").handlers)


def _is_wanted(record: logging.LogRecord) -> bool:
    """Return True if the program's logging settings permit a message."""
    logger = logging.getLogger("weft")
    if logger.level == logging.NOTSET and not _is_set_up():
        return True
    return record.levelno >= logger.getEffectiveLevel()


log.setLevel(logging.INFO)
log.addFilter(_is_wanted)
log.addHandler(_Stderr())

"""What a training program wants to see though it has not turned logging on.

That is where it goes on, what it saves, and how far it is. Where a program has set up logging, or
the level of the logger "weft", that decides. Else these messages go to stderr, as they are.
"""

from __future__ import annotations

import logging
import sys
from typing import Final

log: Final = logging.getLogger("weft.progress")


class _Stderr(logging.Handler):
    """Shows messages where nobody else does."""

    def emit(self, record: logging.LogRecord) -> None:
        if not _is_set_up():
            sys.stderr.write(f"{record.getMessage()}\n")


def _is_set_up() -> bool:
    return bool(logging.getLogger().handlers or logging.getLogger("weft").handlers)


def _is_wanted(record: logging.LogRecord) -> bool:
    """Whether the program's own settings let a message through."""
    own = logging.getLogger("weft")
    if own.level == logging.NOTSET and not _is_set_up():
        return True
    return record.levelno >= own.getEffectiveLevel()


log.setLevel(logging.INFO)
log.addFilter(_is_wanted)
log.addHandler(_Stderr())

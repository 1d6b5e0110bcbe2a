"""`wf.logging`: the logger "weft" under TensorFlow's functions and level names."""

from __future__ import annotations

import logging as _logging
from typing import Any

DEBUG = _logging.DEBUG
INFO = _logging.INFO
WARN = _logging.WARNING
ERROR = _logging.ERROR
FATAL = _logging.CRITICAL

_logger = _logging.getLogger("weft")

debug = _logger.debug
info = _logger.info
warn = warning = _logger.warning
error = _logger.error
fatal = _logger.critical
log = _logger.log


def set_verbosity(v: int) -> None:
    """Show messages of this level and above; starts a handler where the program has none."""
    if not _logging.getLogger().handlers and not _logger.handlers:
        _logger.addHandler(_logging.StreamHandler())
    _logger.setLevel(v)


def get_verbosity() -> int:
    """The level that is shown."""
    return _logger.getEffectiveLevel()


_counts: dict[str, int] = {}


def log_every_n(level: int, msg: str, n: int, *args: Any) -> None:
    """Log the first and then every n-th call with the same message."""
    count = _counts[msg] = _counts.get(msg, -1) + 1
    if count % n == 0:
        _logger.log(level, msg, *args)


def log_first_n(level: int, msg: str, n: int, *args: Any) -> None:
    """Log the first n calls with the same message."""
    count = _counts[msg] = _counts.get(msg, -1) + 1
    if count < n:
        _logger.log(level, msg, *args)


def log_if(level: int, msg: str, condition: bool, *args: Any) -> None:
    """Log if `condition` holds."""
    if condition:
        _logger.log(level, msg, *args)


def flush() -> None:
    """Flush all handlers."""
    for handler in _logger.handlers:
        handler.flush()

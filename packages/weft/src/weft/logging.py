"""`wf.logging`: the logger "weft" under TensorFlow's functions and level names."""

import logging as _logging
from typing import Any as _Any

DEBUG = _logging.DEBUG
INFO = _logging.INFO
WARN = _logging.WARNING
ERROR = _logging.ERROR
FATAL = _logging.CRITICAL

_logger = _logging.getLogger("weft")
_counts: dict[str, int] = {}

debug = _logger.debug
info = _logger.info
warn = warning = _logger.warning
error = _logger.error
fatal = _logger.critical
log = vlog = _logger.log


def get_logger() -> _logging.Logger:
    """The logger that weft's messages go to.

    Examples:
      >>> wf.logging.get_logger().name
      'weft'
    """
    return _logger


def set_verbosity(v: int) -> None:
    """Show messages of this level and above; starts a handler where the program has none."""
    if not _logging.getLogger().handlers and not _logger.handlers:
        _logger.addHandler(_logging.StreamHandler())
    _logger.setLevel(v)


def get_verbosity() -> int:
    """The level that is shown."""
    return _logger.getEffectiveLevel()


def log_every_n(level: int, msg: str, n: int, *args: _Any) -> None:
    """Log the first and then every n-th call with the same message."""
    if _count(msg) % n == 0:
        _logger.log(level, msg, *args)


def log_first_n(level: int, msg: str, n: int, *args: _Any) -> None:
    """Log the first n calls with the same message."""
    if _count(msg) < n:
        _logger.log(level, msg, *args)


def _count(msg: str) -> int:
    """How many calls there were with this message before."""
    _counts[msg] = _counts.get(msg, -1) + 1
    return _counts[msg]


def log_if(level: int, msg: str, condition: bool, *args: _Any) -> None:
    """Log if `condition` holds."""
    if condition:
        _logger.log(level, msg, *args)


def TaskLevelStatusMessage(msg: str) -> None:  # noqa: N802 - TensorFlow's public name
    """Log at the level ERROR."""
    _logger.error(msg)


def flush() -> None:
    """Flush all handlers."""
    for handler in _logger.handlers:
        handler.flush()

"""`wf.logging`: the logger "weft", with TensorFlow's functions and level names."""

import logging as _logging
from typing import Any as _Any

from weft import _lazy

DEBUG = _logging.DEBUG
INFO = _logging.INFO
WARN = _logging.WARNING
ERROR = _logging.ERROR
FATAL = _logging.CRITICAL

_logger = _logging.getLogger("weft")
_counts: dict[str, int] = {}

debug = _logger.debug
"""Log a message at level DEBUG: `debug(msg, *args)`, with `msg % args` as its text."""
info = _logger.info
"""Log a message at level INFO: `info(msg, *args)`."""
warning = _logger.warning
"""Log a message at level WARN: `warning(msg, *args)`."""
warn = warning
error = _logger.error
"""Log a message at level ERROR: `error(msg, *args)`."""
fatal = _logger.critical
"""Log a message at level FATAL: `fatal(msg, *args)`; the program continues."""
log = _logger.log
"""Log a message at a level: `log(level, msg, *args)`."""
vlog = log


def get_logger() -> _logging.Logger:
    """Return the logger of weft's messages.

    Examples:
      >>> wf.logging.get_logger().name
      'weft'
    """
    return _logger


def set_verbosity(v: int) -> None:
    """Show messages of a level and above; add a handler if the program has none.

    Args:
      v: `wf.logging.DEBUG`, `INFO`, `WARN`, `ERROR` or `FATAL`.

    Examples:
      >>> before = wf.logging.get_verbosity()
      >>> wf.logging.set_verbosity(wf.logging.ERROR)
      >>> wf.logging.get_verbosity() == wf.logging.ERROR
      True
      >>> wf.logging.set_verbosity(before)
    """
    if not _logging.getLogger().handlers and not _logger.handlers:
        _logger.addHandler(_logging.StreamHandler())
    _logger.setLevel(v)


def get_verbosity() -> int:
    """Return the lowest level that is shown.

    Examples:
      >>> wf.logging.get_verbosity() in (wf.logging.INFO, wf.logging.WARN)
      True
    """
    return _logger.getEffectiveLevel()


def log_every_n(level: int, msg: str, n: int, *args: _Any) -> None:
    """Log the first and then every n-th call with the same message.

    Args:
      level: as for `set_verbosity`.
      msg: the message, with format specifiers for `args`, as for Python's `%`.
      n: a positive int.

    Examples:
      >>> for step in range(100):
      ...     wf.logging.log_every_n(wf.logging.DEBUG, "step %d", 50, step)
    """
    if _count(msg) % n == 0:
        _logger.log(level, msg, *args)


def log_first_n(level: int, msg: str, n: int, *args: _Any) -> None:
    """Log the first n calls with the same message.

    Args:
      level: as for `set_verbosity`.
      msg: the message, with format specifiers for `args`, as for Python's `%`.
      n: the number of calls.

    Examples:
      >>> for step in range(100):
      ...     wf.logging.log_first_n(wf.logging.DEBUG, "first steps: %d", 2, step)
    """
    if _count(msg) < n:
        _logger.log(level, msg, *args)


def _count(msg: str) -> int:
    """Return the number of earlier calls with this message."""
    _counts[msg] = _counts.get(msg, -1) + 1
    return _counts[msg]


def log_if(level: int, msg: str, condition: bool, *args: _Any) -> None:
    """Log a message if `condition` is true.

    Args:
      level: as for `set_verbosity`.
      msg: the message, with format specifiers for `args`, as for Python's `%`.
      condition: a bool.

    Examples:
      >>> loss = 0.5
      >>> wf.logging.log_if(wf.logging.WARN, "the loss is %g", loss > 100, loss)
    """
    if condition:
        _logger.log(level, msg, *args)


def TaskLevelStatusMessage(msg: str) -> None:  # noqa: N802 - TensorFlow's public name
    """Log a message at level ERROR.

    Args:
      msg: the message.

    Examples:
      >>> wf.logging.TaskLevelStatusMessage("the task ends")
    """
    _logger.error(msg)


def flush() -> None:
    """Flush all handlers.

    Examples:
      >>> wf.logging.flush()
    """
    for handler in _logger.handlers:
        handler.flush()


_lazy.hint(__name__)

"""`wf.app`: running of a program with parsed flags, by absl."""

import sys as _sys
from collections.abc import Callable as _Callable
from typing import Any as _Any

from absl import app as _app

from weft import _lazy, flags as flags


def run(main: _Callable[[list[str]], _Any] | None = None, argv: list[str] | None = None) -> None:
    """Parse the flags, call `main` with the rest of the command line, and exit with its result.

    Undefined flags are passed on to `main`, as in TensorFlow.

    Args:
      main: function of the remaining arguments; by default `main` of the main module.
      argv: the command line; `sys.argv` by default.

    Examples:
      >>> wf.app.run(lambda argv: len(argv), argv=["program", "data.csv"])
      Traceback (most recent call last):
          ...
      SystemExit: 2
    """
    _app.run(main or _sys.modules["__main__"].main, argv, flags_parser=_parse)


def _parse(argv: list[str]) -> list[str]:
    remaining: list[str] = flags.FLAGS(argv, known_only=True)
    return remaining


_lazy.hint(__name__)

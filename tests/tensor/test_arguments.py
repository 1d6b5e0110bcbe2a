"""Checks of arguments: one table of calls and errors."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from weft_tensor import arguments, errors
from weft_tensor.shape import Dimension

TYPE, VALUE = errors.InvalidTypeError, errors.InvalidArgumentError

TAKEN: list[tuple[Any, tuple[Any, ...], Any]] = [
    (arguments.check_integer, (3, "n"), 3),
    (arguments.check_integer, (np.int8(3), "n"), 3),
    (arguments.check_integer, (Dimension(3), "n"), 3),
    (arguments.check_whole_number, (3.0, "n"), 3),
    (arguments.check_whole_number, (np.float32(3), "n"), 3),
    (arguments.check_number, (np.float32(0.5), "n"), 0.5),
    (arguments.check_number, (1, "n", 0.0, 1.0), 1.0),
    (arguments.check_text, ("a", "n"), "a"),
    (arguments.check_optional_function, (None, "f"), None),
    (arguments.check_optional_function, (len, "f"), len),
    (arguments.check_function, (len, "f", 1), len),
]

REFUSED: list[tuple[Any, tuple[Any, ...], type[Exception], str]] = [
    (arguments.check_integer, (2.0, "n"), TYPE, "n must be an integer, got 2.0"),
    (arguments.check_integer, (True, "n"), TYPE, "n must be an integer, got True"),
    (
        arguments.check_integer,
        (Dimension(None), "n"),
        TYPE,
        "n must be an integer, got Dimension(None)",
    ),
    (arguments.check_integer, (0, "n", 1), VALUE, "n must be at least 1, got 0"),
    (arguments.check_integer, (9, "n", 1, 8), VALUE, "n must be at most 8, got 9"),
    (arguments.check_whole_number, (2.5, "n"), TYPE, "n must be an integer, got 2.5"),
    (arguments.check_whole_number, (float("nan"), "n"), TYPE, "n must be an integer, got nan"),
    (arguments.check_whole_number, ("2", "n"), TYPE, "n must be an integer, got '2'"),
    (arguments.check_number, ("2", "n"), TYPE, "n must be a number, got '2'"),
    (arguments.check_number, (-1, "n", 0.0), VALUE, "n must be a number >= 0.0, got -1"),
    (arguments.check_number, (2, "n", 0.0, 1.0), VALUE, "n must be a number <= 1.0, got 2"),
    (arguments.check_number, (float("nan"), "n"), VALUE, "got nan"),
    (arguments.check_text, (b"a", "n"), TYPE, "n must be text, got b'a'"),
    (
        arguments.check_optional_function,
        (0.01, "f"),
        TYPE,
        "f must be a function or None, got 0.01",
    ),
    (arguments.check_function, (None, "f"), TYPE, "`f` must be callable, got None"),
    (
        arguments.check_function,
        (lambda: 0, "f", 1),
        TYPE,
        "`f` must take 1 positional argument, got",
    ),
]


def test_taken() -> None:
    for check, given, wanted in TAKEN:
        assert check(*given) == wanted


def test_refused() -> None:
    for check, given, kind, words in REFUSED:
        with pytest.raises(kind, match=re.escape(words)):
            check(*given)

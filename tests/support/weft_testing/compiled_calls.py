"""Interception of the calls of compiled functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from weft_compiler.generator import Compiled


def around_calls(
    monkeypatch: pytest.MonkeyPatch, around: Callable[[Compiled, Callable[[], Any]], Any]
) -> None:
    """Wrap each call of the functions compiled from now on.

    Args:
      around: is given the function, and what calls it, and returns what that returns.
    """
    sized = Compiled._sized_function

    def watched(self: Compiled, enter: Callable[..., Any]) -> Callable[..., Any]:
        entered = sized(self, enter)
        return lambda *arrays: around(self, lambda: entered(*arrays))

    monkeypatch.setattr(Compiled, "_sized_function", watched)

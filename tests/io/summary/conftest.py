"""Fixtures of tests of event files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from weft_io import summary
from weft_io.summary.reading import summary_iterator


def scalar_summary(tag: str, value: float) -> summary.Summary:
    return summary.Summary(value=[summary.Summary.Value(tag=tag, simple_value=value)])


@pytest.fixture
def scalar() -> Callable[[str, float], summary.Summary]:
    """Makes a summary of one number."""
    return scalar_summary


@pytest.fixture
def events() -> Callable[[Path], list[Any]]:
    """Reads the events of the only event file in a directory, less the version."""

    def read(directory: Path) -> list[Any]:
        (path,) = directory.iterdir()
        first, *others = summary_iterator(path)
        assert first.file_version == "brain.Event:2"
        return others

    return read

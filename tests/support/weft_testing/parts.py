"""Named parts of a test, each of which runs even if others fail."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self


class Parts:
    """A context that runs named parts, and fails at its end with every part that failed."""

    def __init__(self) -> None:
        self._count = 0
        self._failed: list[Exception] = []

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Run one part; record its error."""
        self._count += 1
        try:
            yield
        except Exception as error:  # because it is raised again at the end
            error.add_note(f"in the part: {name}")
            self._failed.append(error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        if kind is not None:
            return
        assert self._count, "nothing was checked"
        if self._failed:
            names = "; ".join(error.__notes__[-1].partition(": ")[2] for error in self._failed)
            raise ExceptionGroup(
                f"{len(self._failed)} of {self._count} parts failed: {names}", self._failed
            )

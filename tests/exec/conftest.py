"""Fixtures of tests of steps on several devices."""

from __future__ import annotations

import pytest

from weft_exec.resources.rendezvous import Rendezvous


@pytest.fixture
def meetings(monkeypatch: pytest.MonkeyPatch) -> list[Rendezvous]:
    """All rendezvous of the test's steps."""
    made: list[Rendezvous] = []
    begin = Rendezvous.__init__

    def noted(self: Rendezvous) -> None:
        begin(self)
        made.append(self)

    monkeypatch.setattr(Rendezvous, "__init__", noted)
    return made

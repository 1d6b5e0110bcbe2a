"""Watching peers that answer, from a process that may be busy itself."""

from __future__ import annotations

import ctypes
from contextlib import closing
from typing import Any

import pytest
from weft_testing.waiting import wait_until

from weft_distrib.liveness.heartbeat_server import Heartbeat
from weft_distrib.liveness.peer_monitor import Watch


def test_a_kernel_that_holds_the_lock_here_loses_no_peer() -> None:
    lost: list[Any] = []
    with closing(Heartbeat("127.0.0.1")) as heart:
        watched = Watch().add(("127.0.0.1", heart.port), "a task", lost.append, limit=1.5)
        wait_until(lambda: watched.heard)
        ctypes.PyDLL(None).usleep(4_000_000)  # which keeps the interpreter's lock
        heard = watched.heard
        wait_until(lambda: watched.heard > heard or lost)
        watched.stop()
    assert not lost


def test_a_peer_that_is_silent_is_lost() -> None:
    lost: list[Any] = []
    heart = Heartbeat("127.0.0.1")
    Watch().add(("127.0.0.1", heart.port), "a task", lost.append, limit=0.5)
    heart.close()
    wait_until(lambda: lost)
    (error,) = lost
    assert "a task is lost: for 0.5 s it does not answer" in error.message


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_hearts_of_both_families(host: str) -> None:
    lost: list[Any] = []
    with closing(Heartbeat(host)) as heart:
        watched = Watch().add((host, heart.port), "a task", lost.append, limit=1.5)
        wait_until(lambda: watched.heard > 1 or lost)
        watched.stop()
    assert not lost

"""Ctrl-C that arrives while an object of weft's is freed reaches the program."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from weft_testing.interrupts import interrupted_while_freed
from weft_testing.waiting import new_threads, wait_until

import weft as wf
from weft_compiler.native import arena
from weft_exec.kernels.state import MutexResource
from weft_io.records.streams import open_stream
from weft_io.streams.prefetching import PrefetchStream
from weft_io.summary.event_writer import EventFileWriter

Ended = Callable[[], Any]


def array(path: Path) -> tuple[Any, Ended]:
    session = wf.Session()
    return session.run(wf.ones([1000])), lambda: True


def handle(path: Path) -> tuple[Any, Ended]:
    session = wf.Session()
    kept = session.run(wf.get_session_handle(wf.constant(1.0)))
    store, name = kept._store, kept.handle
    return kept, lambda: name not in store._values


def writer(path: Path) -> tuple[Any, Ended]:
    threads = new_threads()
    return EventFileWriter(path), lambda: not threads()


def stream(path: Path) -> tuple[Any, Ended]:
    file = path / "file"
    file.write_bytes(b"text")
    opened = open_stream(str(file))
    descriptors = opened._descriptors
    return opened, lambda: not descriptors


def prefetch(path: Path) -> tuple[Any, Ended]:
    prefetched = PrefetchStream(iter(()), 2)  # type: ignore[arg-type]
    buffer = prefetched._buffer
    return prefetched, lambda: buffer.stopped


def mutex(path: Path) -> tuple[Any, Ended]:
    resource = MutexResource("m")
    return resource.attempt(), lambda: not resource._is_held


def lease(path: Path) -> tuple[Any, Ended]:
    slots = arena.Arena()
    return slots.lease(1 << 12), lambda: slots.usage().required_bytes == 0


@pytest.mark.parametrize("make", [array, handle, writer, stream, prefetch, mutex, lease])
def test_an_interrupt_is_seen(make: Callable[[Path], tuple[Any, Ended]], tmp_path: Path) -> None:
    with wf.Graph().as_default():
        thing, ended = make(tmp_path)
    things = [thing]
    del thing
    assert interrupted_while_freed(things)
    wait_until(ended)

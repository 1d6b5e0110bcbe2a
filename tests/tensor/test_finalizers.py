"""Functions that run after an object has gone, and Ctrl-C that arrives while it goes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest
from weft_testing.interrupts import interrupted_while_freed
from weft_testing.waiting import wait_until

from weft_tensor.allocator import CpuAllocator
from weft_tensor.finalizers import call_when_gone, settle


class Thing:
    pass


def test_a_function_is_called_when_its_object_has_gone() -> None:
    calls: list[str] = []
    thing, other = Thing(), Thing()
    call_when_gone(thing, calls.append, "thing")
    call_when_gone(other, calls.append, "other")
    del thing
    wait_until(lambda: calls)
    assert calls == ["thing"]
    del other
    wait_until(lambda: len(calls) == 2)


def test_settling_waits_for_the_calls_of_what_has_gone() -> None:
    calls: list[str] = []
    for _ in range(10):
        thing = Thing()
        call_when_gone(thing, calls.append, "thing")
        del thing
    settle()
    assert len(calls) == 10
    last = Thing()
    call_when_gone(last, lambda: (settle(), calls.append("last")))
    del last
    settle()
    assert calls[-1] == "last"


def test_a_canceled_function_is_not_called() -> None:
    calls: list[str] = []
    thing, last = Thing(), Thing()
    finalizer = call_when_gone(thing, calls.append, "thing")
    call_when_gone(last, calls.append, "last")
    finalizer.cancel()
    finalizer.cancel()
    del thing, last
    wait_until(lambda: calls)
    assert calls == ["last"]


def test_a_failing_function_is_logged_and_others_are_called(
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls: list[str] = []
    thing, other = Thing(), Thing()
    call_when_gone(thing, int, "no number")
    call_when_gone(other, calls.append, "other")
    del thing
    del other
    wait_until(lambda: calls)
    assert "a finalizer failed" in caplog.text and "no number" in caplog.text


def test_functions_are_not_called_in_the_thread_that_drops_the_object() -> None:
    threads: list[threading.Thread] = []
    thing = Thing()
    call_when_gone(thing, lambda: threads.append(threading.current_thread()))
    del thing
    wait_until(lambda: threads)
    assert threads[0] is not threading.current_thread()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="requires fork")
def test_a_child_of_a_fork_calls_functions_too() -> None:
    program = """
import os
from weft_tensor.allocator import CpuAllocator
from weft_tensor.finalizers import call_when_gone, settle
class Thing: pass
first = Thing()
call_when_gone(first, print, "parent")
if not os.fork():
    thing = Thing()
    call_when_gone(thing, os._exit, 7)
    del thing
    import threading; threading.Event().wait(30)
    os._exit(1)
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "7\n", done.stderr


def test_an_interrupt_is_seen_while_an_object_with_a_function_goes() -> None:
    calls: list[str] = []
    things = [Thing()]
    call_when_gone(things[0], calls.append, "called")
    assert interrupted_while_freed(things)
    wait_until(lambda: calls)


def test_the_harness_finds_finalizers_that_lose_interrupts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lost: list[type] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda failure: lost.append(failure.exc_type))
    things = [Thing()]
    weakref.finalize(things[0], list)
    assert not interrupted_while_freed(things)
    assert lost == [KeyboardInterrupt]


def test_an_interrupt_is_seen_while_an_array_of_the_pool_is_freed() -> None:
    """A block's `__del__` lost it, and its memory."""
    allocator = CpuAllocator()
    arrays = [allocator.empty((100,), np.dtype(np.float32))]
    assert interrupted_while_freed(arrays)
    assert allocator.statistics().bytes_in_use == 0

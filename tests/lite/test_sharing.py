"""One file serves an interpreter in each thread, and invocations leak no memory."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from weft_testing.waiting import least_growth

import weft as wf
from weft_lite import Interpreter
from weft_lite.errors import ConcurrentUseError, FailedPreconditionError
from weft_lite.watching import invoke_watched

MODEL = Path(__file__).parent / "runtime" / "corpus" / "convnet.weftlite"


def values(interpreter: Interpreter, seed: int, count: int) -> list[np.ndarray]:
    """Results for some images, which the seed decides."""
    random, run = np.random.default_rng(seed), interpreter.get_signature_runner()
    return [run(x=random.random((4, 12, 12, 3), "float32"))["y"] for _ in range(count)]


def test_an_interpreter_in_each_thread_gives_what_one_alone_does() -> None:
    found: dict[int, list[np.ndarray]] = {}

    def work(seed: int) -> None:
        found[seed] = values(Interpreter(MODEL, num_threads=1 + seed % 2), seed, 50)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed in range(4):
        np.testing.assert_array_equal(found[seed], values(Interpreter(MODEL), seed, 50))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(("threads", "count"), [(1, 2_500), (2, 250)])
def test_invocations_take_no_memory(threads: int, count: int) -> None:
    interpreter = Interpreter(MODEL, num_threads=threads)

    def more() -> None:
        for _ in range(count):
            interpreter.invoke()

    assert least_growth(more) < 4 * 4096


IMAGES = np.zeros((4, 12, 12, 3), "float32")
CALLS: dict[str, Callable[[Interpreter], Any]] = {
    "allocate_tensors": lambda i: i.allocate_tensors(),
    "get_input_details": lambda i: i.get_input_details(),
    "get_output_details": lambda i: i.get_output_details(),
    "get_tensor": lambda i: i.get_tensor(0),
    "get_tensor_details": lambda i: i.get_tensor_details(),
    "invoke": lambda i: i.invoke(),
    "reset_all_variables": lambda i: i.reset_all_variables(),
    "resize_tensor_input": lambda i: i.resize_tensor_input(0, [4, 12, 12, 3]),
    "runner": lambda i: i.get_signature_runner()(x=IMAGES),
    "set_tensor": lambda i: i.set_tensor(0, IMAGES),
    "tensor": lambda i: i.tensor(0),
    "view": lambda i: VIEWS[i](),
    "watched": lambda i: invoke_watched(i, lambda op, ended: None),
}
VIEWS: dict[Interpreter, Callable[[], Any]] = {}


@pytest.fixture
def interpreter() -> Any:
    made = Interpreter(MODEL, num_threads=2)
    VIEWS[made] = made.tensor(0)
    yield made
    del VIEWS[made]


def test_what_overlaps_a_call_of_another_thread_is_refused(interpreter: Interpreter) -> None:
    raised: dict[str, Exception] = {}

    def call_all() -> None:
        for name, call in CALLS.items():
            try:
                call(interpreter)
            except ConcurrentUseError as error:
                raised[name] = error

    def watch(op: int, ended: bool) -> None:
        if not raised:
            other = threading.Thread(target=call_all)
            other.start()
            other.join()

    invoke_watched(interpreter, watch)
    assert raised.keys() == CALLS.keys()
    assert "open one interpreter per thread" in str(raised["invoke"])
    values(interpreter, 0, 1)  # it goes on to work


def test_what_an_invocation_calls_may_read_and_not_change(interpreter: Interpreter) -> None:
    reads = {"get_input_details", "get_output_details", "get_tensor", "get_tensor_details"}
    reads |= {"tensor", "view"}
    refused = set()

    def watch(op: int, ended: bool) -> None:
        for name, call in CALLS.items():
            try:
                call(interpreter)
            except FailedPreconditionError as error:
                assert not isinstance(error, ConcurrentUseError)
                refused.add(name)

    invoke_watched(interpreter, watch)
    assert refused == CALLS.keys() - reads


def test_threads_on_one_interpreter_raise_or_get_their_own_values() -> None:
    interpreter, wanted = Interpreter(MODEL, num_threads=2), values(Interpreter(MODEL), 0, 1)[0]
    image, odd = np.random.default_rng(0).random((4, 12, 12, 3), "float32"), []
    start = threading.Barrier(4)

    def work(own: int) -> None:
        run, factor = interpreter.get_signature_runner(), np.float32(own == 0)
        start.wait(60)
        for _ in range(200):
            with suppress(ConcurrentUseError):
                got = run(x=image * factor)["y"]
                if own == 0 and not np.array_equal(got, wanted):
                    odd.append(got)

    threads = [threading.Thread(target=work, args=(own,)) for own in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not odd


def run_apart(script: str) -> None:
    """Run a script that may crash or hang."""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script, str(MODEL)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes are forked")
def test_forked_processes_run_what_they_inherit() -> None:
    run_apart(
        """
import os, sys, threading
import numpy as np
from weft_lite import Interpreter
from weft_lite.errors import ConcurrentUseError
from weft_lite.watching import invoke_watched

def ends_well(work):
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0

first, second = Interpreter(sys.argv[1], num_threads=3), Interpreter(sys.argv[1], num_threads=2)
image = np.ones((4, 12, 12, 3), "f")
run = first.get_signature_runner()
want = run(x=image)["y"]

def work():
    global first, run, second
    for _ in range(20):
        assert np.array_equal(run(x=image)["y"], want)
    del second  # whose threads are the parent's
    ends_well(lambda: run(x=image))  # and a process of this one
    del first, run

ends_well(work)

def overwrite():
    first.set_tensor(0, np.full_like(image, 5))
    first.invoke()

output = first.get_output_details()[0]["index"]
first.set_tensor(0, image)
first.invoke()
mine = first.get_tensor(output)
ends_well(overwrite)
assert np.array_equal(first.get_tensor(0), image)  # the memory of a child is its own
assert np.array_equal(first.get_tensor(output), mine)
assert np.array_equal(run(x=image)["y"], want)

def forked_within(op, ended):
    if op == 0 and ended:
        other = threading.Thread(target=ends_well, args=(refused,))
        other.start()
        other.join()

def refused():
    try:
        first.invoke()
    except ConcurrentUseError as error:
        assert "forked" in str(error)
    else:
        raise AssertionError("not refused")

invoke_watched(first, forked_within)
"""
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes are forked")
def test_a_child_forked_while_threads_compute_uses_its_interpreter() -> None:
    run_apart(
        """
import os, sys, threading
import numpy as np
from weft_lite import Interpreter

idle, busy = [Interpreter(sys.argv[1], num_threads=3) for _ in range(2)]
image, is_done = np.ones((4, 12, 12, 3), "f"), threading.Event()
want = idle.get_signature_runner()(x=image)["y"]

def compute():
    while not is_done.is_set():
        busy.invoke()

thread = threading.Thread(target=compute)
thread.start()
for _ in range(20):
    child = os.fork()
    if child == 0:
        code = 1
        try:
            for _ in range(5):
                assert np.array_equal(idle.get_signature_runner()(x=image)["y"], want)
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert np.array_equal(idle.get_signature_runner()(x=image)["y"], want)
is_done.set()
thread.join()
"""
    )


def test_views_outlive_their_interpreter_and_its_memory() -> None:
    interpreter = Interpreter(MODEL)
    view, weights = interpreter.tensor(0)(), interpreter.tensor(1)()
    view[:] = 7.0
    before = weights.copy()
    interpreter.__init__(MODEL)  # type: ignore[misc]
    del interpreter
    assert (view == 7.0).all()
    np.testing.assert_array_equal(weights, before)


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, pickle.dumps])
def test_copies_are_refused(how: Callable[[Any], Any], interpreter: Interpreter) -> None:
    with pytest.raises(TypeError, match="copied or pickled, since"):
        how(interpreter)
    if how is not copy.copy:
        with pytest.raises(TypeError, match="cannot be copied or pickled"):
            how(interpreter.get_signature_runner())
    values(interpreter, 0, 1)


def test_indices_that_change_meanwhile_leave_memory_alone(tmp_path: Path) -> None:
    with wf.Graph().as_default():
        table = wf.placeholder(wf.float32, [4, 16], name="table")
        at = wf.placeholder(wf.int32, [20_000], name="at")
        lengths = wf.placeholder(wf.int32, [20_000], name="lengths")
        rows = wf.gather(table, at)
        turned = wf.reverse_sequence(rows, lengths, 1, batch_axis=0)
        converter = wf.lite.Converter(table.graph, [table, at, lengths], [turned])
        file = tmp_path / "racing.weftlite"
        file.write_bytes(converter.convert())
    run_apart(
        f"""
import threading
from weft_lite import Interpreter
from weft_lite.errors import InvalidArgumentError
interpreter = Interpreter({str(file)!r})
views = [interpreter.tensor(i)() for i in (1, 2)]
over = threading.Event()

def write():
    while not over.is_set():
        for view in views:
            view[10_000:] = 0x7fffff00
            view[10_000:] = 0

thread = threading.Thread(target=write)
thread.start()
for _ in range(300):
    try:
        interpreter.invoke()
    except InvalidArgumentError:
        pass
over.set()
thread.join()
"""
    )

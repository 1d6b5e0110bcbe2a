"""One file serves an interpreter in each thread, and invocations leave nothing behind."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from weft_testing.waiting import least_growth

from weft_lite import Interpreter

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

"""A dequeue and the enqueue that it waits for, in one step."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import weft as wf


@pytest.fixture(autouse=True)
def graph() -> Iterator[None]:
    with wf.Graph().as_default():
        yield


def session(threads: int, devices: int = 1) -> wf.Session:
    return wf.Session(
        config=wf.ConfigProto(
            operation_timeout_in_ms=60_000,
            inter_op_parallelism_threads=threads,
            device_count={"CPU": devices},
        )
    )


@pytest.mark.parametrize("threads", [1, 2])
def test_what_both_use_does_not_wait_for_the_dequeue(threads: int) -> None:
    """The sum is cheap, so it could share an entry with its inputs."""
    queue = wf.FIFOQueue(10, [wf.float32], [[4]])
    given = wf.random_uniform([4]) * 2.0
    total = queue.dequeue() + given
    with session(threads) as found:
        for _ in range(3):
            value, _ = found.run([total, queue.enqueue(given)])
            assert np.isfinite(value).all()


@pytest.mark.parametrize("threads", [1, 2])
def test_two_queues_crosswise(threads: int) -> None:
    """The path between them follows one dequeue, and the consumer of both follows two."""
    first, second = (wf.FIFOQueue(10, [wf.float32], [[4]]) for _ in range(2))
    a = first.dequeue() * 2.0
    b = second.dequeue() + a
    seed = wf.random_uniform([4]) + 1.0
    with session(threads) as found:
        value, *_ = found.run([b, first.enqueue(seed), second.enqueue(a - 1.0)])
        assert np.isfinite(value).all()


@pytest.mark.parametrize("threads", [1, 2])
def test_over_two_devices(threads: int) -> None:
    with wf.device("/cpu:0"):
        queue = wf.FIFOQueue(10, [wf.float32], [[4]])
        taken = queue.dequeue()
    with wf.device("/cpu:1"):
        given = wf.random_uniform([4]) * 2.0
        total = taken + given
    with wf.device("/cpu:0"):
        enqueue = queue.enqueue(given)
    with session(threads, 2) as found:
        value, _ = found.run([total, enqueue])
        assert np.isfinite(value).all()

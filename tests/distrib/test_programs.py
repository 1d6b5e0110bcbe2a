"""Methods of training on several processes return the same numbers as one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from weft_testing.tasks import jobs, processes
from weft_testing.waiting import in_threads

import weft as wf

PS, WORKERS = 2, 3
CLUSTER = jobs(ps=PS, worker=WORKERS)
Program = Callable[[], tuple[Any, int]]
"""Builds a program: what is run, and how often; the last results are compared."""


@pytest.fixture(scope="module")
def targets() -> Iterator[list[str]]:
    with processes(CLUSTER, "ps"), processes(CLUSTER, "worker"):
        yield [f"grpc://{address}" for address in CLUSTER["worker"]]


@pytest.fixture
def target(targets: list[str]) -> Iterator[str]:
    yield targets[0]
    wf.Session.reset(targets[0])


def worker(task: int) -> Any:
    return wf.device(f"/job:worker/task:{task}")


def ps(task: int) -> Any:
    return wf.device(f"/job:ps/task:{task}")


def data(*shape: int, seed: int = 0) -> Any:
    return wf.constant(np.random.RandomState(seed).standard_normal(shape).astype(np.float32))


def run(target: str, program: Program) -> list[Any]:
    """Return a program's last fetches; it runs in one process without a target."""
    config = wf.ConfigProto(allow_soft_placement=not target)
    with wf.Graph().as_default():
        wf.set_random_seed(1)
        fetches, steps = program()
        init = wf.group(wf.global_variables_initializer(), wf.local_variables_initializer())
        with wf.Session(target, config=config) as session:
            session.run(init)
            for _ in range(steps):
                got: list[Any] = session.run(fetches)
    return [each for each in got if each is not None]


def deep_lstm() -> tuple[Any, int]:
    """Build three layers, each on another task, unrolled by a loop: model parallelism."""
    h = data(4, 5, 3)
    for i in range(3):
        with worker(i), wf.variable_scope(f"layer{i}"):
            cell = wf.nn.rnn_cell.LSTMCell(4, initializer=wf.ones_initializer())
            h, _ = wf.nn.dynamic_rnn(cell, h * 0.3, dtype=wf.float32)
    with worker(2):
        loss = wf.reduce_mean(wf.square(h - 0.1))
    train = wf.train.GradientDescentOptimizer(0.5).minimize(loss)
    return [train, loss, *wf.trainable_variables()], 3


def cells_in_one_loop() -> tuple[Any, int]:
    """One loop whose body goes from task to task, and its gradient."""
    w = []
    for i in range(3):
        with worker(i):
            w.append(wf.get_variable(f"w{i}", initializer=np.eye(3, dtype=np.float32) * (i + 1)))

    def body(t: Any, h: Any) -> Any:
        for i in range(3):
            with worker(i):
                h = wf.tanh(wf.matmul(h, w[i]))
        return t + 1, h

    with worker(0):
        h = wf.while_loop(lambda t, _: t < 4, body, [0, data(2, 3)])[1]
        loss = wf.reduce_sum(h * h)
    return [loss, *wf.gradients(loss, w)], 1


def arrays_on_another_task() -> tuple[Any, int]:
    """A loop fills a TensorArray of another task with its results; its gradient reads them."""
    x = data(6, 2)
    with worker(1):
        given = wf.TensorArray(wf.float32, 6).unstack(x)
        out = wf.TensorArray(wf.float32, 6)

    def body(i: Any, total: Any, kept: Any) -> Any:
        with worker(2):
            total = wf.sin(total + given.read(i))
        return i + 1, total, kept.write(i, total * 2.0)

    with worker(0):
        start = wf.zeros([2])
    _, _, kept = wf.while_loop(lambda i, *_: i < 6, body, [0, start, out])
    with worker(0):
        y = kept.stack()
        loss = wf.reduce_sum(y * y)
    return [y, *wf.gradients(loss, [x])], 1


def branches_and_calls() -> tuple[Any, int]:
    """A conditional in a loop, with a branch on each task, and a function that spans tasks."""

    @wf.Defun(wf.float32)
    def spanning(x: Any) -> Any:
        with worker(1):
            y = wf.exp(-x)
        with worker(2):
            return y * 2.0

    def here(x: Any) -> Any:
        with worker(1):
            return x * 3.0

    def there(x: Any) -> Any:
        with ps(1):
            return wf.cos(x) - 1.0

    def body(i: Any, x: Any) -> Any:
        x = wf.cond(wf.equal(i % 2, 0), lambda: here(x), lambda: there(x))
        return i + 1, x

    x = data(3)
    with worker(0):
        y = wf.while_loop(lambda i, _: i < 5, body, [0, x])[1]
        z = spanning(y)
    return [y, z, *wf.gradients(z, [x])], 1


def shards_and_embeddings() -> tuple[Any, int]:
    """A table sharded over parameter servers; rows are gathered and updated by their shard."""
    with wf.device(wf.train.replica_device_setter(ps_tasks=PS, worker_device="/job:worker/task:1")):
        table = wf.get_variable(
            "table",
            [10, 3],
            partitioner=wf.fixed_size_partitioner(4),
            initializer=wf.random_uniform_initializer(seed=5),
        )
        ids = wf.constant([0, 9, 4, 4, 7])
        rows = wf.nn.embedding_lookup(table, ids, partition_strategy="div")
        parts = wf.dynamic_partition(rows, ids % 2, 2)
        order = wf.dynamic_partition(wf.range(5), ids % 2, 2)
        loss = wf.reduce_sum(wf.square(wf.dynamic_stitch(order, parts) - 0.5))
        train = wf.train.AdagradOptimizer(0.1).minimize(loss)
    return [train, loss, *table], 4


def replicas_in_one_graph() -> tuple[Any, int]:
    """Each worker computes the gradient of its part of the batch; the mean is applied."""
    with ps(0):
        w = wf.get_variable("w", [4], initializer=wf.zeros_initializer())
    x = data(6, 4)
    slopes = []
    for i in range(WORKERS):
        with worker(i):
            part = x[2 * i : 2 * i + 2]
            loss = wf.reduce_mean(wf.square(wf.reduce_sum(part * w, 1) - 1.0))
            slopes.append(wf.gradients(loss, [w])[0])
    with ps(0):
        mean = wf.add_n(slopes) / WORKERS
        train = wf.train.MomentumOptimizer(0.1, 0.9).apply_gradients([(mean, w)])
    return [train, mean], 5


def datasets_on_a_worker() -> tuple[Any, int]:
    """The examples are read, shuffled and batched where they are used."""
    with worker(2):
        read = wf.data.Dataset.range(20).shuffle(7, seed=1).map(lambda i: wf.cast(i, wf.float32))
        batch = wf.data.make_one_shot_iterator(read.repeat().batch(3)).get_next()
    with ps(1):
        w = wf.get_variable("w", initializer=1.0)
    with worker(2):
        loss = wf.reduce_mean(wf.square(batch * w - 2.0 * batch))
    train = wf.train.GradientDescentOptimizer(1e-3).minimize(loss)
    return [train, batch, w], 9


PROGRAMS = [
    deep_lstm, cells_in_one_loop, arrays_on_another_task, branches_and_calls,
    shards_and_embeddings, replicas_in_one_graph, datasets_on_a_worker,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_tasks_give_what_one_process_gives(target: str, program: Program) -> None:
    got, want = run(target, program), run("", program)
    assert len(got) == len(want) > 0
    for mine, theirs in zip(got, want, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=1e-6)


def test_replicas_without_a_step_in_common(targets: list[str], target: str) -> None:
    """Asynchronous: each worker updates the servers' variables whenever it has a gradient."""

    def train(task: int, target: str) -> int:
        with wf.Graph().as_default():
            setter = wf.train.replica_device_setter(
                cluster=CLUSTER, worker_device=f"/job:worker/task:{task}"
            )
            with wf.device(setter):
                w = wf.get_variable("w", initializer=[5.0, -3.0])
                step = wf.train.get_or_create_global_step()
                loss = wf.reduce_sum(wf.square(w - [1.0, 2.0]))
                update = wf.train.GradientDescentOptimizer(0.05).minimize(loss, step)
            count = 0
            hooks = [wf.train.StopAtStepHook(90)]
            with wf.train.MonitoredTrainingSession(
                target, task == 0, hooks=hooks, max_wait_secs=60
            ) as session:
                while not session.should_stop():
                    session.run(update)
                    count += 1
            return count

    with wf.Graph().as_default():
        with ps(0):
            wf.get_variable("w", initializer=[5.0, -3.0])
        works = [lambda i=i, t=t: train(i, t) for i, t in enumerate(targets)]
        with in_threads(*works) as threads:
            pass
        counts = [thread.outcome for thread in threads]
        assert sum(counts) >= 90 and counts[0] > 0, counts
        with wf.Graph().as_default(), ps(0), wf.Session(target) as session:
            w = wf.get_variable("w", initializer=[0.0, 0.0])
            np.testing.assert_allclose(session.run(w), [1.0, 2.0], atol=0.1)


def test_steps_at_the_same_time(target: str) -> None:
    """Concurrent steps: several threads of one client keep the tasks busy."""
    with ps(0):
        total = wf.get_variable("total", initializer=0.0)
    x = wf.placeholder(wf.float32, [])
    with worker(1):
        y = wf.square(x)
    add = total.assign_add(y, use_locking=True)
    with wf.Session(target) as session:
        session.run(total.initializer)
        works = [lambda i=i: [session.run(add.op, {x: float(i)}) for _ in range(10)]
                 for i in range(4)]  # fmt: skip
        with in_threads(*works) as threads:
            pass
        assert all(isinstance(thread.outcome, list) for thread in threads)
        assert session.run(total) == 140.0


def test_a_supervisor(targets: list[str], target: str, tmp_path: Any) -> None:
    """The former way to train: a chief that initializes, and a worker that waits for it."""

    def train(task: int) -> Any:
        with wf.Graph().as_default():
            setter = wf.train.replica_device_setter(
                cluster=CLUSTER, worker_device=f"/job:worker/task:{task}"
            )
            with wf.device(setter):
                step = wf.train.get_or_create_global_step()
                advance = step.assign_add(1)
            supervisor = wf.train.Supervisor(
                is_chief=task == 0, logdir=str(tmp_path) if task == 0 else None,
                summary_op=None, recovery_wait_secs=1, global_step=step,
            )  # fmt: skip
            with supervisor.managed_session(targets[task]) as session:
                while not supervisor.should_stop() and session.run(advance) < 20:
                    pass
            return True

    with in_threads(lambda: train(0), lambda: train(1)) as threads:
        pass
    assert [thread.outcome for thread in threads] == [True, True]
    with wf.Graph().as_default(), ps(0), wf.Session(target) as session:
        assert session.run(wf.train.get_or_create_global_step()) >= 20

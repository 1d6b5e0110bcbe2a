"""AllReduceOptimizer: replicas train as one process would on all of their examples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from weft_testing.tasks import jobs, servers
from weft_testing.waiting import in_threads

import weft as wf
import weft_distrib
from weft import errors

XS = np.random.RandomState(0).standard_normal((12, 5)).astype(np.float32)
YS = (XS @ [[1.0], [-2.0], [0.5], [0.0], [3.0]]).astype(np.float32)
STEPS = 8


def model(x: Any, ids: Any) -> Any:
    """Predictions, with dense variables of two types and one of rows."""
    w = wf.get_variable("w", [5, 1], initializer=wf.zeros_initializer())
    b = wf.get_variable("b", [], wf.float64, wf.zeros_initializer())
    table = wf.get_variable("table", [4, 1], initializer=wf.ones_initializer())
    return wf.matmul(x, w) + wf.nn.embedding_lookup(table, ids) + wf.cast(b, wf.float32)


def replica(target: str, share: slice, task: int | None) -> Any:
    """Train on some of the examples; returns the variables in the end."""
    where = "" if task is None else f"/job:worker/task:{task}"
    with wf.Graph().as_default(), wf.device(where):
        ids = wf.constant(np.arange(12)[share] % 4)
        loss = wf.reduce_mean(wf.square(model(wf.constant(XS[share]), ids) - YS[share]))
        step = wf.train.get_or_create_global_step()
        optimizer: Any = wf.train.MomentumOptimizer(0.05, 0.5)
        hooks: list[Any] = [wf.train.StopAtStepHook(STEPS)]
        if task is not None:
            optimizer = weft_distrib.AllReduceOptimizer(optimizer, 2, bucket_bytes=64)
            hooks.append(optimizer.make_session_run_hook(task == 0))
        train = optimizer.minimize(loss, step)
        variables = wf.trainable_variables()
        init = wf.global_variables_initializer()
        if task:  # it gets the chief's values
            with wf.control_dependencies([init]):
                init = wf.group(*[v.assign_add(v.initial_value + 7) for v in variables])
        with wf.train.MonitoredTrainingSession(
            target, scaffold=wf.train.Scaffold(init_op=init), hooks=hooks
        ) as session:
            while not session.should_stop():
                _, last = session.run([train, variables])
    return last


def test_two_replicas_train_as_one_process() -> None:
    want = replica("", slice(0, 12), None)
    with servers(jobs(worker=2)) as workers:
        works = [
            lambda i=i, w=w: replica(w.target, slice(i, 12, 2), i) for i, w in enumerate(workers)
        ]
        with in_threads(*works) as threads:
            pass
    found = [thread.outcome for thread in threads]
    for got, other, one in zip(*found, want, strict=True):
        np.testing.assert_array_equal(got, other)
        np.testing.assert_allclose(got, one, rtol=2e-5, atol=1e-6)


def test_replicas_of_one_graph_and_what_is_wrong() -> None:
    trained = []
    for i in range(2):
        with wf.device(f"/cpu:{i}"):
            w = wf.Variable(4.0)
            optimizer = weft_distrib.AllReduceOptimizer(
                wf.train.AdamOptimizer(0.25), 2, group_key=1
            )
            trained += [w, optimizer.minimize((w - i) * w, var_list=[w])]
            assert optimizer.get_slot_names() == ["m", "v"]
    with wf.Session(config=wf.ConfigProto(device_count={"CPU": 2})) as session:
        session.run(wf.global_variables_initializer())
        for _ in range(3):
            session.run(trained[1::2])
        first, second = session.run(trained[::2])
    assert first == second < 4
    with pytest.raises(errors.InvalidArgumentError, match="1 or more"):
        weft_distrib.AllReduceOptimizer(wf.train.AdamOptimizer(), 0)
    with pytest.raises(errors.InvalidArgumentError, match="No gradients"):
        optimizer.apply_gradients([(None, w)])

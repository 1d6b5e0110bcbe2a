"""Devices that `replica_device_setter` selects."""

from __future__ import annotations

import pytest

import weft as wf
import weft_distrib
from weft import errors

CLUSTER = {"ps": ["p0:1", "p1:1"], "worker": ["w0:1", "w1:1"]}


def test_variables_go_round_and_the_rest_to_the_worker() -> None:
    with wf.device(wf.train.replica_device_setter(cluster=CLUSTER)):
        made = [
            wf.Variable(1.0),
            wf.get_variable("r", [2], use_resource=True),
            wf.Variable([1, 2]),
        ]
        table = wf.nn.embedding_lookup(made[2], [0])
    assert [v.device for v in made] == ["/job:ps/task:0", "/job:ps/task:1", "/job:ps/task:0"]
    assert made[0].initial_value.device == "/job:worker" and table.device == "/job:ps/task:0"


def test_requests_inside_and_outside_are_merged() -> None:
    worker = "/job:worker/task:1"
    with wf.device(wf.train.replica_device_setter(2, worker_device=worker)):
        with wf.device("/cpu:0"):
            v, c = wf.Variable(1.0), wf.constant(1.0) + 1.0
        with wf.device("/job:ps/task:1"):
            pinned = wf.Variable(1.0)
    assert v.device == "/job:ps/task:0/device:CPU:0"
    assert c.device == "/job:worker/task:1/device:CPU:0"
    assert pinned.device == "/job:ps/task:1"
    setter = wf.train.replica_device_setter(2, worker_device=worker, merge_devices=False)
    with wf.device(setter), wf.device("/cpu:0"):
        assert wf.constant(1.0).device == "/device:CPU:0"


def test_chosen_ops_and_strategy() -> None:
    setter = wf.train.replica_device_setter(3, ps_ops=["Const"], ps_strategy=lambda op: 2)
    with wf.device(setter):
        assert wf.constant(1.0).device == "/job:ps/task:2"
        assert wf.Variable(wf.constant(1.0)).device == "/job:worker"


def test_by_load() -> None:
    balance = weft_distrib.GreedyLoadBalancingStrategy(2, weft_distrib.byte_size_load_fn)
    with wf.device(wf.train.replica_device_setter(2, ps_strategy=balance)):
        made = [
            wf.get_variable(f"v{i}", [n], use_resource=bool(i % 2))
            for i, n in enumerate((10, 4, 5, 1, 1))
        ]
    assert [v.device[-1] for v in made] == ["0", "1", "1", "1", "0"]
    unknown = wf.placeholder(wf.float32, [None])
    setter = wf.train.replica_device_setter(2, ps_strategy=balance)
    with wf.device(setter), pytest.raises(errors.InvalidArgumentError, match="is unknown"):
        wf.Variable(unknown, validate_shape=False)


def test_without_servers_and_with_wrong_arguments() -> None:
    assert wf.train.replica_device_setter() is None
    assert wf.train.replica_device_setter(cluster={"worker": ["w:1"]}) is None
    with pytest.raises(errors.InvalidArgumentError, match="must name a job"):
        wf.train.replica_device_setter(ps_device="/cpu:0", cluster=CLUSTER)
    with pytest.raises(TypeError, match="ps_strategy must be a function"):
        wf.train.replica_device_setter(2, ps_strategy=3)


def test_servers_without_a_job_have_no_tasks() -> None:
    setter = wf.train.replica_device_setter(2, ps_device="/cpu:0", worker_device="/job:worker")
    with wf.device(setter):
        assert wf.Variable(1.0).device == "/device:CPU:0"

"""Sessions on clusters whose tasks are in this process, joined by sockets."""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import Any

import numpy as np
import pytest
from weft_testing.tasks import free_ports, jobs, memory_files, servers
from weft_testing.timelines import assert_forward, events_of
from weft_testing.waiting import in_threads, rounds, wait_until

import weft as wf
from weft import errors
from weft_distrib.client import link, target as client_target
from weft_distrib.launch import in_process
from weft_distrib.master.sessions import MasterSession
from weft_distrib.protocol import messages
from weft_distrib.server import Server
from weft_distrib.worker import tracing
from weft_exec.resources.session_tensors import SessionTensors
from weft_exec.session.explain import StepReport
from weft_tensor.finalizers import settle

PS, W0, W1 = "/job:ps/task:0", "/job:worker/task:0", "/job:worker/task:1"


@pytest.fixture(scope="module")
def cluster() -> Iterator[list[Server]]:
    with servers(jobs(ps=1, worker=2)) as made:
        yield made


@pytest.fixture(params=["in process", "by sockets"])
def target(
    cluster: list[Server], request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """The target of the first worker, whose master is called directly, or over its two ports."""
    if request.param == "by sockets":
        monkeypatch.setattr(client_target, "find_server", lambda target: None)
    with wf.Graph().as_default():
        yield cluster[1].target
    wf.Session.reset(cluster[1].target)


def test_devices_of_all_tasks_the_masters_own_first(target: str) -> None:
    with wf.Session(target) as session:
        names = [device.name for device in session.list_devices()]
        lives = {device.incarnation for device in session.list_devices()}
    tails = ["/replica:0/task:0/device:CPU:0", "/replica:0/task:1/device:CPU:0"]
    assert names == ["/job:worker" + tails[0], "/job:ps" + tails[0], "/job:worker" + tails[1]]
    assert len(lives) == 3


def test_feeds_fetches_and_state_over_tasks(target: str) -> None:
    x = wf.placeholder(wf.float32, [None])
    with wf.device(PS):
        v = wf.Variable([1.0, 2.0], name="v")
        w = wf.get_variable("w", initializer=[5.0, 6.0], use_resource=True)
    with wf.device(W0):
        a = x * v
    with wf.device(W1):
        b = a + w
        text = wf.string_join([wf.as_string(b), "é\0"])
    update = v.assign_add(b)
    with wf.Session(target) as session:
        session.run(wf.global_variables_initializer())
        got = session.run({"a": a, "b": [b, text], "none": update.op}, {x: [2.0, 3.0]})
        np.testing.assert_equal(got["a"], [2, 6])
        np.testing.assert_equal(got["b"][0], [7, 12])
        assert [t.endswith("é\0".encode()) for t in got["b"][1]] == [True, True]
        assert got["none"] is None
        np.testing.assert_equal(session.run(v), [8, 14])
        call = session.make_callable(a, [x])
        np.testing.assert_equal(call([1.0, 1.0]), [8, 14])


def test_loops_conditionals_and_gradients_over_tasks(target: str) -> None:
    x = wf.placeholder(wf.float32, [2])

    def body(i: Any, a: Any) -> Any:
        with wf.device(W1):
            b = wf.sin(a)
        with wf.device(PS):
            return i + 1, b * 1.5

    last = wf.while_loop(lambda i, _: i < 5, body, [0, x])[1]
    p = wf.placeholder(wf.bool, [])
    with wf.device(W1):
        either = wf.cond(p, lambda: last * 2.0, lambda: wf.zeros_like(last))
    (slope,) = wf.gradients(either, [x])
    with (
        wf.Session(config=wf.ConfigProto(allow_soft_placement=True)) as here,
        wf.Session(target) as session,
    ):
        for taken in (True, False):
            fed = {x: [0.3, 0.7], p: taken}
            got, want = session.run([either, slope], fed), here.run([either, slope], fed)
            np.testing.assert_allclose(got, want, rtol=1e-6)


def test_state_is_the_clusters_and_the_graph_may_grow(target: str, cluster: list[Server]) -> None:
    with wf.device(PS):
        v = wf.Variable(2.0, name="v")
    with wf.Session(target) as first, wf.Session(cluster[2].target) as second:
        first.run(v.initializer)
        for i in range(3):
            with wf.device((W0, W1)[i % 2]):
                more = v * float(i)
            assert second.run(more) == 2.0 * i
        second.run(v.assign(5.0))
        assert first.run(v) == 5.0
    with wf.Session(target) as third:
        assert third.run(v) == 5.0


def test_what_nobody_named_goes_with_its_session(target: str, cluster: list[Server]) -> None:
    """A program with input and seeds does the same each time that it runs on the same servers."""

    def program(size: int) -> list[Any]:
        with wf.Graph().as_default(), wf.device(W1):
            wf.set_random_seed(1)
            queue = wf.train.range_input_producer(size, num_epochs=1, shuffle=False)
            element = wf.data.make_one_shot_iterator(wf.data.Dataset.range(size)).get_next()
            values = wf.constant([size], wf.int64)
            source = wf.lookup.KeyValueTensorInitializer(wf.constant(["size"]), values)
            found = wf.lookup.StaticHashTable(source, -1).lookup(wf.constant("size"))
            named = wf.FIFOQueue(9, [wf.int32], [[]], shared_name="named")
            with wf.Session(target) as session:
                session.run([wf.local_variables_initializer(), wf.tables_initializer()])
                session.run(named.enqueue(size))
                coordinator = wf.train.Coordinator()
                threads = wf.train.start_queue_runners(session, coordinator)
                got = [list(until_the_end(session, each)) for each in (queue.dequeue(), element)]
                coordinator.request_stop()
                coordinator.join(threads)
                random, count = session.run([wf.random_uniform([2]), named.size()])
                return [*got, session.run(found), random.tolist(), count]

    first, second = program(2), program(3)
    assert [first[:3], second[:3]] == [[[0, 1], [0, 1], 2], [[0, 1, 2], [0, 1, 2], 3]]
    assert first[3] == second[3]
    assert (first[4], second[4]) == (1, 2)
    wait_until(lambda: not any(server._worker._scopes._by_session for server in cluster))


def test_a_value_stays_in_the_task_that_made_it(target: str) -> None:
    with wf.device(PS):
        handle = wf.get_session_handle(wf.constant([1.0, 2.0]))
    with wf.Session(target) as session:
        kept = session.run(handle).handle
        holder, value = wf.get_session_tensor(kept, wf.float32)
        assert value.device == "/job:ps/replica:0/task:0"
        with wf.device(W1):
            doubled = value * 2.0
        assert session.run(doubled, {holder: kept}).tolist() == [2.0, 4.0]
        gone, deleter = wf.delete_session_tensor(kept)
        session.run(deleter, {gone: kept})
        with pytest.raises(errors.InvalidArgumentError, match="keeps no tensor"):
            session.run(value, {holder: kept})


@pytest.mark.parametrize("value", [[1.0, 2.0], 3.0, ["a", "bc"], b"text", np.zeros([0, 3], bool)])
def test_handles_of_values_in_tasks(target: str, cluster: list[Server], value: Any) -> None:
    with wf.device(PS):
        keep = wf.get_session_handle(wf.identity(wf.constant(value)))

    def kept() -> int:
        return sum(
            len(store._values)
            for scope in cluster[0]._worker._scopes._by_session.values()
            for store in scope.resources.own.resources(SessionTensors)
        )

    with wf.Session(target) as session:
        handle = session.run(keep)
        with wf.device(W1), wf.name_scope("elsewhere"), wf.control_dependencies([keep]):
            for got in (handle.eval(), np.asarray(handle)):
                np.testing.assert_array_equal(got, session.run(keep.op.inputs[0]))
        nodes = len(session.graph.nodes)
        handle.delete()
        for again in (handle.eval, handle.delete):
            with pytest.raises(errors.InvalidArgumentError, match="keeps no tensor"):
                again()
        for _ in range(5):
            handle = session.run(keep)  # the one before goes with its name
            settle()
            handle.eval()
        assert kept() <= 2 and len(session.graph.nodes) <= nodes + 2
        with pytest.raises(errors.InvalidArgumentError, match="keeps no tensor"):
            wf.Session(target).run(*_read(handle))
    with pytest.raises(errors.FailedPreconditionError, match="closed"):
        handle.eval()


def _read(handle: Any) -> tuple[Any, dict[Any, Any]]:
    holder, value = wf.get_session_tensor(handle.handle, handle.dtype)
    return value, {holder: handle.handle}


@pytest.mark.parametrize("make", [lambda: wf.constant(1.0), lambda: wf.identity(2.0)])
def test_a_constant_on_a_device_that_nobody_has_is_refused(target: str, make: Any) -> None:
    with wf.device("/job:nobody/task:7"):
        x = make()
    refused = pytest.raises(errors.InvalidArgumentError, match=r"no device meets .*job:nobody")
    with wf.Session(target) as session, refused:
        session.run(x)
    with wf.Session(target, config=wf.ConfigProto(allow_soft_placement=True)) as session:
        assert session.run(x) > 0.0


def in_a_fork(work: Callable[[], object]) -> str:
    """Return the result or the error of some work in a forked child."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            told = f"{work()}"
        except BaseException as error:  # because the child must not run on as this test
            told = repr(error)
        os.write(writing, told.encode())
        os._exit(0)
    os.close(writing)
    try:
        with open(reading, "rb") as pipe:
            assert select.select([pipe], [], [], 60)[0], "the child waits for ever"
            return pipe.read().decode()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_session_is_of_the_process_that_made_it(target: str) -> None:
    with wf.device(W1):
        v = wf.Variable(3.0)
    with wf.Session(target) as session:
        session.run(v.initializer)
        for use in (lambda: session.run(v), lambda: session.run(v + 1.0)):
            told = in_a_fork(use)
            assert told.startswith("FailedPreconditionError") and str(os.getpid()) in told
        assert in_a_fork(session.close) == "None"
        assert session.run(v) == 3.0


def test_a_fork_has_none_of_the_servers_of_its_parent(cluster: list[Server], target: str) -> None:
    told = in_a_fork(lambda: wf.Session(target).run(wf.constant(3.0) + 1.0))
    assert told == "4.0"


def until_the_end(session: wf.Session, output: Any) -> Iterator[int]:
    """Yield the values of an output until its end."""
    with suppress(errors.OutOfRangeError):
        for _ in rounds():
            yield session.run(output)


def test_reset_ends_sessions_and_drops_state(target: str) -> None:
    with wf.device(PS):
        v = wf.Variable(2.0, name="v")
        with wf.container("kept"):
            k = wf.Variable(3.0, name="k")
    session = wf.Session(target)
    session.run(wf.global_variables_initializer())
    wf.Session.reset(target, ["kept"])
    with pytest.raises(errors.AbortedError, match=r"no session|was reset"):
        session.run(v)
    with wf.Session(target) as other:
        assert other.run(v) == 2.0
        with pytest.raises(errors.FailedPreconditionError, match="k"):
            other.run(k)
        other.run(k.initializer)
        assert other.run(k) == 3.0
    wf.Session.reset(target)
    with wf.Session(target) as other, pytest.raises(errors.FailedPreconditionError):
        other.run(v)


@pytest.mark.parametrize("is_listening", [True, False])
def test_reset_ends_at_the_timeout_of_its_config(is_listening: bool) -> None:
    config = wf.ConfigProto(operation_timeout_in_ms=200)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        if is_listening:
            silent.listen()
        begun = time.monotonic()
        with pytest.raises(errors.UnavailableError, match=r"within 0\.2 s"):
            wf.Session.reset(f"grpc://127.0.0.1:{silent.getsockname()[1]}", config=config)
    assert time.monotonic() - begun < link.CONNECT_SECONDS / 2


def test_errors_come_from_where_they_happen_and_end_what_waits(target: str) -> None:
    x = wf.placeholder(wf.int32, [])
    with wf.device(PS):
        never = wf.FIFOQueue(1, [wf.float32], [[]], shared_name="never").dequeue()
    with wf.device(W1):
        bad = wf.gather([1.0, 2.0], x, name="bad")
    with wf.device(W0):
        total = bad + 1.0
    with wf.Session(target) as session:
        with pytest.raises(errors.InvalidArgumentError) as caught:
            session.run([never, total], {x: 7})
        assert caught.value.node == "bad"
        assert caught.value.device == f"{W1.replace('/task', '/replica:0/task')}/device:CPU:0"
        assert "test_server.py" in str(caught.value.line)
        assert session.run(total, {x: 1}) == 3.0


def test_time_limits_and_closing_end_steps(target: str, cluster: list[Server]) -> None:
    with wf.device(PS):
        queue = wf.FIFOQueue(1, [wf.float32], [[]], shared_name="slow")
        taken = queue.dequeue()
    with wf.device(W1):
        late = taken + 1.0
    put = queue.enqueue(1.0)
    session = wf.Session(target)
    with pytest.raises(errors.DeadlineExceededError):
        session.run(late, options=wf.RunOptions(timeout_in_ms=100))
    session.run(put)
    assert session.run(late) == 2.0
    raised: list[Any] = []

    def wait() -> None:
        try:
            for _ in rounds():
                session.run([late, put])
        except errors.OpError as error:
            raised.append(error)

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    wait_until(lambda: cluster[0]._worker._steps.count)
    session.close()
    for thread in threads:
        thread.join(30)
    closed = (errors.CancelledError, errors.FailedPreconditionError)
    assert len(raised) == 3 and all(isinstance(error, closed) for error in raised)
    with pytest.raises(errors.FailedPreconditionError, match="closed"):
        session.run(late)


def test_ctrl_c_ends_a_step_on_all_tasks(target: str, cluster: list[Server]) -> None:
    """The result is the same if the client's own thread runs a part of the step."""
    with wf.device(W1):
        queue = wf.FIFOQueue(10, [wf.int32], [[]], shared_name="interrupted")
        taken = queue.dequeue()
    with wf.device(W0):
        fetched = taken + 1
    workers = [server._worker for server in cluster[1:]]

    def interrupt() -> None:
        wait_until(lambda: all(worker.steps[1] for worker in workers))
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    with wf.Session(target) as session:
        for options in (None, wf.RunOptions(timeout_in_ms=60_000)):
            interrupter = threading.Thread(target=interrupt)
            interrupter.start()
            with pytest.raises(KeyboardInterrupt):
                session.run(fetched, options=options)
            interrupter.join()
            wait_until(lambda: not any(worker.steps[1] for worker in workers))
            session.run(queue.enqueue(5))
            assert session.run(queue.size()) == 1, "the interrupted step went on, and took it"
            assert session.run(fetched) == 6


def test_many_clients_at_once(target: str) -> None:
    with wf.device(PS):
        v = wf.get_variable("v", initializer=0.0, use_resource=True)
    with wf.device(W0):
        one = wf.constant(0.5) * 2.0
    update = v.assign_add(one).op
    with wf.Session(target) as session:
        session.run(v.initializer)

    def train() -> None:
        with wf.Session(target, graph=v.graph) as mine:
            for _ in range(20):
                mine.run(update)

    threads = [threading.Thread(target=train) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    with wf.Session(target) as session:
        assert session.run(v) == 80.0


def test_where_it_would_run_is_explained(target: str) -> None:
    with wf.device(PS):
        v = wf.Variable(1.0, name="v")
    with wf.device(W1):
        y = v * 2.0
    with wf.Session(target) as session:
        report = session.explain(y)
    places = {each.name: each.device for each in report.placement.nodes}
    assert "ps" in places["v"] and "worker/replica:0/task:1" in places[y.op.name]


def test_a_trace_of_all_tasks_on_one_clock(target: str) -> None:
    with wf.device(PS):
        a = wf.random_uniform([300, 300], name="a")
    with wf.device(W1):
        b = wf.matmul(a, a, name="b")
    with wf.device(W0):
        c = wf.reduce_sum(b, name="c")
    options = wf.RunOptions(trace_level=wf.RunOptions.FULL_TRACE)
    metadata = wf.RunMetadata()
    with wf.Session(target) as session:
        session.run(c)
        began = time.time_ns()
        session.run(c, options=options, run_metadata=metadata)
        ended = time.time_ns()
        session.run(c, options=options)
    times = {
        node.node_name: (device.device, node.all_start_nanos, node.all_end_rel_nanos)
        for device in metadata.step_stats.dev_stats
        for node in device.node_stats
    }
    names = [a.op.name, "b", "c"]
    places = [times[name][0].split("/replica")[0] for name in names]
    assert places == ["/job:ps", "/job:worker", "/job:worker"]
    starts = [times[name][1] for name in names]
    assert began <= starts[0] < starts[1] < starts[2] <= ended
    assert all(length > 0 for _, _, length in times.values())
    whole = json.loads(wf.timeline.Timeline(metadata.step_stats).generate_chrome_trace_format())
    events = whole["traceEvents"]
    arrows = {e["name"] for e in events if e["ph"] == "s"}
    for sender, receiver in ((a.op.name, "b"), ("b", "c")):
        name = f"{sender}/to{times[receiver][0]}"
        device, start, length = times[name]
        assert device == times[sender][0]
        assert times[sender][1] < start < start + length <= times[receiver][1]
        (sent,) = [e for e in events if e["ph"] == "X" and e["args"]["name"] == name]
        assert sent["args"]["bytes"] == 360_000
        assert "360000 bytes by shared memory in " in sent["args"]["transfer"]
        assert {name, sender} <= arrows


@pytest.mark.parametrize("differentiated", [False, True])
def test_arrows_of_a_loop_over_two_tasks_point_forwards(target: str, differentiated: bool) -> None:
    with wf.device(W0):
        x = wf.fill([20, 20], 0.01)

    def body(i: wf.Tensor, value: wf.Tensor) -> tuple[wf.Tensor, wf.Tensor]:
        with wf.device(W1):
            product = wf.matmul(value, value, name="far")
        with wf.device(W0):
            return i + 1, wf.tanh(product + wf.exp(value), name="near")

    with wf.device(W0):
        y = wf.while_loop(lambda i, _: i < 5, body, [0, x])[1]
        fetched = wf.gradients(y, x)[0] if differentiated else y
    options = wf.RunOptions(trace_level=wf.RunOptions.FULL_TRACE)
    metadata = wf.RunMetadata()
    with wf.Session(target) as session:
        session.run(fetched)
        session.run(fetched, options=options, run_metadata=metadata)
    events = events_of(metadata.step_stats)
    assert_forward(events)
    bars = [e for e in events if e["ph"] == "X"]
    sent = [e for e in bars if e["name"] == "_Send" and e["args"]["name"].startswith("while/far")]
    assert len({e["args"].get("iteration") for e in sent}) >= 5
    arrows = [
        e for e in events if e["ph"] == "s" and e["name"] in {e["args"]["name"] for e in sent}
    ]
    assert len(arrows) >= 5


def test_clocks_that_differ_are_brought_together() -> None:
    assert tracing.clock_offset(sent=10, began=12, ended=30, received=33) == 0
    assert tracing.clock_offset(sent=10, began=1012, ended=1030, received=32) == 1000
    assert tracing.clock_offset(sent=1010, began=12, ended=30, received=1032) == -1000


def test_device_filters_hide_tasks(cluster: list[Server]) -> None:
    config = wf.ConfigProto(device_filters=["/job:ps", "/job:worker/task:0"])
    with wf.Graph().as_default(), wf.Session(cluster[1].target, config=config) as session:
        assert [d.name.split("/")[1] for d in session.list_devices()] == ["job:worker", "job:ps"]
        with wf.device(W1):
            hidden = wf.constant(1.0) * 2.0
        with pytest.raises(errors.InvalidArgumentError, match="task:1"):
            session.run(hidden)


def test_a_task_that_is_not_there_is_named_in_time() -> None:
    spec = jobs(worker=2)
    with servers({"worker": spec["worker"]}) as made:
        made[1].close()
        config = wf.ConfigProto(operation_timeout_in_ms=300)
        with pytest.raises(errors.UnavailableError, match=r"worker/replica:0/task:1 at localhost"):
            wf.Session(made[0].target, config=config)


def test_a_session_without_a_config_has_that_of_its_server() -> None:
    config = wf.ConfigProto(operation_timeout_in_ms=200, log_device_placement=True)
    with closing(Server.create_local_server(config=config)) as server, wf.Graph().as_default():
        blocked = wf.FIFOQueue(1, wf.float32).dequeue()
        late = errors.DeadlineExceededError
        with wf.Session(server.target) as session, pytest.raises(late):
            session.run(blocked)
        other = wf.ConfigProto(allow_soft_placement=True)
        with (
            wf.Session(server.target, config=other) as session,
            pytest.raises(late),
        ):
            session.run(blocked)
        own = wf.ConfigProto(operation_timeout_in_ms=300)
        with wf.Session(server.target, config=own) as session, pytest.raises(late):
            session.run(blocked)  # the client and its server both watch the time


def test_a_session_that_describes_another_cluster_is_refused(cluster: list[Server]) -> None:
    same = wf.ConfigProto(
        cluster_def=wf.train.ClusterSpec(cluster[0].server_def.cluster).as_cluster_def()
    )
    with wf.Graph().as_default(), wf.Session(cluster[0].target, config=same) as session:
        assert session.run(wf.constant(1)) == 1
    other = wf.ConfigProto(
        cluster_def=wf.train.ClusterSpec({"a": ["localhost:1"]}).as_cluster_def()
    )
    with pytest.raises(errors.UnimplementedError, match="must be the cluster of its servers"):
        wf.Session(cluster[0].target, config=other)


def test_targets_and_servers_that_are_wrong() -> None:
    (port,) = free_ports(1)
    with pytest.raises(errors.InvalidArgumentError, match="target must have the form host:2222"):
        wf.Session("grpc://nowhere")
    for wrong in ("localhost:70000", "localhost:0", "a b:22", "localhost:22/"):
        with pytest.raises(errors.InvalidArgumentError, match="target"):
            wf.Session(f"grpc://{wrong}")
    began, soon = time.monotonic(), wf.ConfigProto(operation_timeout_in_ms=300)
    for host in ("localhost", "nowhere.invalid"):  # training loops try again on this error
        with pytest.raises(errors.UnavailableError, match=f"no server answered at {host}"):
            wf.Session(f"grpc://{host}:{port}", config=soon)
    assert time.monotonic() - began < link.CONNECT_SECONDS
    taken = socket.create_server(("localhost", port))
    with taken, pytest.raises(errors.UnavailableError, match="port may be in use"):
        Server({"worker": [f"localhost:{port}"]})
    with pytest.raises(errors.PermissionDeniedError, match="no credentials"):
        Server({"worker": [f"0.0.0.0:{port}"]})
    two = {"a": ["localhost:1"], "b": ["localhost:2", "localhost:3"]}
    for arguments, message in [
        ((two,), "job_name must be one of"),
        ((two, "b"), "task_index must be one of"),
        ((two, "c", 0), "no job 'c'"),
        ((two, "b", 7), "no task 7"),
        ((two, "a", 0, "http"), "protocol must be 'grpc'"),
        (({},), "at least one task"),
        (({"a": []},), "task_index must be one of"),
        (({"a/task:1": ["localhost:0"]},), "name of a job"),
        (({"a": ["http://localhost:0"]},), "have the form host:2222"),
    ]:
        with pytest.raises(errors.InvalidArgumentError, match=message):
            Server(*arguments)


def test_a_server_of_its_message_and_its_end() -> None:
    server = wf.train.Server.create_local_server(start=False)
    again = server.server_def
    assert (again.job_name, again.task_index, again.protocol) == ("local", 0, "grpc")
    server.start()
    server.start()
    session = wf.Session(server.target)
    assert session.run(wf.constant(2.0) * 3.0) == 6.0
    server.close()
    server.close()
    server.join()
    with pytest.raises(errors.OpError):
        session.run(wf.constant(1.0) + 1.0)
    with pytest.raises(errors.FailedPreconditionError, match="was closed"):
        server.start()


def test_tasks_with_other_clusters_are_told_apart() -> None:
    (a, b) = free_ports(2)
    right = {"worker": [f"localhost:{a}", f"localhost:{b}"]}
    wrong = {"worker": [f"localhost:{b}"]}
    first, second = Server(right, "worker", 0), Server(wrong, "worker", 0)
    with pytest.raises(errors.FailedPreconditionError, match="same cluster specification"):
        wf.Session(first.target)
    first.close()
    second.close()


def test_servers_on_the_other_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_target, "find_server", lambda target: None)
    with closing(Server({"worker": ["[::1]:0"]})) as server, wf.Graph().as_default():
        total = wf.constant(1.0) + 2.0
        with wf.Session(server.target) as session:
            assert session.run(total) == 3.0


def test_a_session_closed_while_its_parts_are_registered_is_forgotten(
    cluster: list[Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, ps = cluster[1].master, cluster[0]._worker
    keep, forget, forgotten = ps._keep, ps.forget, threading.Event()

    def close_first(request: Any, graphs: Any, trusted: bool) -> None:
        worker.close_session(messages.SessionRequest(request.session))
        assert forgotten.wait(30)
        keep(request, graphs, trusted)

    def note(*arguments: Any) -> None:
        forget(*arguments)
        forgotten.set()

    monkeypatch.setattr(ps, "forget", note)
    monkeypatch.setattr(ps, "_keep", close_first)
    known = len(ps._signatures)
    with wf.Graph().as_default(), wf.device(PS):
        total = wf.placeholder_with_default(1.0, []) + 2.0
    session = wf.Session(cluster[1].target, graph=total.graph)
    with pytest.raises(errors.OpError):
        session.run(total)
    session.close()
    wait_until(lambda: len(ps._signatures) == known)


def test_tasks_forget_steps_while_another_waits(target: str, cluster: list[Server]) -> None:
    with wf.device(PS):
        queue = wf.FIFOQueue(1, [wf.float32], [[]])
        put, taken = queue.enqueue(1.0), queue.dequeue()
        x = wf.placeholder_with_default(1.0, []) + 1.0
    with wf.device(W0):
        y = x * 2.0
    known = cluster[0]._worker._steps
    with wf.Session(target) as session:
        session.run(y)
        (master,) = cluster[1].master._sessions.values()
        with in_threads(lambda: session.run(taken)) as (waiting,):
            wait_until(lambda: master._running)
            for _ in range(30):
                session.run(y)
            left = known.count
            session.run(put)
        assert waiting.outcome == 1.0 and left < 5


def test_state_without_a_task_is_where_it_is_already(target: str, cluster: list[Server]) -> None:
    def program() -> Any:
        v = wf.Variable(2.0, name="v")
        queue = wf.FIFOQueue(9, [wf.float32], [[]], shared_name="q")
        return v, queue.enqueue(v + 0.0), queue.dequeue(), v.assign_add(1.0)

    v, put, _, _ = program()
    with wf.Session(target) as first:
        first.run(v.initializer)
        first.run(put)
        for server in (cluster[2], cluster[0]):  # other masters, other graphs
            with wf.Graph().as_default(), wf.Session(server.target) as other:
                _, put, taken, more = program()
                assert other.run(taken) == first.run(v)
                other.run(more)
                other.run(put)
        assert first.run(v) == 4.0
    with wf.Graph().as_default(), wf.device(W1):  # another of the same name, as was asked
        own = wf.Variable(7.0, name="v")
        with wf.Session(cluster[2].target) as other:
            other.run(own.initializer)
            assert other.run(own) == 7.0
    with wf.Graph().as_default(), wf.Session(cluster[0].target) as third:
        v = wf.Variable(2.0, name="v")
        with pytest.raises(
            errors.InvalidArgumentError, match=r"task:0 and .*task:1 each have a resource named 'v'"
        ):
            third.run(v)


def test_a_master_explains_what_it_knows(target: str, cluster: list[Server]) -> None:
    v = wf.Variable(2.0, name="elsewhere")
    with wf.Session(cluster[2].target) as first:
        first.run(v.initializer)
    total = v + 1.0
    with wf.Session(target) as session:
        report = session.explain(total)
        assert report.placement["elsewhere"].device.startswith("/job:worker/replica:0/task:1/")
        assert "task:1" in str(report) and report.svg().startswith("<svg")
        assert {len(part.node) > 0 for part in report.parts()} == {True}
        with pytest.raises(errors.InvalidArgumentError, match="task:7"), wf.device("/task:7"):
            session.explain(wf.placeholder_with_default(1.0, []) + 1.0)
    for bad in ([], [b"{}"], [b"[]"], [b"\xff"]):
        with pytest.raises(errors.DataLossError, match="cannot be decoded"):
            StepReport.from_arrays([np.frombuffer(data, np.uint8) for data in bad])


def test_partial_runs_over_tasks(target: str, cluster: list[Server]) -> None:
    a, b = wf.placeholder(wf.float32, [2]), wf.placeholder(wf.float32, [])
    with wf.device(PS):
        v = wf.Variable(1.0, name="v")
        more = v.assign_add(wf.reduce_sum(a))
    with wf.device(W1):
        first = a * 2.0
        second = wf.cond(b > 0.0, lambda: first * b, lambda: first - b)
        (slope,) = wf.gradients(second, [a])
        bad = wf.check_numerics(b / 0.0, "of b")
    master = cluster[1].master
    with wf.Session(target) as session:
        session.run(v.initializer)
        for k in range(2):
            handle = session.partial_run_setup([first, second, slope, more.op, v], [a, b])
            assert session.partial_run(handle, [], {}) == []
            got = session.partial_run(handle, first, {a: [1.0, k]})
            np.testing.assert_array_equal(got, [2, 2 * k])
            with pytest.raises(errors.InvalidArgumentError, match="until"):
                session.partial_run(handle, second)
            got = session.partial_run(handle, [second, slope], {b: 3.0})
            np.testing.assert_array_equal(got, [[6, 6 * k], [6, 6]])
            session.partial_run(handle, v)
            with pytest.raises(errors.InvalidArgumentError, match="not a partial run"):
                session.partial_run(handle, [])
            wait_until(lambda: not master.running_steps)
        assert session.run(v) == 4.0
        handle = session.partial_run_setup([first, bad], [a, b])
        with pytest.raises(errors.InvalidArgumentError, match="of b") as caught:
            session.partial_run(handle, bad, {b: 1.0})
        assert caught.value.node == bad.op.name
        handle = session.partial_run_setup([first], [])
        wait_until(lambda: not master.running_steps)
        with pytest.raises(errors.InvalidArgumentError, match="value must be fed for placeholder"):
            session.partial_run(handle, first)
        for _ in range(3):  # begun, and dropped
            session.partial_run_setup([first, second], [a, b])
        session._partial_runs.clear()
        wait_until(lambda: not master.running_steps)
        waiting = session.partial_run_setup([first, second], [a, b])
        session.partial_run(waiting, first, {a: [1.0, 1.0]})
    wait_until(lambda: not master.running_steps)


def test_what_two_signatures_share_is_sent_once(target: str, cluster: list[Server]) -> None:
    with wf.device(W1):
        table = wf.constant(np.arange(1 << 18, dtype=np.float32))
        x = wf.placeholder(wf.float32, [])
        count = wf.Variable(0.0)
        noise = wf.random_uniform([], seed=5)
        shared = wf.reduce_max(table * x) + noise + wf.assign_add(count, 1.0)
    with wf.device(PS):
        first, second = shared * 1.0, shared * -1.0

    def sent() -> int:
        return sum(each.bytes_sent for each in cluster[1].traffic())

    with wf.Session(target) as session:
        session.run(count.initializer)
        once = session.run(first, {x: 0.0})
        before = sent()
        again = session.run(second, {x: 0.0})
        assert sent() - before < 1 << 18
        assert -again - once != 1.0  # other numbers were drawn, as in a step of the first
        assert 2.0 <= -again < 3.0
        with wf.device(PS):
            other = shared + table[1]
        assert 4.0 <= session.run(other, {x: 0.0}) < 5.0


def test_large_graphs_come_in_segments_and_functions_once(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    extend = MasterSession.extend

    def noted(session: MasterSession, segment: Any, *limits: Any) -> None:
        sent.append(memoryview(segment).nbytes)
        extend(session, segment, *limits)

    monkeypatch.setattr(MasterSession, "extend", noted)
    monkeypatch.setattr(client_target, "SEGMENT_BYTES", 1 << 20)
    weight = np.random.default_rng(0).normal(size=50_000).astype(np.float32)

    @wf.Defun(wf.float32)
    def weighted(x: wf.Tensor) -> wf.Tensor:
        return wf.reduce_sum(x * weight)

    x = wf.placeholder(wf.float32, [])
    with wf.device(W1):
        parts = [wf.constant(np.full(100_000, i, np.float32)) for i in range(12)]
        looped = wf.while_loop(lambda i: i < 3.0, lambda i: i + x, [wf.constant(0.0)])
        total = wf.add_n([*parts, wf.fill([100_000], looped + weighted(x))])
    with wf.Session(target) as session:
        expected = 66.0 + 3.0 + weight.sum()
        np.testing.assert_allclose(session.run(total, {x: 1.0})[7], expected, rtol=1e-4)
        assert len(sent) >= 5 and max(sent) < (1 << 20) + weight.nbytes + 50_000
        sent.clear()
        again = weighted(x) + 1.0
        np.testing.assert_allclose(session.run(again, {x: 2.0}), 2 * weight.sum() + 1, rtol=1e-4)
        assert sum(sent) < 50_000  # the function is there


def test_no_shared_memory_waits_for_the_collector() -> None:
    """Objects of closed servers are freed without garbage collection of cycles."""
    before = memory_files(os.getpid())
    gc.collect()
    gc.disable()
    try:
        with wf.Graph().as_default(), servers(jobs(ps=1, worker=2)) as cluster:
            with wf.device(PS):
                large = wf.constant(np.ones(1 << 19, np.float32)) * wf.random_uniform([])
            with wf.device(W1):
                doubled = wf.nn.relu(large) * 2.0
            options = wf.RunOptions(trace_level=wf.RunOptions.FULL_TRACE)
            with wf.Session(cluster[1].target) as session:
                for _ in range(2):
                    session.run(wf.reduce_sum(doubled))
                    session.run(doubled, options=options, run_metadata=wf.RunMetadata())
                assert memory_files(os.getpid()) - before
        wait_until(lambda: memory_files(os.getpid()) <= before)
    finally:
        gc.enable()


def test_servers_of_one_process_exchange_values_without_sockets() -> None:
    with servers(jobs(ps=1, worker=2), protocol="inproc") as cluster:
        with wf.device(PS):
            v = wf.Variable(np.arange(1 << 20, dtype=np.float32))
            text = wf.constant(["a", "é"])
        with wf.device(W1):
            doubled, joined = v * 2.0, wf.string_join([text, "!"])
        with wf.device(W0):
            total = wf.reduce_max(doubled)
        update = v.assign_add(doubled).op
        with wf.Session(cluster[1].target) as session:
            session.run(v.initializer)
            assert session.run(total) == 2.0 * ((1 << 20) - 1)
            assert session.run(joined).tolist() == [b"a!", "é!".encode()]
            read, first = session.run([v.value(), doubled])
            session.run(update)
            assert read[5] == 5.0 and first[5] == 10.0  # nobody shares the variable's memory
            assert session.run(v)[5] == 15.0
        traffic = [each for server in cluster for each in server.traffic()]
        assert {each.transport for each in traffic} == {"inproc"}
        assert sum(each.bytes_sent for each in traffic) > 8 << 20
        with wf.Session(cluster[1].target) as session:
            never = wf.FIFOQueue(1, wf.float32).dequeue()
            threading.Timer(0.3, cluster[2].close).start()
            with wf.device(W1), pytest.raises(errors.OpError, match="job:worker"):
                session.run(wf.identity(never) + doubled[0])


def test_a_server_that_does_not_say_so_is_reached_by_its_sockets() -> None:
    cluster = jobs(ps=1, worker=1)
    with (
        closing(Server(cluster, "ps", 0)),
        closing(Server(cluster, "worker", 0, protocol="inproc")) as worker,
        wf.Session(worker.target) as session,
    ):
        with wf.device(PS):
            there = wf.random_uniform([]) + 1.0
        assert session.run(there) >= 1.0
        assert {each.transport for each in worker.traffic()} == {"shared memory"}
    with pytest.raises(errors.InvalidArgumentError, match="'inproc'"):
        Server(cluster, "ps", 0, protocol="inproc://")


def test_a_call_that_is_kept_runs_on_one_task(target: str) -> None:
    def doubled_sine(x: wf.Tensor) -> wf.Tensor:
        return wf.sin(x, name="sine") * 2.0

    def over_tasks(x: wf.Tensor) -> wf.Tensor:
        with wf.device(PS):
            return doubled_sine(x)

    kept = wf.Defun(wf.float32, noinline=True)(doubled_sine)
    spread = wf.Defun(wf.float32, noinline=True)(over_tasks)
    inlined = wf.Defun(wf.float32, func_name="inlined")(over_tasks)
    x = wf.placeholder(wf.float32, [])
    with wf.device(W1):
        y, wrong, free = kept(x), spread(x), inlined(x)
    with wf.device(W0):
        z = y + 1.0
    options = wf.RunOptions(trace_level=wf.RunOptions.FULL_TRACE)
    metadata = wf.RunMetadata()
    with wf.Session(target) as session:
        got = session.run(z, {x: 1.0}, options=options, run_metadata=metadata)
        assert got == pytest.approx(2 * np.sin(1.0) + 1)
        places = {
            n.node_name: d.device for d in metadata.step_stats.dev_stats for n in d.node_stats
        }
        assert places["sine"].startswith("/job:worker/replica:0/task:1/")
        with pytest.raises(errors.InvalidArgumentError, match="are not inlined and run on one"):
            session.run(wrong, {x: 1.0})
        assert session.run(free, {x: 1.0}) == pytest.approx(2 * np.sin(1.0))


def test_a_program_that_joins_ends_with_sigterm() -> None:
    """TensorFlow's `join` never returns, so programs often continue with another task's part."""
    server = Server.create_local_server()

    def strike() -> None:
        wait_until(lambda: signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)

    with in_threads(strike):
        with pytest.raises(SystemExit) as ended:
            server.join()
        assert ended.value.code == 0
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    server.join()  # it is closed


def test_clusters_of_this_process_are_made_whole_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="number of ps tasks must be 0 or more"):
        wf.test.create_local_cluster(1, -1)
    ports = free_ports(1) * 2
    monkeypatch.setattr(
        in_process, "find_free_addresses", lambda _: [f"localhost:{p}" for p in ports]
    )
    with pytest.raises(errors.InvalidArgumentError):  # the second task has the first one's address
        wf.test.create_local_cluster(1, 1)
    monkeypatch.undo()
    workers, ps = wf.test.create_local_cluster(1, 1)
    for server in workers + ps:
        server.close()

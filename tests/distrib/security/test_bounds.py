"""Limits of a task: durations, rates, accessible files, and its end."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from weft_testing.tasks import Process, free_ports, jobs
from weft_testing.waiting import in_threads, wait_until

import weft as wf
from weft import errors
from weft_distrib.client import target as client_target
from weft_distrib.client.link import LocalLink, RemoteLink
from weft_distrib.liveness import peer_monitor, probe_process
from weft_distrib.protocol import health, messages, service
from weft_distrib.protocol.tables import encode
from weft_distrib.security.credentials import Credentials
from weft_distrib.security.rate_limits import Rate
from weft_distrib.server import Server
from weft_distrib.wire import methods
from weft_distrib.wire.future import Reply
from weft_distrib.wire.handshake import HELLO, ConnectionOptions, Hello
from weft_distrib.wire.listener import Listener, ask, dial
from weft_distrib.wire.methods import RunStep
from weft_distrib.worker.threads import WaitingThreads
from weft_exec.resources.file_access import FileRoots, restrict_files
from weft_graph.ir.device_spec import DeviceParts
from weft_graph.serialize import graph_to_bytes
from weft_io.records.parquet import ParquetFile
from weft_io.resources.queue import Queue

LOCAL = {"worker": ["localhost:0"]}


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions by sockets, as from another process."""
    monkeypatch.setattr(client_target, "find_server", lambda target: None)


# --------------------------------------------------------------------------- binding


def test_other_machines_are_let_in_when_it_is_said_twice(capfd: Any) -> None:
    from weft_distrib.commands import server as command

    (port,) = free_ports(1)
    cluster = {"worker": [f"0.0.0.0:{port}"]}
    with pytest.raises(errors.PermissionDeniedError, match="--insecure --insecure"):
        Server(cluster)
    with closing(Server(cluster, insecure=True)) as server:
        assert server.target.endswith(str(port))
    import argparse

    parser = argparse.ArgumentParser()
    command.add(parser)
    once = ["--insecure", "--cluster", json.dumps(cluster)]
    with pytest.raises(errors.InvalidArgumentError, match="pass the option twice"):
        command.run(parser.parse_args(once))


# ---------------------------------------------------------------------------- leases


def test_a_session_ends_with_the_connection_that_opened_it() -> None:
    with closing(Server(LOCAL)) as server:
        link = RemoteLink(server.target.removeprefix("grpc://"), Credentials(), 30)
        link.create_session(messages.OpenSession(), 30)
        assert server.master.open_sessions
        link.close()
        wait_until(lambda: not server.master.open_sessions)


def test_a_session_is_for_the_connection_that_opened_it_only() -> None:
    """Knowing the numbers of a session, a signature and a step gives no access to them."""
    with wf.Graph().as_default() as graph:
        wf.multiply(wf.placeholder(wf.float32, [], name="x"), 2.0, name="y")
        segment = np.frombuffer(graph_to_bytes(graph, 0, len(graph.nodes)), np.uint8)
    with closing(Server(LOCAL)) as server, ExitStack() as stack:
        address = server.target.removeprefix("grpc://")
        owner, other = (RemoteLink(address, Credentials(), 30) for _ in range(2))
        stack.callback(owner.close)
        stack.callback(other.close)
        session = owner.create_session(messages.OpenSession(), 30).session
        owner.extend(messages.SessionRequest(session), segment)
        signature = messages.Signature(session, ["x:0"], ["y:0"])
        plain = owner.plan(signature).signature
        late = owner.plan(replace(signature, partial=True))
        step = owner.begin_partial(RunStep(session, late.signature)).step
        fed = messages.Advance(
            session, step, [f"caller;{late.home};feed:0"], [f"{late.home};caller;fetch:0"], True
        )

        def outcome(call: Callable[[Reply], Any]) -> Any:
            reply = Reply()
            call(reply)
            assert reply.wait(60)
            return reply.result()[0]

        calls: list[Callable[[Any], Any]] = [
            lambda link: link.extend(messages.SessionRequest(session), segment),
            lambda link: link.plan(signature),
            lambda link: link.explain(signature),
            lambda link: link.begin_partial(RunStep(session, late.signature)),
            lambda link: outcome(
                lambda reply: link.run(RunStep(session, plain), [np.float32(1)], reply)
            ),
            lambda link: outcome(lambda reply: link.advance(fed, [np.float32(1)], reply)),
        ]
        for link in other, LocalLink(server.master):
            for call in calls:
                with pytest.raises(errors.AbortedError, match="this connection has no session"):
                    call(link)
            link.close_session(session)
        assert server.master.open_sessions == [session]
        for call in calls[4:]:
            assert call(owner) == [2.0]
        owner.close_session(session)
        assert not server.master.open_sessions


def test_a_client_that_dies_while_its_session_is_made_leaves_none() -> None:
    (absent,) = free_ports(1)
    cluster = {"worker": ["localhost:0", f"localhost:{absent}"]}
    with closing(Server(cluster, "worker", 0)) as server:
        program = f"import weft as wf; print(flush=True); wf.Session({server.target!r})"
        asked = threading.Event()
        ask_all = server.master._request_statuses

        def ask(*arguments: Any) -> Any:
            asked.set()
            return ask_all(*arguments)

        server.master._request_statuses = ask  # type: ignore[method-assign]
        client = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
        assert asked.wait(60)
        client.kill()
        client.wait()
        pool = "weft-greet"
        wait_until(lambda: not any(t.name.startswith(pool) for t in threading.enumerate()))
        assert not server.master.open_sessions


def test_a_client_that_is_frozen_loses_its_session() -> None:
    with closing(Server(LOCAL, lease=1.0)) as server:
        program = (
            f"import weft as wf, time; session = wf.Session({server.target!r}); "
            "print(flush=True); time.sleep(600)"
        )
        client = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
        assert client.stdout is not None and client.stdout.readline()
        assert server.master.open_sessions
        client.send_signal(signal.SIGSTOP)
        wait_until(lambda: not server.master.open_sessions)
        client.kill()
        client.wait()


def test_who_is_silent_and_idle_but_there_keeps_its_session(remote: None) -> None:
    with closing(Server(LOCAL, lease=0.3)) as server:
        one = wf.placeholder_with_default(1.0, []) + 0.0
        with wf.Session(server.target) as session:
            before = threading.Event()
            before.wait(1.0)  # three leases
            assert session.run(one) == 1.0


def test_isolated_sessions_share_no_state() -> None:
    cluster = jobs(ps=1, worker=1)
    isolated = wf.ConfigProto(isolate_session_state=True)
    with closing(Server(cluster, "ps", 0)) as ps, closing(Server(cluster, "worker", 0)) as worker:
        with wf.device("/job:ps/task:0"):
            v = wf.Variable(1.0, name="v")
        with wf.Session(worker.target) as shared, wf.Session(worker.target, config=isolated) as own:
            shared.run(v.initializer)
            with pytest.raises(errors.FailedPreconditionError):
                own.run(v)
            own.run(v.assign(5.0))
            assert (shared.run(v), own.run(v)) == (1.0, 5.0)
        wait_until(lambda: not ps._worker._scopes._by_session)
        with (
            wf.Session(worker.target, config=isolated) as own,
            pytest.raises(errors.FailedPreconditionError),
        ):
            own.run(v)


def test_a_session_that_is_forgotten_while_it_registers_leaves_nothing() -> None:
    cluster = jobs(ps=1, worker=1)
    isolated = wf.ConfigProto(isolate_session_state=True)
    registers, go_on = threading.Event(), threading.Event()
    with closing(Server(cluster, "ps", 0)) as ps, closing(Server(cluster, "worker", 0)) as worker:
        keep = ps._worker._keep

        def slowly(*arguments: Any, **options: Any) -> None:
            registers.set()
            assert go_on.wait(60)
            keep(*arguments, **options)

        ps._worker._keep = slowly  # type: ignore[method-assign]
        with wf.device("/job:ps/task:0"):
            v = wf.Variable(1.0, name="v")
        with wf.Session(worker.target, config=isolated) as session:
            with in_threads(lambda: session.run(v.initializer)) as (runs,):
                assert registers.wait(60)
                (number,) = worker.master.open_sessions
                channel = worker._connections.connect(DeviceParts("ps", 0, 0))
                ask(channel, methods.FORGET, encode(messages.SessionRequest(number)), (), 60)
                go_on.set()
            assert isinstance(runs.outcome, errors.AbortedError)
            wait_until(lambda: not ps._worker._scopes._by_session and not ps._worker._signatures)


# ----------------------------------------------------------------------------- feeds


def test_what_another_client_feeds_must_fit() -> None:
    """Messages of a foreign session have no effect; the session itself continues."""
    with wf.Graph().as_default() as graph:
        wf.reduce_sum(wf.placeholder(wf.float32, [None, 2], name="x"), name="y")
        segment = np.frombuffer(graph_to_bytes(graph, 0, len(graph.nodes)), np.uint8)
    with closing(Server(LOCAL)) as server:
        link = RemoteLink(server.target.removeprefix("grpc://"), Credentials(), 30)
        feed_what_does_not_fit(link, segment)
        link.close()


def feed_what_does_not_fit(link: RemoteLink, segment: np.ndarray) -> None:
    session = link.create_session(messages.OpenSession(), 30).session
    link.extend(messages.SessionRequest(session), segment)
    plain = link.plan(messages.Signature(session, ["x:0"], ["y:0"]))
    late = link.plan(messages.Signature(session, ["x:0"], ["y:0"], partial=True))
    fits = np.ones((3, 2), np.float32)

    def run(values: Sequence[Any]) -> Any:
        reply = Reply()
        link.run(RunStep(session, plain.signature), values, reply)
        assert reply.wait(60)
        return reply.result()[0]

    def advance(name: str, values: Sequence[Any]) -> Any:
        step = link.begin_partial(RunStep(session, late.signature)).step
        fetch = f"{late.home};caller;fetch:0"
        reply = Reply()
        link.advance(messages.Advance(session, step, [name], [fetch], True), values, reply)
        assert reply.wait(60)
        return reply.result()[0]

    fed = f"caller;{late.home};feed:0"
    assert run([fits]) == advance(fed, [fits]) == [6.0]
    for wrong in (fits.astype(np.float64), fits[0], fits.T, np.array([b"a"], object)):
        for tell in (run, partial(advance, fed)):
            with pytest.raises(errors.InvalidArgumentError, match=r"x:0 is fed .* it is float32"):
                tell([wrong])
    for count in (0, 2):
        with pytest.raises(errors.InvalidArgumentError, match=f"1 feeds, got {count} values"):
            run([fits] * count)
    for name in (fed[:-1] + "1", fed[:-1] + "-1", f"{fed};0", "x:0"):
        with pytest.raises(errors.OpError, match=r"no feed 1|is not a feed"):
            advance(name, [fits])
    with pytest.raises(errors.InvalidArgumentError, match="not planned for partial runs"):
        link.begin_partial(RunStep(session, plain.signature))
    assert run([fits]) == [6.0]


# ----------------------------------------------------------------------------- files


def test_roots(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "out").symlink_to("/etc")
    roots = FileRoots([str(tmp_path / "in"), "s3://bucket/runs/"])
    for path in (f"{tmp_path}/in/x", f"file://{tmp_path}/in/y/../z", "s3://bucket/runs/1"):
        roots.check(path)
    for path in (
        f"{tmp_path}/x",
        f"{tmp_path}/in/../x",
        f"{tmp_path}/inside",
        f"{tmp_path}/in/out/passwd",
        "relative",
        "s3://bucket/runs-of-others",
        "s3://bucket/runs/../keys",
        "simplecache::s3://bucket/runs/1",
        "http://localhost/",
        "FILE:///etc/passwd",
    ):
        with pytest.raises(errors.PermissionDeniedError, match="other processes may access"):
            roots.check(path)


def file_programs(base: Path) -> dict[str, Any]:
    """One program for each way of touching a file."""
    path = str(base / "file")
    names = wf.train.string_input_producer([path], num_epochs=None, shuffle=False)
    rows = wf.data.experimental.SqlDataset("sqlite", path, "SELECT 1", (wf.int32,))
    numbers = wf.data.Dataset.range(3)
    words = wf.lookup.TextFileInitializer(
        path,
        wf.string,
        wf.lookup.TextFileIndex.WHOLE_LINE,
        wf.int64,
        wf.lookup.TextFileIndex.LINE_NUMBER,
    )
    table = wf.lookup.StaticHashTable(words, -1)
    v = wf.Variable(1.0, name=f"v_{base.name}")
    saver = wf.train.Saver([v], sharded=False)
    once = wf.data.Dataset.from_tensors

    def first(dataset: Any) -> Any:
        return wf.data.make_one_shot_iterator(dataset).get_next()

    return {
        "ReadFile": wf.read_file(path),
        "WriteFile": wf.write_file(path, "x"),
        "MatchingFiles": wf.matching_files(str(base / "*")),
        "TextLineDataset": first(wf.data.TextLineDataset(path)),
        "TFRecordDataset": first(wf.data.TFRecordDataset(path)),
        "FixedLengthRecordDataset": first(wf.data.FixedLengthRecordDataset(path, 1)),
        "CsvDataset": first(wf.data.experimental.CsvDataset(path, [wf.string])),
        "SqlDataset": first(rows),
        "cache": first(numbers.cache(path)),
        "in a function": first(once(path).flat_map(wf.data.TextLineDataset)),
        "in a parallel one": first(once(path).map(wf.read_file, num_parallel_calls=2)),
        "reader": wf.WholeFileReader().read(names),
        "table": table.initializer,
        "PrintV2": wf.print("x", output_stream=f"file://{path}"),
        "candidates": wf.nn.fixed_unigram_candidate_sampler(
            wf.constant([[1]], wf.int64), 1, 1, True, 5, vocab_file=path
        ),
        "restore": wf.raw_ops.RestoreV2(
            prefix=path, tensor_names=["v"], shape_and_slices=[""], dtypes=[wf.float32]
        ),
        "save": wf.raw_ops.SaveV2(
            prefix=path, tensor_names=["v"], shape_and_slices=[""], tensors=[wf.constant(1.0)]
        ),
        "saver": (saver, v),
    }


@pytest.mark.parametrize("mode", ["rb", "wb", "ab", "r+b"])
def test_a_link_that_changes_after_the_look_leads_nowhere(
    tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, outside, place = (tmp_path / name for name in ("in", "secret", "in/link"))
    inside.mkdir()
    outside.write_bytes(b"secret")
    (inside / "harmless").write_bytes(b"harmless")
    place.symlink_to(inside / "harmless")
    check = FileRoots.check

    def check_and_change(roots: FileRoots, path: str) -> None:
        check(roots, path)
        place.unlink()
        place.symlink_to(outside)

    with restrict_files(FileRoots([str(inside)])):
        with wf.gfile.GFile(str(place), mode) as file:
            assert mode != "rb" or file.read() == b"harmless"
        monkeypatch.setattr(FileRoots, "check", check_and_change)
        with pytest.raises(errors.PermissionDeniedError, match="when opened"):
            wf.gfile.GFile(str(place), mode).seek(0)
        place.unlink()
        place.symlink_to(inside / "harmless")
        with pytest.raises(errors.PermissionDeniedError, match="when opened"):
            ParquetFile(str(place))
    assert outside.read_bytes() == b"secret"


def test_files_are_touched_below_roots_only(tmp_path: Path, remote: None) -> None:
    allowed, secret = tmp_path / "allowed", tmp_path / "secret"
    for folder in (allowed, secret):
        folder.mkdir()
        (folder / "file").write_text("a\nb\n")
    programs = file_programs(secret)
    saver, v = programs.pop("saver")
    let_through = []
    with closing(Server(LOCAL, file_roots=[str(allowed)])) as server:
        with wf.Session(server.target) as session:
            session.run(v.initializer)
            coordinator = wf.train.Coordinator()
            threads = wf.train.start_queue_runners(session, coordinator)
            for name, fetch in programs.items():
                try:
                    session.run(fetch, options=wf.RunOptions(timeout_in_ms=20_000))
                    let_through.append(name)
                except errors.PermissionDeniedError as error:
                    assert "of other processes may access" in error.message, name
            with pytest.raises(errors.PermissionDeniedError):
                saver.save(session, str(secret / "model"), write_meta_graph=False)
            coordinator.request_stop()
            assert session.run(wf.read_file(str(allowed / "file"))) == b"a\nb\n"
            lines = wf.data.make_one_shot_iterator(wf.data.TextLineDataset(str(allowed / "file")))
            assert session.run(lines.get_next()) == b"a"
            saver.save(session, str(allowed / "model"), write_meta_graph=False)
        coordinator.join(threads, stop_grace_period_secs=30, ignore_live_threads=True)
    assert not let_through
    assert sorted(path.name for path in secret.iterdir()) == ["file"]


def test_a_client_of_the_same_process_touches_what_it_likes(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with closing(Server(LOCAL, file_roots=[])) as server, wf.Session(server.target) as session:
        assert session.run(wf.read_file(str(tmp_path / "file"))) == b"x"


def test_checkpoints_lead_nowhere_else(tmp_path: Path) -> None:
    from weft_io.files.paths import storage_of

    roots = FileRoots([str(tmp_path)])
    with restrict_files(roots), pytest.raises(errors.PermissionDeniedError):
        storage_of("/etc/passwd")
    storage_of("/etc/passwd")


def test_python_functions_run_where_the_client_is(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = jobs(ps=1, worker=1)
    calls: list[float] = []

    def call(x: Any) -> Any:
        calls.append(float(x))
        return x

    with closing(Server(cluster, "ps", 0)), closing(Server(cluster, "worker", 0)) as worker:
        with wf.device("/job:worker/task:0"):
            here = wf.py_func(call, [wf.constant(1.0)], wf.float32, name="here")
        with wf.device("/job:ps/task:0"):
            there = wf.py_func(call, [wf.constant(2.0)], wf.float32, name="there")
        with wf.Session(worker.target) as session:
            assert session.run(here) == 1.0
            with pytest.raises(
                errors.PermissionDeniedError, match="place it on the client's task"
            ) as caught:
                session.run(there)
            assert caught.value.node == "there"
        monkeypatch.setattr(client_target, "find_server", lambda target: None)
        with wf.Session(worker.target) as session:
            with pytest.raises(errors.PermissionDeniedError, match="but is placed on"):
                session.run(here)
            mapped = wf.data.Dataset.range(1).map(lambda x: wf.py_func(call, [x], wf.int64))
            with pytest.raises(errors.PermissionDeniedError):
                session.run(wf.data.make_one_shot_iterator(mapped).get_next())
    assert calls == [1.0]


# ------------------------------------------------------------------- draining, health


def status_of(target: str, name: str = "") -> bytes:
    request = bytes([10, len(name)]) + name.encode() if name else b""
    with grpc.insecure_channel(target.removeprefix("grpc://")) as channel:
        found: bytes = channel.unary_unary(f"/{health.NAME}/Check")(request, timeout=30)
        return found


def test_health_is_told_and_watched() -> None:
    with closing(Server(LOCAL)) as server:
        assert status_of(server.target) == status_of(server.target, service.SERVICE) == b"\x08\x01"
        with pytest.raises(grpc.RpcError) as caught:
            status_of(server.target, "other")
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        with grpc.insecure_channel(server.target.removeprefix("grpc://")) as channel:
            told = channel.unary_stream(f"/{health.NAME}/Watch")(b"", timeout=60)
            assert next(told) == b"\x08\x01"
            server._control.health.stop()
            assert next(told) == b"\x08\x02"


def test_sigterm_refuses_new_steps_and_leaves_in_silence() -> None:
    cluster = jobs(ps=1)
    begun = wf.FIFOQueue(1, [wf.float32], [[]], shared_name="begun")
    queue = wf.FIFOQueue(1, [wf.float32], [[]], shared_name="q")
    with wf.control_dependencies([begun.enqueue(1.0)]):
        taken = queue.dequeue()
    has_begun, size = begun.dequeue(), queue.size()
    target = f"grpc://{cluster['ps'][0]}"
    with (
        Process(cluster, "ps", 0, []) as ps,
        wf.Session(target) as session,
        wf.Session(target) as other,
    ):
        with in_threads(lambda: session.run(taken)) as (waiting,):
            other.run([has_begun, size])
            ps.terminate()
            wait_until(lambda: status_of(target) == b"\x08\x02")
            with pytest.raises(
                errors.UnavailableError, match="ps/replica:0/task:0 is shutting down"
            ):
                other.run([size])
            with pytest.raises(errors.UnavailableError, match="shutting down"):
                wf.Session(target)
            ps.terminate()  # the second time it does not wait
        assert isinstance(waiting.outcome, errors.OpError)
        assert ps.ended() == (0, "")


def test_a_drained_server_lets_a_step_end_and_leaves() -> None:
    server = Server(LOCAL)
    taken = wf.FIFOQueue(1, [wf.float32], [[]], shared_name="q").dequeue()
    with wf.Session(server.target) as session:
        with in_threads(lambda: session.run(taken)) as (waiting,):
            wait_until(lambda: server.resources.resources(Queue))
            server.begin_drain(60)
            wait_until(lambda: server.master._leaving)
            fill(server)
        assert waiting.outcome == 3.0
    server.join()


class Done:
    """Return a completion without a waiter."""

    def __call__(self, value: Any = None) -> None: ...

    def fail(self, error: BaseException) -> None: ...


def fill(server: Server) -> None:
    """Add the element that a step waits for, directly, since no new step may begin."""
    (queue,) = server.resources.resources(Queue)
    queue.enqueue((np.float32(3.0),), Done())


# -------------------------------------------------------------------------- versions


def test_messages_of_another_version_are_refused_by_name() -> None:
    for packed, kind in [
        (methods.RunParts(1, 2, 3, 4).pack(), methods.RunParts),
        (methods.RunStep(1, 2).pack(), methods.RunStep),
        (methods.StepKey(1, 2).pack(), methods.StepKey),
    ]:
        other = bytes([packed[0] + 1]) + packed[1:]
        with pytest.raises(errors.FailedPreconditionError, match="same release"):
            kind.unpack(other)  # type: ignore[attr-defined]


def test_control_calls_of_another_version_are_refused(remote: None) -> None:
    with closing(Server(LOCAL)) as server:
        address = server.target.removeprefix("grpc://")
        with closing(service.ControlClient(address, "it", ConnectionOptions(7))) as control:
            assert control.call(service.STATUS, messages.Empty(), 30).version == messages.VERSION
            with pytest.raises(errors.FailedPreconditionError, match=r"version 2 .* version 7"):
                control.call(service.REPORT, messages.Empty(), 30)


def test_a_pulse_of_another_version_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    lost: list[Any] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        peer_monitor.Watch().add(listener.getsockname(), "a task", lost.append)
        sock, _ = listener.accept()
        with sock:
            sock.sendall(probe_process.ANSWER.pack(9, 1, 2, False))
            wait_until(lambda: lost)
    assert "version 9" in lost[0].message


# ---------------------------------------------------------------------------- bounds


def test_rates() -> None:
    rate = Rate("things", 2.0, 3)
    for _ in range(3):
        rate.take(10.0)
    with pytest.raises(errors.ResourceExhaustedError, match="at most 3 in a burst"):
        rate.take(10.4)
    rate.take(10.6)


def test_threads_are_bounded() -> None:
    go_on = threading.Event()
    threads = WaitingThreads("bounded", limit=2)
    for _ in range(2):
        threads.submit(lambda: go_on.wait(60) and None)
    with pytest.raises(errors.ResourceExhaustedError, match="2 threads are already waiting"):
        threads.submit(go_on.wait)  # type: ignore[arg-type]
    go_on.set()


def test_who_has_not_said_hello_may_send_little() -> None:
    import struct

    served: list[Any] = []
    with closing(Listener("127.0.0.1", ConnectionOptions(1), 7, served.append)) as listener:
        address = ("127.0.0.1", listener.port)
        with socket.create_connection(address) as sock:
            sock.sendall(struct.pack("<BBHIQ", 1, 0, 0, 1 << 20, 1))
            assert sock.recv(100) == b""
        channel = dial(address, "it", ConnectionOptions(1), 7, 30)
        with pytest.raises(errors.OpError):
            ask(channel, HELLO + 1, b"x" * (1 << 20), (), 0.2)
        assert len(served) == 1
        channel.close()
        with pytest.raises(errors.PermissionDeniedError):
            Hello.unpack(b"short")


def test_every_path_of_a_vector_is_checked(tmp_path: Path, remote: None) -> None:
    """A forbidden path is rejected at any position, not only the first."""
    allowed, secret = tmp_path / "allowed", tmp_path / "secret"
    for folder in (allowed, secret):
        folder.mkdir()
        (folder / "file").write_text("a\n")
    good, bad = str(allowed / "file"), str(secret / "file")
    with closing(Server(LOCAL, file_roots=[str(allowed)])) as server:
        for paths in ([good, bad], [good, good, bad], [[good], [bad]]):
            with wf.Graph().as_default():
                if isinstance(paths[0], list):
                    dataset = wf.data.Dataset.from_tensor_slices(paths)
                    dataset = dataset.flat_map(wf.data.TextLineDataset)
                else:
                    dataset = wf.data.TextLineDataset(paths)
                following = wf.data.make_one_shot_iterator(dataset).get_next()
                refused = pytest.raises(
                    errors.PermissionDeniedError, match="other processes may access"
                )
                with wf.Session(server.target) as session, refused:
                    for _ in paths:
                        session.run(following)

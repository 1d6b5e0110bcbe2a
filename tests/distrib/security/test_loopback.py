"""Servers on loopback let in the processes of their own user, and no other user's."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from weft_testing.tasks import Process, jobs
from weft_testing.waiting import in_threads

import weft as wf
from weft import errors
from weft_distrib.client import target as client_target
from weft_distrib.protocol import messages
from weft_distrib.protocol.service import STATUS, ControlClient
from weft_distrib.security import loopback
from weft_distrib.security.credentials import VARIABLES
from weft_distrib.security.loopback import PublishedToken, find_published_token
from weft_distrib.server import Server, default_roots
from weft_distrib.wire.handshake import ConnectionOptions

LOCAL = {"worker": ["localhost:0"]}
TOKEN = b"0123456789abcdef"
NOBODY = 65534


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of tokens for the test; no credentials; sessions as from another process."""
    for variable in VARIABLES.values():
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv(loopback.DIRECTORY_VARIABLE, str(tmp_path / "tokens"))
    monkeypatch.setattr(client_target, "find_server", lambda target: None)
    return tmp_path / "tokens"


def run_one(target: str) -> Any:
    with wf.Graph().as_default():
        total = wf.placeholder_with_default(1.0, []) + 1.0
        with wf.Session(target) as session:
            return session.run(total)


def test_a_token_is_published_while_the_server_lives(directory: Path) -> None:
    with closing(Server(LOCAL)) as server:
        port = int(server.target.rpartition(":")[2])
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        files = list(directory.iterdir())
        assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
        token = find_published_token("localhost", port)
        assert len(token) == 64 and {path.read_bytes() for path in files} == {token}
        assert run_one(server.target) == 2.0
        with closing(Server(LOCAL)) as other:  # each has its own
            assert find_published_token("localhost", int(other.target.rpartition(":")[2])) != token
    assert find_published_token("localhost", port) == b"" and not list(directory.iterdir())


def test_without_the_token_nobody_gets_in(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(Server(LOCAL)) as server:
        monkeypatch.setenv(loopback.DIRECTORY_VARIABLE, "/nowhere")
        with pytest.raises(errors.UnauthenticatedError, match="of the same user find the token"):
            wf.Session(server.target)
        control = ControlClient(server.target.removeprefix("grpc://"), "it")
        with closing(control), pytest.raises(errors.UnauthenticatedError):
            control.call(STATUS, messages.Empty(), 30)


@pytest.mark.parametrize("told", [["--insecure"], []])
def test_insecure_asks_for_no_token(
    told: list[str], monkeypatch: pytest.MonkeyPatch, directory: Path
) -> None:
    cluster = jobs(worker=1)
    with ExitStack() as stack:
        if told:
            stack.enter_context(Process(cluster, "worker", 0, told))
        else:
            stack.enter_context(closing(Server(cluster, insecure=True)))
        assert not directory.exists()
        assert run_one(f"grpc://{cluster['worker'][0]}") == 2.0


def test_tasks_that_start_in_any_order_find_each_other() -> None:
    """The worker calls before the parameter server, and therefore its token, exists."""
    cluster = jobs(ps=1, worker=1)
    with wf.device("/job:ps/task:0"):
        total = wf.placeholder_with_default(1.0, []) + 1.0
    asked = threading.Event()
    with ExitStack() as stack:
        worker = stack.enter_context(closing(Server(cluster, "worker", 0)))
        status = worker._connections.status

        def ask(*arguments: Any) -> Any:
            asked.set()
            return status(*arguments)

        worker._connections.status = ask  # type: ignore[method-assign]

        def run() -> Any:
            with wf.Session(worker.target, graph=total.graph) as session:
                return session.run(total)

        with in_threads(run) as (session,):
            assert asked.wait(30)
            stack.enter_context(Process(cluster, "ps", 0))
        assert session.outcome == 2.0


def test_the_token_of_a_server_that_has_died_is_not_shown(directory: Path) -> None:
    cluster = jobs(worker=1)
    port = int(cluster["worker"][0].rpartition(":")[2])
    with Process(cluster, "worker", 0) as task:
        assert find_published_token("localhost", port)
        task.kill()
        assert len(list(directory.iterdir())) == 2  # it had no time to remove them
        assert find_published_token("localhost", port) == b""
        task.restart()
        assert len(list(directory.iterdir())) == 2
        assert find_published_token("localhost", port)


FORKING = """
import os, sys, time
from weft_distrib.server import Server

server = Server({"worker": ["localhost:0"]})
begun, begins = os.pipe()
child = os.fork()
if child == 0:
    os.write(begins, b"!")  # what runs in a forked child has run
    sys.stdin.read()  # lives until the test lets it go
    os._exit(0)
os.read(begun, 1)
print(server.target, child, flush=True)
time.sleep(600)
"""


def test_a_fork_does_not_keep_the_token_of_a_dead_server(directory: Path) -> None:
    command = [sys.executable, "-c", FORKING]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        target, child = server.stdout.readline().split()
        port = int(target.rpartition(b":")[2])
        assert find_published_token("localhost", port)
        server.kill()
        server.wait()
        os.kill(int(child), 0)  # the fork lives
        assert find_published_token("localhost", port) == b""


def entry(directory: Path, port: int) -> Path:
    (path,) = directory.glob(f"*-127.0.0.1-{port}")
    return path


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_files_that_others_can_touch_are_not_believed(directory: Path, mode: int) -> None:
    with closing(PublishedTokenOf(7)):
        entry(directory, 7).chmod(mode)
        assert find_published_token("localhost", 7) == b""
        entry(directory, 7).chmod(0o600)
        assert find_published_token("localhost", 7) == TOKEN


class PublishedTokenOf(PublishedToken):
    def __init__(self, port: int, host: str = "localhost") -> None:
        super().__init__(host, [port], TOKEN)

    close = PublishedToken.withdraw


def test_links_are_not_followed(directory: Path, tmp_path: Path) -> None:
    with closing(PublishedTokenOf(7)):
        path = entry(directory, 7)
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
        assert find_published_token("localhost", 7) == b""
    assert path.is_symlink()  # it is not this server's to remove


@pytest.mark.parametrize("kind", ["open", "link", "file"])
def test_a_directory_that_is_not_private_is_refused(
    directory: Path, tmp_path: Path, kind: str
) -> None:
    if kind == "open":
        directory.mkdir()
        directory.chmod(0o755)
    elif kind == "link":
        (tmp_path / "other").mkdir(mode=0o700)
        directory.symlink_to(tmp_path / "other")
    else:
        directory.touch()
    with pytest.raises(errors.PermissionDeniedError, match="mode 0700") as caught:
        Server(LOCAL)
    assert loopback.DIRECTORY_VARIABLE in caught.value.message
    with closing(Server(LOCAL, insecure=True)) as server:
        assert run_one(server.target) == 2.0


def test_the_directory_for_temporary_files_serves_users_without_a_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(loopback.DIRECTORY_VARIABLE)
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    (tmp_path / "file").touch()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with closing(PublishedTokenOf(7)):
        assert entry(tmp_path / f"weft-{os.geteuid()}", 7).read_bytes() == TOKEN
        assert find_published_token("127.0.0.1", 7) == TOKEN


def test_a_host_is_told_from_others() -> None:
    with closing(PublishedTokenOf(7, "::1")):
        assert find_published_token("::1", 7) == TOKEN
        assert find_published_token("localhost", 7) == find_published_token("example.org", 7) == b""
        assert find_published_token("::1", 8) == b""


def test_localhost_is_one_address() -> None:
    """Another user's program may listen on the other one, and would be shown the token."""
    with closing(Server(LOCAL)) as server:
        port = int(server.target.rpartition(":")[2])
        with closing(ConnectionOptions(1).connect(("localhost", port), "it", 30)) as sock:
            assert sock.getpeername() == ("127.0.0.1", port)


def test_an_own_token_is_shown_instead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("fedcba9876543210")
    with closing(Server(LOCAL)) as server:
        target = f"{server.target}?token={tmp_path}/token"
        with pytest.raises(errors.UnauthenticatedError, match="another one"):
            wf.Session(target)
    monkeypatch.setenv("WEFT_TOKEN", str(tmp_path / "token"))
    with closing(Server(LOCAL)) as server:
        assert find_published_token("localhost", int(server.target.rpartition(":")[2])) == b""
        assert run_one(server.target) == 2.0


def test_the_working_directory_is_not_among_the_roots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "work"
    place.mkdir()
    monkeypatch.chdir(place)
    monkeypatch.delenv("WEFT_FILE_ROOTS", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    assert default_roots() == [str(tmp_path / "temporary")]
    (place / "train.py").write_text("print()")
    with closing(Server(LOCAL)) as server, wf.Session(server.target) as session:
        for touch in wf.read_file(str(place / "train.py")), wf.write_file("train.py", "x"):
            with pytest.raises(errors.PermissionDeniedError, match="weft server --root"):
                session.run(touch)
    assert (place / "train.py").read_text() == "print()"


_AS_NOBODY = """
import json, os, sys
import weft as wf
from weft_distrib.client.target import ClusterBackend
from weft_distrib.protocol import messages
from weft_distrib.protocol.service import RESET, STATUS, ControlClient
from weft_distrib.wire.handshake import ConnectionOptions
from weft_distrib.wire.listener import dial

target, wire_port, incarnation, directory, user = sys.argv[1:]
address = target.removeprefix("grpc://")
"host".encode("idna")  # which another user may not be able to load
os.setgroups([])
os.setgid(int(user))
os.setuid(int(user))
outcomes = {}

def attempt(name, call):
    try:
        outcomes[name] = repr(call())
    except Exception as error:
        outcomes[name] = type(error).__name__

control = ControlClient(address, "it", ConnectionOptions(messages.VERSION))
attempt("session", lambda: wf.Session(target))
attempt("status", lambda: control.call(STATUS, messages.Empty(), 30))
attempt("reset", lambda: control.call(RESET, messages.Reset(True), 30))
to = ("localhost", int(wire_port))
attempt("socket", lambda: dial(to, "it", ConnectionOptions(messages.VERSION), int(incarnation), 30))
attempt("token", lambda: os.listdir(directory))
print(json.dumps(outcomes), flush=True)
os._exit(0)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_can_do_nothing(directory: Path, tmp_path: Path) -> None:
    """By default, with the server's port, incarnation and program known."""
    tmp_path.chmod(0o755)
    with closing(Server(LOCAL)) as server:
        told = [server.target, str(server._listener.port), str(server.incarnation)]
        done = subprocess.run(
            [sys.executable, "-c", _AS_NOBODY, *told, str(directory), str(NOBODY)],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        outcomes = json.loads(done.stdout)
        assert outcomes.pop("token") == "PermissionError"
        assert set(outcomes.values()) == {"UnauthenticatedError"}, outcomes
        assert not server.master.open_sessions
        assert run_one(server.target) == 2.0

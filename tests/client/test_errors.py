"""Failures of servers and credentials: each is a named error within its deadline."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from weft_testing.tasks import Process, free_ports, jobs

import weft as wf
from tests.client.conftest import NODE, Command, command, environment, run
from weft_distrib.protocol import messages
from weft_distrib.security.authority import Authority, credentials_in, make_certificates
from weft_distrib.security.credentials import VARIABLES
from weft_distrib.security.roles import Role

LANGUAGES = ("c", "cpp", "js")
TIMEOUT_MS = 400
GRACE_MS = 2000  # of the client half a second, and of a busy machine
EXPIRED_DAYS = -0.02
LARGE = "8388608\n"  # elements

in_each_language = pytest.mark.parametrize("language", LANGUAGES)


class Failure(NamedTuple):
    """Return a program's output for an error."""

    code: str
    node: str
    milliseconds: int
    message: str

    @classmethod
    def parse(cls, line: str) -> Failure:
        code, node, milliseconds, message = line.rstrip("\n").split("|", 3)
        return cls(code, node, int(milliseconds), message)


def without_credentials(files: dict[str, str] | None = None) -> dict[str, str]:
    """Variables that name these files, and no others."""
    none = dict.fromkeys(VARIABLES.values(), "")
    return none | {VARIABLES[key]: value for key, value in (files or {}).items()}


@pytest.fixture
def program(request: pytest.FixtureRequest, language: str) -> Command:
    return command(request, language, "lines")


def connect(
    program: Command, target: str, files: dict[str, str] | None = None, milliseconds: int = 5000
) -> str:
    return run(*program, "connect", target, str(milliseconds), env=without_credentials(files))


class Program:
    """A program that runs a step for each line that it is sent, or another one."""

    def __init__(self, program: Command, target: str, name: str = "lines") -> None:
        self._process = subprocess.Popen(
            [*program, name, target, str(TIMEOUT_MS)],
            env=os.environ | environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def begin(self, line: str) -> None:
        """Let it run a step as the line says."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def end(self) -> str:
        """Return the value or error that it prints."""
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def send(self, line: str) -> str:
        """Let it run a step, and return its output."""
        self.begin(line)
        return self.end()

    def fail(self, line: str) -> Failure:
        """Return the error that it prints."""
        return Failure.parse(self.send(line))

    def close(self) -> None:
        """End its input, after which it ends without an error, such as a leak."""
        self._process.communicate(timeout=60)
        assert self._process.returncode == 0


def responses(programs: Sequence[Program], line: str) -> set[str]:
    """Return the output of programs that run a step at the same time."""
    for program in programs:
        program.begin(line)
    return {program.end() for program in programs}


# ------------------------------------------------------------------------------ lost servers


@contextmanager
def process() -> Iterator[tuple[Process, str]]:
    """Start a server in a new process; return it with its value target."""
    (port,) = free_ports(1)
    with Process(jobs(local=1), "local", 0, ["--value-port", str(port)]) as server:
        yield server, f"weft://localhost:{port}"


def programs_of(request: pytest.FixtureRequest) -> list[Command]:
    """Return the programs of all languages; without Node those of the others."""
    available = LANGUAGES if NODE else LANGUAGES[:-1]
    return [command(request, language, "lines") for language in available]


def test_frozen_and_killed_servers(request: pytest.FixtureRequest) -> None:
    programs = programs_of(request)
    with process() as (server, target), ExitStack() as stack:
        lines = [stack.enter_context(closing(Program(program, target))) for program in programs]
        assert responses(lines, "run patient") == {"3\n"}
        assert responses(lines, "large patient") == {LARGE}
        # A step and a message that is cut while it is sent; then new nodes, and gradients.
        for frozen, value in (("run", "large"), "3\n"), (("grow", "gradients"), "4\n"):
            server.stop()
            for line in frozen:
                for failure in map(Failure.parse, responses(lines, line)):
                    assert failure.code == "DEADLINE_EXCEEDED", line
                    assert TIMEOUT_MS <= failure.milliseconds < TIMEOUT_MS + GRACE_MS
            server.go_on()
            # The connection and the session are as if nothing had happened.
            assert responses(lines, "run patient") == {value}
        assert responses(lines, "gradients patient") == {"4\n"}
        assert responses(lines, "grow patient") == {"5\n"}
        assert responses(lines, "second patient") == {"5\n"}
        assert responses(lines, "large patient") == {LARGE}
        server.kill()
        for _ in range(2):
            for killed in map(Failure.parse, responses(lines, "run")):
                assert killed.code == "UNAVAILABLE" and "connection" in killed.message
                assert killed.milliseconds < TIMEOUT_MS + GRACE_MS


def test_sessions_of_a_frozen_server_are_closed_in_time(build: Path) -> None:
    with process() as (server, target):
        with closing(Program([build / "lines_c"], target, "close")) as program:
            assert program.end() == "ready\n"
            server.stop()
            for failure in (program.fail("close"), Failure.parse(program.end())):
                assert failure.code == "CANCELLED" and failure.message == "the session was closed"
                # All five sessions together take as long as one.
                assert failure.milliseconds < TIMEOUT_MS + GRACE_MS
        server.go_on()


@in_each_language
def test_no_server(program: Command) -> None:
    (port,) = free_ports(1)
    failure = Failure.parse(connect(program, f"weft://localhost:{port}"))
    assert failure.code == "UNAVAILABLE" and f"localhost:{port}" in failure.message
    assert Failure.parse(connect(program, "grpc://localhost:1")).code == "INVALID_ARGUMENT"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        target = f"weft://localhost:{silent.getsockname()[1]}"
        failure = Failure.parse(connect(program, target, milliseconds=TIMEOUT_MS))
    assert failure.code == "DEADLINE_EXCEEDED" and target in failure.message
    assert TIMEOUT_MS <= failure.milliseconds < TIMEOUT_MS + GRACE_MS


# -------------------------------------------------------------------------------- refusals


@in_each_language
def test_a_wrong_token(program: Command, target: str, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef0123456789abcdef")
    failure = Failure.parse(connect(program, target, {"token": str(token)}))
    assert failure.code == "UNAUTHENTICATED" and "options of the client" in failure.message
    token.write_text("short")
    assert Failure.parse(connect(program, target, {"token": str(token)})).code == "INVALID_ARGUMENT"
    missing = {"token": str(tmp_path / "nothing")}
    assert Failure.parse(connect(program, target, missing)).code == "NOT_FOUND"


@in_each_language
def test_a_wrong_version(program: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "VERSION", messages.VERSION + 1)
    with closing(wf.train.Server.create_local_server()) as server:
        failure = Failure.parse(connect(program, server.value_target))
    assert failure.code == "FAILED_PRECONDITION" and "version 3" in failure.message


def files_of(folder: Path, name: str) -> dict[str, str]:
    return {
        "certificate": f"{folder}/{name}.crt",
        "key": f"{folder}/{name}.key",
        "authority": f"{folder}/authority.crt",
        "token": f"{folder}/client.token",
    }


@in_each_language
def test_certificates(program: Command, tmp_path: Path) -> None:
    make_certificates(tmp_path, {"worker-0": "localhost"})
    make_certificates(tmp_path / "other", {"worker-0": "localhost"})
    Authority(tmp_path, 1).issue("expired", ["localhost"], Role.CLIENT, EXPIRED_DAYS)
    Authority(tmp_path, 1).issue("elsewhere", ["example.org"], Role.PEER, 1)
    credentials = credentials_in(tmp_path, "worker-0")
    with closing(wf.train.Server(jobs(worker=1), credentials=credentials)) as server:
        target = server.value_target
        assert connect(program, target, files_of(tmp_path, "client")).startswith("/job:worker")
        expired = Failure.parse(connect(program, target, files_of(tmp_path, "expired")))
        assert expired.code == "UNAUTHENTICATED" and "it has expired" in expired.message
        strange = Failure.parse(connect(program, target, files_of(tmp_path / "other", "client")))
        assert strange.code == "UNAUTHENTICATED" and "certificate" in strange.message
        plain = Failure.parse(connect(program, target))
        assert plain.code in ("UNAVAILABLE", "UNAUTHENTICATED")
        partial = {"certificate": f"{tmp_path}/client.crt"}
        assert Failure.parse(connect(program, target, partial)).code == "INVALID_ARGUMENT"
    credentials = credentials_in(tmp_path, "elsewhere")
    with closing(wf.train.Server(jobs(worker=1), credentials=credentials)) as server:
        failure = Failure.parse(connect(program, server.value_target, files_of(tmp_path, "client")))
    assert failure.code == "UNAUTHENTICATED" and "match" in failure.message
    with closing(wf.train.Server.create_local_server()) as server:
        failure = Failure.parse(connect(program, server.value_target, files_of(tmp_path, "client")))
    assert failure.code in ("UNAUTHENTICATED", "UNAVAILABLE")


# ------------------------------------------------------------------------------ wrong graphs


@in_each_language
def test_wrong_graphs(program: Command, target: str) -> None:
    expected = (
        ("oversized", "RESOURCE_EXHAUSTED", "", "tensor"),
        ("unknown op", "NOT_FOUND", "bad", "Nonsense"),
    )
    with closing(Program(program, target)) as lines:
        assert lines.send("run patient") == "3\n"
        for line, code, node, words in expected:
            failure = lines.fail(line)
            assert failure.code == code and failure.node == node and words in failure.message
        assert lines.fail("run").node == "bad"  # the session repeats the error
    with closing(Program(program, target)) as lines:
        failure = lines.fail("unknown input")
        assert (failure.code, failure.node) == ("NOT_FOUND", "bad")
        assert "nowhere" in failure.message
    with closing(Program(program, target)) as lines:
        failure = lines.fail("wrong type")
        assert (failure.code, failure.node) == ("INVALID_ARGUMENT", "product")

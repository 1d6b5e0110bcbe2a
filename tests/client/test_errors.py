"""Failures of servers and credentials: each is a named error within its deadline."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from weft_testing.tasks import Process, free_ports, jobs

import weft as wf
from tests.client.conftest import environment, run
from weft_distrib.protocol import messages
from weft_distrib.security.authority import Authority, credentials_in, make_certificates
from weft_distrib.security.credentials import VARIABLES
from weft_distrib.security.roles import Role

TIMEOUT_MS = 1000
GRACE_MS = 1500  # of the client half a second, and of a busy machine
EXPIRED_DAYS = -0.02


class Failure(NamedTuple):
    """What a program prints of an error."""

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


def connect(build: Path, target: str, files: dict[str, str] | None = None) -> str:
    return run(build / "suite", "connect", target, "5000", env=without_credentials(files))


class Program:
    """A program that runs a step for each line that it is sent."""

    def __init__(self, command: Sequence[str | Path], target: str) -> None:
        self._process = subprocess.Popen(
            [*command, "lines", target, str(TIMEOUT_MS)],
            env=os.environ | environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def send(self, line: str = "run") -> str:
        """What it prints of the step."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


# ------------------------------------------------------------------------------ lost servers


@contextmanager
def process() -> Iterator[tuple[Process, str]]:
    """A server in a process of its own, and its value target."""
    (port,) = free_ports(1)
    with Process(jobs(local=1), "local", 0, ["--value-port", str(port)]) as server:
        yield server, f"weft://localhost:{port}"


def test_frozen_and_killed_servers(build: Path) -> None:
    with process() as (server, target), closing(Program([build / "suite"], target)) as program:
        assert program.send("patient") == "3\n"
        server.stop()
        frozen = Failure.parse(program.send())
        server.go_on()
        assert frozen.code == "DEADLINE_EXCEEDED"
        assert TIMEOUT_MS <= frozen.milliseconds < TIMEOUT_MS + GRACE_MS
        assert program.send("patient") == "3\n"
        server.kill()
        killed = [Failure.parse(program.send()) for _ in range(2)]
    assert {failure.code for failure in killed} == {"UNAVAILABLE"}
    assert all(failure.milliseconds < TIMEOUT_MS + GRACE_MS for failure in killed)
    assert "connection" in killed[0].message


def test_no_server(build: Path) -> None:
    (port,) = free_ports(1)
    failure = Failure.parse(connect(build, f"weft://localhost:{port}"))
    assert failure.code == "UNAVAILABLE" and f"localhost:{port}" in failure.message
    assert Failure.parse(connect(build, "grpc://localhost:1")).code == "INVALID_ARGUMENT"


# -------------------------------------------------------------------------------- refusals


def test_a_wrong_token(build: Path, target: str, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef0123456789abcdef")
    failure = Failure.parse(connect(build, target, {"token": str(token)}))
    assert failure.code == "UNAUTHENTICATED" and "token" in failure.message
    token.write_text("short")
    assert Failure.parse(connect(build, target, {"token": str(token)})).code == "INVALID_ARGUMENT"
    missing = {"token": str(tmp_path / "nothing")}
    assert Failure.parse(connect(build, target, missing)).code == "NOT_FOUND"


def test_a_wrong_version(build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "VERSION", messages.VERSION + 1)
    with closing(wf.train.Server.create_local_server()) as server:
        failure = Failure.parse(connect(build, server.value_target))
    assert failure.code == "FAILED_PRECONDITION" and "version 3" in failure.message


def files_of(folder: Path, name: str) -> dict[str, str]:
    return {
        "certificate": f"{folder}/{name}.crt",
        "key": f"{folder}/{name}.key",
        "authority": f"{folder}/authority.crt",
        "token": f"{folder}/client.token",
    }


def test_certificates(build: Path, tmp_path: Path) -> None:
    make_certificates(tmp_path, {"worker-0": "localhost"})
    make_certificates(tmp_path / "other", {"worker-0": "localhost"})
    Authority(tmp_path, 1).issue("expired", ["localhost"], Role.CLIENT, EXPIRED_DAYS)
    Authority(tmp_path, 1).issue("elsewhere", ["example.org"], Role.PEER, 1)
    credentials = credentials_in(tmp_path, "worker-0")
    with closing(wf.train.Server(jobs(worker=1), credentials=credentials)) as server:
        target = server.value_target
        assert connect(build, target, files_of(tmp_path, "client")).startswith("/job:worker")
        expired = Failure.parse(connect(build, target, files_of(tmp_path, "expired")))
        assert expired.code == "UNAUTHENTICATED" and "it has expired" in expired.message
        strange = Failure.parse(connect(build, target, files_of(tmp_path / "other", "client")))
        assert strange.code == "UNAUTHENTICATED" and "certificate" in strange.message
        plain = Failure.parse(connect(build, target))
        assert plain.code in ("UNAVAILABLE", "UNAUTHENTICATED")
        partial = {"certificate": f"{tmp_path}/client.crt"}
        assert Failure.parse(connect(build, target, partial)).code == "INVALID_ARGUMENT"
    credentials = credentials_in(tmp_path, "elsewhere")
    with closing(wf.train.Server(jobs(worker=1), credentials=credentials)) as server:
        failure = Failure.parse(connect(build, server.value_target, files_of(tmp_path, "client")))
    assert failure.code == "UNAUTHENTICATED" and "mismatch" in failure.message
    with closing(wf.train.Server.create_local_server()) as server:
        failure = Failure.parse(connect(build, server.value_target, files_of(tmp_path, "client")))
    assert failure.code in ("UNAUTHENTICATED", "UNAVAILABLE")


# ------------------------------------------------------------------------------ wrong graphs


@pytest.mark.parametrize(
    ("line", "code", "node", "words"),
    [
        ("unknown op", "NOT_FOUND", "bad", "Nonsense"),
        ("wrong type", "INVALID_ARGUMENT", "product", "must be float32"),
        ("oversized", "RESOURCE_EXHAUSTED", "", "2^63 bytes"),
    ],
)
def test_wrong_graphs(
    build: Path, target: str, line: str, code: str, node: str, words: str
) -> None:
    with closing(Program([build / "suite"], target)) as program:
        assert program.send("patient") == "3\n"
        failure = Failure.parse(program.send(line))
        assert failure.code == code and failure.node == node and words in failure.message
        if node:  # the session repeats the error
            assert Failure.parse(program.send()).node == node

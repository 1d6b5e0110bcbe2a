"""The front end for Node: the same programs as in C++, and their errors."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from weft_testing.loading import load
from weft_testing.tasks import free_ports, jobs, servers
from weft_testing.workspace import ROOT

import weft as wf
from tests.client.conftest import PROGRAMS, run
from tests.client.test_cpp import write_tensor
from tests.client.test_errors import (
    GRACE_MS,
    TIMEOUT_MS,
    Failure,
    Program,
    files_of,
    process,
    without_credentials,
)
from weft_distrib.protocol import messages
from weft_distrib.security.authority import Authority, credentials_in, make_certificates
from weft_distrib.security.roles import Role

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")

NODE = Path(shutil.which("node") or "node")
SUITE = PROGRAMS / "suite.mjs"
EXPIRED_DAYS = -0.02


def node(*arguments: str | Path, env: dict[str, str] | None = None) -> str:
    return run(NODE, SUITE, *arguments, env=env)


def connect(target: str, files: dict[str, str] | None = None) -> str:
    return node("connect", target, "5000", env=without_credentials(files))


def test_values(target: str) -> None:
    assert node("values", target) == "complete\n"


def test_digits_are_learned_by_two_tasks(tmp_path: Path) -> None:
    training, held_out = load(ROOT / "examples" / "digits" / "digits.py").load()
    with (tmp_path / "digits").open("wb") as file:
        for array in (*training, *held_out):
            write_tensor(file, array)
    with servers(jobs(ps=1, worker=1)) as (_, worker):
        said = node("train", worker.value_target, tmp_path / "digits", tmp_path)
    trained, forgotten, restored, total = map(float, said.split())
    assert trained >= 0.98 and forgotten < 0.5 and restored == trained
    with wf.Graph().as_default(), wf.Session() as session:
        drawn = wf.raw_ops.TruncatedNormal(shape=[3, 3, 1, 32], dtype=wf.float32, seed=1, seed2=7)
        filters = session.run(drawn * np.float32(0.3))
    assert total == pytest.approx(float(filters.astype(np.float64).sum()), rel=1e-6)


def test_functions_are_shared_with_python(target: str, tmp_path: Path) -> None:
    with wf.Graph().as_default() as graph:

        @wf.Defun(wf.float32, wf.float32, func_name="Decay")
        def decay(x: Any, rate: Any) -> Any:
            return x * wf.exp(-rate * x)

        decay.add_to_graph(graph)
        (tmp_path / "theirs").write_bytes(graph.as_graph_def().SerializeToString())
    said = node("functions", target, tmp_path / "theirs", tmp_path / "own")
    assert said.split()[1:] == ["1", "384"]
    with wf.Graph().as_default(), wf.Session() as session:
        definition = wf.GraphDef.FromString((tmp_path / "own").read_bytes())
        wf.import_graph_def(definition, name="")
        length, unit = session.run(wf.call_function("Normalize", [[3.0, 4.0]]))
        assert length == 5.0 and unit.tolist() == [0.6, 0.8]


def lines_of(target: str) -> Program:
    return Program([NODE, SUITE], target)


def test_frozen_and_killed_servers() -> None:
    with process() as (server, target), closing(lines_of(target)) as program:
        assert program.send("patient") == "3\n"
        server.stop()
        frozen = Failure.parse(program.send())
        server.go_on()
        assert frozen.code == "DEADLINE_EXCEEDED"
        assert TIMEOUT_MS <= frozen.milliseconds < TIMEOUT_MS + GRACE_MS
        server.kill()
        killed = [Failure.parse(program.send()) for _ in range(2)]
    assert {failure.code for failure in killed} == {"UNAVAILABLE"}


def test_wrong_graphs(target: str) -> None:
    expected: Sequence[tuple[str, str, str]] = (
        ("oversized", "RESOURCE_EXHAUSTED", ""),
        ("unknown op", "NOT_FOUND", "bad"),
    )
    with closing(lines_of(target)) as program:
        for line, code, name in expected:
            failure = Failure.parse(program.send(line))
            assert (failure.code, failure.node) == (code, name)
    with closing(lines_of(target)) as program:
        failure = Failure.parse(program.send("wrong type"))
        assert (failure.code, failure.node) == ("INVALID_ARGUMENT", "product")


def test_refusals(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef0123456789abcdef")
    assert Failure.parse(connect(target, {"token": str(token)})).code == "UNAUTHENTICATED"
    (port,) = free_ports(1)
    assert Failure.parse(connect(f"weft://localhost:{port}")).code == "UNAVAILABLE"
    make_certificates(tmp_path, {"worker-0": "localhost"})
    Authority(tmp_path, 1).issue("expired", ["localhost"], Role.CLIENT, EXPIRED_DAYS)
    credentials = credentials_in(tmp_path, "worker-0")
    with closing(wf.train.Server(jobs(worker=1), credentials=credentials)) as server:
        secure = server.value_target
        assert connect(secure, files_of(tmp_path, "client")).startswith("/job:worker")
        expired = Failure.parse(connect(secure, files_of(tmp_path, "expired")))
    assert expired.code == "UNAUTHENTICATED" and "it has expired" in expired.message
    monkeypatch.setattr(messages, "VERSION", messages.VERSION + 1)
    with closing(wf.train.Server.create_local_server()) as server:
        version = Failure.parse(connect(server.value_target))
    assert version.code == "FAILED_PRECONDITION" and "version 3" in version.message

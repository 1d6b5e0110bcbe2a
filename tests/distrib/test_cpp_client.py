"""A client in C++ speaks the protocol: it builds Figure 1's graph and runs it on a server."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from weft_testing.waiting import wait_until

import weft as wf
from weft_distrib.security.authority import credentials_in, make_certificates
from weft_distrib.security.credentials import VARIABLES

SOURCES = Path(__file__).parents[2] / "examples" / "cpp"
TOOLS = ("cmake", "g++", "flatc", "pkg-config")


def missing() -> str:
    absent = [tool for tool in TOOLS if shutil.which(tool) is None]
    if absent:
        return f"{', '.join(absent)} not installed"
    libraries = ["grpc++", "openssl"]
    has = subprocess.run(["pkg-config", "--exists", *libraries], check=False).returncode == 0
    return "" if has else "libgrpc++-dev or libssl-dev is not installed"


pytestmark = [
    pytest.mark.long,  # compiling takes 20 s
    pytest.mark.skipif(bool(missing()), reason=missing() or "all is there"),
]


@pytest.fixture(scope="module")
def figure1(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    build = tmp_path_factory.mktemp("cpp")
    configure = ["cmake", "-S", str(SOURCES), "-B", str(build)]
    for command in (configure, ["cmake", "--build", str(build)]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    yield build / "figure1"


def run(
    figure1: Path, server: wf.train.Server, shown: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [figure1, "localhost", server.target.rpartition(":")[2]],
        env=os.environ | shown,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.timeout(600)
def test_figure_1_runs_on_a_server(figure1: Path) -> None:
    with closing(wf.train.Server.create_local_server()) as server:
        done = run(figure1, server, {})
        assert done.returncode == 0, done.stdout + done.stderr
        assert "10 steps on /job:local" in done.stdout and "are right" in done.stdout
        assert "an unknown name is refused" in done.stdout and "'nothing'" in done.stdout
        wait_until(lambda: not server.master.open_sessions)


@pytest.mark.timeout(600)
def test_figure_1_runs_over_tls(figure1: Path, tmp_path: Path) -> None:
    make_certificates(tmp_path, {"worker-0": "localhost"})
    credentials = credentials_in(tmp_path, "worker-0")
    shown = dict(zip(VARIABLES.values(), credentials_in(tmp_path, "client").paths, strict=True))
    cluster = {"worker": ["localhost:0"]}
    with closing(wf.train.Server(cluster, "worker", 0, credentials=credentials)) as server:
        done = run(figure1, server, shown)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "10 steps on /job:worker" in done.stdout and "are right" in done.stdout
        done = run(figure1, server, shown | {"WEFT_TOKEN": ""})
        assert done.returncode == 1 and "requires a token" in done.stderr

"""Servers that programs start for themselves end with them, however they end."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from weft_testing.waiting import wait_until

from tests.client.conftest import PROGRAMS, command


@pytest.mark.parametrize("language", ["cpp", "js"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_server_ends_with_its_program(
    request: pytest.FixtureRequest,
    language: str,
    number: signal.Signals,
    target: str,
    tmp_path: Path,
) -> None:
    server = {"WEFT_COMMAND": str(PROGRAMS / "server.sh"), "WEFT_TARGET": target}
    ended = tmp_path / "ended"
    process = subprocess.Popen(
        [*command(request, language, "lines"), "launch"],
        env=os.environ | server | {"WEFT_ENDED": str(ended)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "launched\n"
        assert not ended.exists()
        process.send_signal(number)
        assert process.wait(30) == -number
        wait_until(lambda: ended.exists() and ended.read_text())
    finally:
        process.kill()
        process.communicate()
    assert ended.read_text() == "server --stop-at-eof\n"

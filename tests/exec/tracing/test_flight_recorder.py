"""The flight recorder, and recordings that the environment requests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from weft_testing.waiting import wait_until

import weft as wf
from weft_exec.tracing import consumers, flight_recorder
from weft_exec.tracing.environment import parse_flight
from weft_exec.tracing.flight_recorder import FlightRecorder
from weft_tensor import errors
from weft_trace import Flag, Kind


@pytest.fixture(autouse=True)
def graph() -> Iterator[wf.Graph]:
    with wf.Graph().as_default() as graph:
        yield graph


def num_steps(path: Path) -> int:
    events = wf.trace.load(path).events
    return int((events["kind"] == Kind.STEP).sum())


def test_a_failed_step_writes_the_steps_before_it(tmp_path: Path) -> None:
    x = wf.placeholder(wf.int32, [])
    y = wf.floordiv(1, x)
    with FlightRecorder(tmp_path / "run.weft-trace"), wf.Session() as session:
        session.run(y, {x: 1})
        with pytest.raises(wf.errors.InvalidArgumentError):
            session.run(y, {x: 0})
        wait_until(lambda: (tmp_path / "run-1.weft-trace").exists())
    assert not consumers.is_active()
    events = wf.trace.load(tmp_path / "run-1.weft-trace").events
    steps = events[events["kind"] == Kind.STEP]
    assert [bool(step["flags"] & Flag.FAILED) for step in steps] == [False, True]


def test_a_slow_step_and_a_signal_write_files(tmp_path: Path) -> None:
    y = wf.random_uniform([3])
    with wf.Session() as session:
        session.run(y)
        with FlightRecorder(tmp_path / "run.weft-trace", slow_seconds=1e-9) as recorder:
            session.run(y)
            wait_until(lambda: (tmp_path / "run-1.weft-trace").exists())
            with recorder._writing:  # until the first file is complete
                pass
            os.kill(os.getpid(), signal.SIGUSR2)
            wait_until(lambda: (tmp_path / "run-2.weft-trace").exists())
    assert num_steps(tmp_path / "run-1.weft-trace") == 1
    assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL


def test_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flight_recorder, "MAX_READINGS", 20)
    y = wf.negative(wf.random_uniform([3]))
    with FlightRecorder(tmp_path / "run") as recorder, wf.Session() as session:
        for _ in range(30):
            session.run(y)
        assert sum(item.num_readings for item in recorder._ring) <= 20
        assert 0 < num_steps(recorder.write("test")) < 30


def test_numbers_must_be_positive(tmp_path: Path) -> None:
    for seconds, slow in ((0.0, None), (1.0, -1.0)):
        with pytest.raises(errors.InvalidArgumentError, match="positive"):
            FlightRecorder(tmp_path / "run", seconds, slow)


def test_settings_of_the_environment() -> None:
    assert parse_flight("run.weft-trace") == ("run.weft-trace", 10.0, None)
    assert parse_flight("run,seconds=3,slow=0.5") == ("run", 3.0, 0.5)
    for setting in ("run,fast=1", "run,slow=x"):
        with pytest.raises(errors.InvalidArgumentError, match="WEFT_FLIGHT_RECORDER"):
            parse_flight(setting)


def test_the_environment_requests_a_trace(tmp_path: Path) -> None:
    code = "import weft as wf; s = wf.Session(); s.run(wf.random_uniform([3]))"
    environment = os.environ | {
        "WEFT_TRACE": str(tmp_path / "%p.weft-trace"),
        "WEFT_FLIGHT_RECORDER": str(tmp_path / "flight"),
    }
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    (path,) = tmp_path.glob("*.weft-trace")
    assert path.stem.isdecimal() and num_steps(path) == 1


def test_the_config_requests_recordings_of_a_session(tmp_path: Path) -> None:
    config = wf.ConfigProto()
    config.experimental.trace_file = str(tmp_path / "all-%p.weft-trace")
    flight_options = config.experimental.flight_recorder
    flight_options.path = str(tmp_path / "last.weft-trace")
    flight_options.slow_seconds = 1e-9
    y = wf.random_uniform([3])
    with wf.Session(config=config) as session:
        session.run(y)
        with wf.Session() as other:
            other.run(y)
        wait_until(lambda: (tmp_path / "last-1.weft-trace").exists())
    assert not consumers.is_active()
    assert num_steps(tmp_path / f"all-{os.getpid()}.weft-trace") == 2
    assert num_steps(tmp_path / "last-1.weft-trace") >= 1
    session.close()
    with wf.Session() as session:
        session.run(y)
    assert num_steps(tmp_path / f"all-{os.getpid()}.weft-trace") == 2


def test_invalid_options_of_a_config_start_nothing(tmp_path: Path) -> None:
    config = wf.ConfigProto()
    config.experimental.flight_recorder.seconds = 3.0
    with pytest.raises(errors.InvalidArgumentError, match="must have a path"):
        wf.Session(config=config)
    config.experimental.flight_recorder.path = str(tmp_path / "flight")
    config.experimental.flight_recorder.seconds = -3.0
    with pytest.raises(errors.InvalidArgumentError, match="positive"):
        wf.Session(config=config)
    config.experimental.flight_recorder.seconds = 3.0
    config.experimental.trace_file = str(tmp_path / "missing" / "t")
    with pytest.raises(OSError, match="missing"):
        wf.Session(config=config)
    assert not consumers.is_active()

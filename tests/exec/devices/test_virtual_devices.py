"""One processor as several devices, each with a limit of its memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft import errors

experimental = wf.config.experimental
CPU = experimental.list_physical_devices("CPU")[0]
MEGABYTE = 1 << 20


@pytest.fixture(autouse=True)
def whole_again() -> Iterator[None]:
    with wf.Graph().as_default():
        yield
    experimental.set_virtual_device_configuration(CPU, None)


def split(*limits: int | None) -> None:
    made = [experimental.VirtualDeviceConfiguration(memory_limit=limit) for limit in limits]
    experimental.set_virtual_device_configuration(CPU, made)


def test_what_there_is() -> None:
    assert experimental.list_physical_devices() == [CPU]
    assert experimental.list_physical_devices("GPU") == []
    assert experimental.get_virtual_device_configuration(CPU) is None
    split(None, 7)
    found = experimental.get_virtual_device_configuration(CPU)
    assert found is not None and [each.memory_limit for each in found] == [None, 7]


def test_sessions_have_the_devices() -> None:
    split(None, 8)
    with wf.Session() as session:
        limits = [device.memory_limit_bytes for device in session.list_devices()]
    assert limits == [0, 8 * MEGABYTE]
    with wf.Session(config=wf.ConfigProto(device_count={"CPU": 3})) as session:
        limits = [device.memory_limit_bytes for device in session.list_devices()]
    assert limits == [0, 8 * MEGABYTE, 0]


def test_a_limit_is_kept_and_says_what_it_was() -> None:
    split(None, 8)
    x = wf.placeholder(wf.float32, [MEGABYTE])
    with wf.device("/cpu:1"):
        small = wf.sin(x)
        large = wf.tanh(wf.tile(x, [3]), name="large")
    value = np.zeros(MEGABYTE, np.float32)
    with wf.Session() as session:
        used = session.list_devices()[1]
        with pytest.raises(errors.ResourceExhaustedError, match=r"CPU:1(?s:.)*device:CPU:1"):
            session.run(large, {x: value})
        assert (session.run(small, {x: value}) == 0).all()
        assert used.statistics.bytes_in_use == 0
        assert 4 * MEGABYTE <= used.statistics.peak_bytes_in_use <= 8 * MEGABYTE


def test_variables_are_spread_by_the_limits() -> None:
    split(5, 5)
    for i in range(2):
        wf.get_variable(f"v{i}", [MEGABYTE])
    with wf.Session() as session:
        report = session.explain(wf.global_variables_initializer())
        assert sorted(report.placement[f"v{i}"].device[-5:] for i in range(2)) == ["CPU:0", "CPU:1"]
    wf.get_variable("v2", [MEGABYTE])
    match = "more than any device has free"
    with wf.Session() as session, pytest.raises(errors.ResourceExhaustedError, match=match):
        session.run(wf.global_variables_initializer())


def test_bad_configurations() -> None:
    wrong: Any
    for wrong in (0, 1.5, "6", float("nan")):
        with pytest.raises(errors.InvalidArgumentError, match="whole number of megabytes"):
            split(wrong)
    gpu = type(CPU)("/physical_device:GPU:0", "GPU")
    with pytest.raises(
        errors.InvalidArgumentError, match="only /physical_device:CPU:0 can be split"
    ):
        experimental.get_virtual_device_configuration(gpu)

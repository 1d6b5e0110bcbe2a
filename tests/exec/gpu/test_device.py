"""GPUs as devices through the stand-in: discovery, memory and synchronization."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
from cupy_standin import Machine, RaceError, installed
from weft_testing.waiting import in_threads

import weft as wf
from weft import errors
from weft_exec.config import GpuOptions, SessionConfig
from weft_exec.devices.description import link_between
from weft_exec.devices.device import make_devices
from weft_exec.gpu import discovery, residency
from weft_exec.gpu.session_device import GpuDevice
from weft_exec.resources.resources import ResourceManager
from weft_exec.settings import settings

MEGABYTES = 1 << 20
GROWING = GpuOptions(allow_growth=True)


def devices(**options: Any) -> list[Any]:
    return make_devices(ResourceManager(), SessionConfig(**options))


def gpus(**options: Any) -> list[GpuDevice]:
    options.setdefault("gpu", GROWING)
    return [device for device in devices(**options) if isinstance(device, GpuDevice)]


def growing(**options: Any) -> wf.ConfigProto:
    proto = wf.ConfigProto(**options)
    proto.gpu_options.allow_growth = True
    return proto


# --------------------------------------------------------------------------- which there are


def test_importing_weft_and_sessions_without_cupy_load_nothing_of_it() -> None:
    code = (
        "import sys, weft as wf\n"
        "wf.Session().list_devices()\n"
        "print([m for m in sys.modules if m.startswith(('cupy', 'weft_exec.gpu.kernels',"
        " 'weft_exec.gpu.hardware', 'weft_exec.gpu.session_device'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    found = done.stdout.strip()
    assert found in ("[]", "['weft_exec.gpu.hardware']"), found


@pytest.mark.gpus(3)
def test_a_session_has_all_gpus_unless_it_asks_for_fewer(machine: Machine) -> None:
    with wf.Session(config=growing()) as session:
        found = session.list_devices()
    assert [device.name[-5:] for device in found] == ["CPU:0", "GPU:0", "GPU:1", "GPU:2"]
    assert [len(gpus(device_count={"GPU": n})) for n in (0, 1, 2, 9)] == [0, 1, 2, 3]
    with pytest.raises(errors.InvalidArgumentError, match="device_count of GPU"):
        devices(device_count={"GPU": -1})


@pytest.mark.gpus(3)
def test_gpus_of_the_machine_and_what_sessions_see(machine: Machine) -> None:
    experimental = wf.config.experimental
    there = wf.config.list_physical_devices("GPU")
    assert [each.name[-5:] for each in there] == ["GPU:0", "GPU:1", "GPU:2"]
    known = {"device_name": "Stand-in", "compute_capability": (8, 0)}
    assert experimental.get_device_details(there[1]) == known
    try:
        experimental.set_memory_growth(there[2], True)
        assert [experimental.get_memory_growth(each) for each in there] == [False, False, True]
        wf.config.set_visible_devices(there[2], "GPU")
        assert wf.config.get_visible_devices("GPU") == [there[2]]
        assert [each.name for each in wf.config.list_logical_devices("GPU")] == ["/device:GPU:0"]
        assert experimental.get_memory_info("GPU:0") == {"current": 0, "peak": 0}
        (only,) = gpus(gpu=GpuOptions())
        assert only.hardware.index == 2 and not only.allocator.statistics().bytes_reserved
        assert len(gpus(gpu=GpuOptions(visible_device_list="0,1", allow_growth=True))) == 2
        kept = only.empty((MEGABYTES,), np.float32)
        assert experimental.get_memory_info("GPU:0")["peak"] >= kept.nbytes
        del kept
        experimental.reset_memory_stats("GPU:0")
        assert experimental.get_memory_info("GPU:0")["peak"] < 4 * MEGABYTES
        with pytest.raises(errors.FailedPreconditionError, match="already in use by a session"):
            experimental.set_memory_growth(there[2], False)
        wf.config.set_visible_devices([], "GPU")
        assert not gpus() and not wf.config.list_logical_devices("GPU")
    finally:
        settings.visible, settings.memory_growth = {}, {}


@pytest.mark.gpus(3)
def test_the_list_of_visible_gpus_is_an_order(machine: Machine) -> None:
    chosen = gpus(gpu=GpuOptions(visible_device_list="2,0", allow_growth=True))
    assert [(device.name[-5:], device.hardware.index) for device in chosen] == [
        ("GPU:0", 2),
        ("GPU:1", 0),
    ]
    for wrong in ("3", "0,0", "-1", "a", "0,"):
        with pytest.raises(errors.InvalidArgumentError, match="visible_device_list"):
            gpus(gpu=GpuOptions(visible_device_list=wrong))


def test_properties_performance_and_links(machine: Machine) -> None:
    (device,) = gpus()
    cpu = devices()[0]
    assert device.properties.name == "Stand-in"
    assert device.description == "Stand-in, compute capability 8.0, 1024 MiB"
    speed = device.describe().performance
    assert speed.flops == pytest.approx(2 * 100 * 64 * 1.5e9 * 0.6)
    assert speed.bandwidth == pytest.approx(2 * 1e9 * 640 * 0.6)
    own, host = device.describe([cpu, device]), cpu.describe([cpu, device])
    assert link_between(host, own) == link_between(own, host)
    assert link_between(own, host).bandwidth > 1e10


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (Machine(0), "CuPy finds no GPU"),
        (
            Machine(fault="cudaErrorInsufficientDriver"),
            "cudaErrorInsufficientDriver (CuPy is built for CUDA 12.9, the driver supports up to "
            "12.2)",
        ),
    ],
    ids=["none", "old driver"],
)
def test_it_is_said_once_why_there_are_none(
    found: Machine, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "weft"), installed(found):
        assert gpus() == gpus() == []
    assert [said in record.getMessage() for record in caplog.records] == [True]


# --------------------------------------------------------------------------------- memory


def test_memory_is_limited_as_asked_by_the_first_session(machine: Machine) -> None:
    (device,) = gpus(gpu=GpuOptions(memory_fraction=0.25))
    assert device.memory_limit == machine.memory // 4
    assert device.allocator.statistics().bytes_reserved == machine.memory // 4
    (later,) = gpus(gpu=GpuOptions(memory_fraction=0.5))
    assert later.hardware is device.hardware and later.memory_limit == device.memory_limit
    with pytest.raises(errors.InvalidArgumentError, match="per_process_gpu_memory_fraction"):
        SessionConfig(gpu=GpuOptions(memory_fraction=1.5))


def test_memory_grows_where_that_is_allowed(machine: Machine) -> None:
    (device,) = gpus()
    assert device.allocator.statistics().bytes_reserved == 0
    assert 0.5 * machine.memory < device.memory_limit < machine.memory
    value = device.from_host(np.ones(MEGABYTES // 4, np.float32))
    stats = device.allocator.statistics()
    assert stats.bytes_in_use >= MEGABYTES and stats.largest_alloc == MEGABYTES
    peak = stats.peak_bytes_in_use
    del value
    device.from_host(np.ones(3, np.float32))  # lets go of what the copy before it used
    assert device.allocator.statistics().bytes_in_use < MEGABYTES
    assert device.allocator.statistics().peak_bytes_in_use == peak
    assert device.allocator.trim() > 0


def test_what_does_not_fit_is_an_error_that_says_where(machine: Machine) -> None:
    proto = growing()
    proto.gpu_options.per_process_gpu_memory_fraction = 16 * MEGABYTES / machine.memory
    with wf.Graph().as_default(), wf.device("/gpu:0"):
        x = wf.placeholder(wf.float32, [None])
        y = wf.tile(x * 2.0, [64], name="too_large")
        with wf.Session(config=proto) as session:
            assert session.run(y, {x: np.ones(4)}).shape == (256,)
            with pytest.raises(errors.ResourceExhaustedError) as caught:
                session.run(y, {x: np.ones(MEGABYTES // 2, np.float32)})
            assert session.run(y, {x: np.ones(4)}).shape == (256,)  # it goes on
    message = str(caught.value)
    assert "too_large" in message and "device:GPU:0" in message
    assert "not enough memory for" in message and "the limit is 16777216 bytes" in message


# ------------------------------------------------------------------------------ residency


def test_small_integers_and_objects_stay_on_the_host(machine: Machine) -> None:
    (device,) = gpus()
    words = np.array([b"a"], object)
    for value in (np.int32(3), np.bool_(True), np.arange(8), words, words[0], None, "handle"):
        assert residency.stays_on_host(value) and device.from_host(value) is value
    for value in (np.float32(1), np.ones(2, np.float16), np.arange(1000), np.complex64(1)):
        assert not residency.stays_on_host(value)
        brought = device.from_host(value)
        assert device.is_own(brought) and brought.dtype == value.dtype
        back = device.to_host(brought)
        assert type(back) is type(value)
        np.testing.assert_array_equal(back, value)


def test_shape_arithmetic_and_predicates_never_wait_for_the_gpu(
    machine: Machine, graph: wf.Graph
) -> None:
    x = wf.placeholder(wf.float32, [None, None])
    with wf.device("/gpu:0"):
        rows = wf.shape(x)[0] * 2
        y = wf.reshape(wf.tile(x, [2, 1]), [rows // 2, -1])
        z = wf.cond(rows > 3, lambda: y + 1.0, lambda: y - 1.0)
    with wf.Session(config=growing()) as session:
        result = session.run(z, {x: np.ones((2, 3))})
        np.testing.assert_array_equal(result, np.full((2, 6), 2.0, np.float32))
    assert machine.syncs == 0


def test_a_loop_that_depends_on_values_of_the_gpu(machine: Machine, graph: wf.Graph) -> None:
    x = wf.placeholder(wf.float32, [])
    with wf.device("/gpu:0"):
        found = wf.while_loop(lambda v: v < 100.0, lambda v: v * 2.0, [x])
    with wf.Session(config=growing()) as session:
        assert session.run(found, {x: 3.0}) == 192.0


def test_strings_pass_by_a_gpu(machine: Machine, graph: wf.Graph) -> None:
    words = wf.placeholder(wf.string, [None])
    with wf.device("/gpu:0"):
        kept = wf.identity(words)
    with wf.Session(config=growing()) as session:
        assert session.run(wf.string_join([kept, kept]), {words: ["a"]}).tolist() == [b"aa"]


# -------------------------------------------------------------------- copies, streams, events


def order(machine: Machine, since: int) -> list[tuple[str, str]]:
    return [(stream, what.split()[0]) for stream, what in machine.log[since:]]


def test_a_copy_in_makes_the_compute_stream_wait_and_nothing_else(machine: Machine) -> None:
    (device,) = gpus()
    hardware, since = device.hardware, len(machine.log)
    device.from_host(np.ones(4, np.float32))
    inward, compute = hardware.copy_in.name, hardware.compute.name
    found = [step for step in order(machine, since) if step[1] not in ("empty",)]
    assert found == [
        (inward, "copy"),
        (inward, "record"),
        (compute, "wait"),
        (compute, "copyto"),
        (compute, "record"),
    ]


def test_a_copy_out_waits_for_kernels_by_an_event(machine: Machine) -> None:
    (device,) = gpus()
    hardware = device.hardware
    value = device.from_host(np.ones(4, np.float32))
    since = len(machine.log)
    with device.active():
        doubled = value * 2
    assert device.to_host(doubled).tolist() == [2, 2, 2, 2]
    outward, compute = hardware.copy_out.name, hardware.compute.name
    found = [step for step in order(machine, since) if step[1] not in ("ascontiguousarray",)]
    assert found == [
        (compute, "multiply"),
        (compute, "record"),
        (outward, "wait"),
        (outward, "copy"),
        (outward, "record"),
    ]


class Taken:
    """A `done` that stores its result."""

    def __init__(self) -> None:
        self.there = threading.Event()
        self.value: Any = None
        self.thread = ""

    def __call__(self, value: Any = None) -> None:
        self.value, self.thread = value, threading.current_thread().name
        self.there.set()

    def fail(self, error: BaseException) -> None:
        self(error)


def test_sending_returns_before_the_copy_is_over(machine: Machine) -> None:
    (device,) = gpus()
    value = device.from_host(np.arange(1000))
    machine.gate.clear()
    done = Taken()
    device.send(value, done)
    assert not done.there.is_set()
    machine.gate.set()
    assert done.there.wait(30)
    assert done.value.tolist() == list(range(1000)) and done.thread == "GPU 0 out"


def test_what_a_copy_uses_is_held_until_it_is_over(machine: Machine) -> None:
    (device,) = gpus()
    machine.gate.clear()
    held = device.hardware._arriving
    for count in (1, 2, 3):
        device.from_host(np.ones(4, np.float32))
        assert len(held) == count
    machine.gate.set()
    device.from_host(np.ones(4, np.float32))
    assert len(held) == 0


def test_large_values_of_the_host_are_staged_by_another_thread(machine: Machine) -> None:
    first, cpu = gpus()[0], devices()[0]
    done = Taken()
    first.receive(np.ones(MEGABYTES, np.float32), cpu, done)
    assert done.there.wait(30) and done.thread == "GPU 0 in" and first.is_own(done.value)
    done = Taken()
    first.receive(np.ones(4, np.float32), cpu, done)
    assert done.thread == threading.current_thread().name


@pytest.mark.gpus(2)
def test_arrays_go_from_one_gpu_to_another_without_the_host(machine: Machine) -> None:
    with wf.Graph().as_default():
        x = wf.placeholder(wf.float32, [3])
        with wf.device("/gpu:0"):
            a = wf.exp(x)
        with wf.device("/gpu:1"):
            b = wf.log(a)
        with wf.Session(config=growing()) as session:
            np.testing.assert_allclose(session.run(b, {x: [1, 2, 3]}), [1, 2, 3], rtol=1e-6)
    assert sum(what == "copy from device" for _, what in machine.log) == 1
    assert sum(what == "copy out" for _, what in machine.log) == 1


def test_the_stand_in_finds_a_missing_wait(machine: Machine) -> None:
    (device,) = gpus()
    value = device.from_host(np.ones(4, np.float32))
    with pytest.raises(RaceError), device.hardware.active(device.hardware.copy_out):
        value + 1


def test_the_stand_in_refuses_what_is_numpys(machine: Machine) -> None:
    (device,) = gpus()
    value = device.from_host(np.ones(4, np.float32))
    with device.active():
        for use in (
            np.asarray,
            np.exp,
            np.sum,
            lambda v: v + np.ones(4, np.float32),
            lambda v: np.ones(4, np.float32) + v,
            lambda v: np.stack([v, v]),
            lambda v: v[np.arange(2)],
            lambda v: v.__setitem__(0, np.ones(())),
            lambda v: device.xp.add(v, np.ones(4)),
            lambda v: device.xp.sum(v, initial=0),
            lambda v: device.xp.left_shift(v, v),
        ):
            with pytest.raises(TypeError):
                use(value)
        assert (np.float32(2) * value).tolist() == [2, 2, 2, 2]


# ----------------------------------------------------------------------------------- steps


def test_a_fetched_array_is_the_callers(machine: Machine, graph: wf.Graph) -> None:
    with wf.device("/gpu:0"):
        v = wf.Variable([1.0, 2.0])
    with wf.Session(config=growing()) as session:
        session.run(v.initializer)
        session.run(v)[:] = 7
        assert session.run(v).tolist() == [1, 2]


def test_many_threads_run_one_step(machine: Machine, graph: wf.Graph) -> None:
    x = wf.placeholder(wf.float32, [2])
    with wf.device("/gpu:0"):
        y = wf.exp(x) * 2.0 + wf.random_uniform([2], maxval=1e-9)
    with wf.Session(config=growing()) as session:

        def work() -> None:
            for i in range(20):
                np.testing.assert_allclose(
                    session.run(y, {x: [i / 9, 0]}), 2 * np.exp([i / 9, 0]), rtol=1e-5
                )

        in_threads(*[work] * 4)


def test_a_step_that_waits_for_a_gpu_can_be_cancelled(machine: Machine, graph: wf.Graph) -> None:
    x = wf.placeholder(wf.float32, [2])
    with wf.device("/gpu:0"):
        y = wf.exp(x)
    with wf.Session(config=growing()) as session:
        machine.gate.clear()
        with pytest.raises(errors.DeadlineExceededError):
            session.run(y, {x: [1, 2]}, options=wf.RunOptions(timeout_in_ms=200))
        machine.gate.set()
        np.testing.assert_allclose(session.run(y, {x: [0, 1]}), np.exp([0, 1]), rtol=1e-6)


def test_sessions_share_a_gpu(machine: Machine) -> None:
    first, second = gpus()[0], gpus()[0]
    assert first is not second and first.hardware is second.hardware
    assert discovery.modules() is not None

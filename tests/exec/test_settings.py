"""Settings of the process are the defaults of sessions."""

from __future__ import annotations

from typing import Any

import pytest

import weft as wf
from weft_exec.config import SessionConfig
from weft_exec.settings import settings
from weft_tensor import errors


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("inter_op_threads", "intra_op_threads", "soft_placement", "optimizer"):
        monkeypatch.setattr(settings, name, getattr(settings, name))


def test_threads() -> None:
    wf.config.threading.set_inter_op_parallelism_threads(3)
    wf.config.threading.set_intra_op_parallelism_threads(2)
    assert wf.config.threading.get_inter_op_parallelism_threads() == 3
    assert wf.config.threading.get_intra_op_parallelism_threads() == 2
    assert SessionConfig.from_proto(None).inter_op_threads == 3
    assert SessionConfig.from_proto(wf.ConfigProto()).inter_op_threads == 3
    own = wf.ConfigProto(inter_op_parallelism_threads=1, intra_op_parallelism_threads=4)
    assert SessionConfig.from_proto(own).inter_op_threads == 1
    assert SessionConfig.from_proto(own).intra_op_threads == 4
    with pytest.raises(errors.InvalidArgumentError, match="num_threads"):
        wf.config.threading.set_inter_op_parallelism_threads(-1)


def test_placement_and_passes() -> None:
    wf.config.set_soft_device_placement(True)
    assert SessionConfig.from_proto(None).allow_soft_placement
    assert not SessionConfig.from_proto(wf.ConfigProto()).allow_soft_placement
    wf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    assert wf.config.optimizer.get_experimental_options() == {"disable_meta_optimizer": True}
    assert not SessionConfig.from_proto(None).optimize
    assert not SessionConfig.from_proto(wf.ConfigProto()).optimize
    wf.config.optimizer.set_experimental_options({"constant_folding": False})
    assert wf.config.optimizer.get_experimental_options() == {"constant_folding": False}
    proto = wf.ConfigProto()
    assert SessionConfig.from_proto(proto).optimize
    proto.graph_options.rewrite_options.disable_meta_optimizer = True
    assert not SessionConfig.from_proto(proto).optimize
    wf.config.optimizer.set_experimental_options({"debug_stripper": False})
    with pytest.raises(
        errors.InvalidArgumentError, match="debug_stripper: optimizations that remove checks"
    ):
        wf.config.optimizer.set_experimental_options({"debug_stripper": True})
    with pytest.raises(errors.InvalidArgumentError, match="unknown option inlining"):
        wf.config.optimizer.set_experimental_options({"inlining": True})


def test_devices() -> None:
    (cpu,) = wf.config.list_physical_devices()
    part = wf.config.LogicalDeviceConfiguration(memory_limit=64)
    wf.config.set_logical_device_configuration(cpu, [part, part])
    try:
        names = [device.name for device in wf.config.list_logical_devices()]
        assert names == ["/device:CPU:0", "/device:CPU:1"]
        assert wf.config.list_logical_devices("GPU") == []
        assert len(wf.Session().list_devices()) == 2
    finally:
        wf.config.set_logical_device_configuration(cpu, None)
    assert wf.config.get_visible_devices() == [cpu]


@pytest.mark.parametrize("config", [None, wf.ConfigProto(device_count={"CPU": 2})])
def test_every_value_is_checked(config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "check_numerics", False)
    with wf.Graph().as_default():
        x = wf.placeholder(wf.float32, [2], name="x")
        first, second = wf.split(wf.log(x, name="log"), 2)
        last = wf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y / x), [0, x])[1]
        integers = wf.cast(x, wf.int32) + 1
        fetches = [first, second, last, integers]
        with wf.Session(config=config) as session:
            session.run(fetches, {x: [0.0, 1.0]})
        wf.debugging.enable_check_numerics()
        with wf.Session(config=config) as session:
            session.run(fetches, {x: [1.0, 1.0]})
            with pytest.raises(
                errors.InvalidArgumentError, match=r"of Log 'log' : .* Inf"
            ) as caught:
                session.run(first, {x: [0.0, 1.0]})
            assert "test_settings.py" in str(caught.value.line)
            with pytest.raises(errors.InvalidArgumentError, match=r"RealDiv .* NaN"):
                session.run(last, {x: [0.0, 1.0]})
            assert session.run(integers, {x: [2.0, 3.0]}).tolist() == [3, 4]
        wf.debugging.disable_check_numerics()
        with wf.Session(config=config) as session:
            session.run(fetches, {x: [0.0, 1.0]})


def test_compiled_functions_have_all_processors_unless_a_session_says_otherwise() -> None:
    every = SessionConfig(inter_op_threads=1).intra_op_threads
    assert SessionConfig().compiled_threads == every
    assert SessionConfig(intra_op_threads=3).compiled_threads == 3
    assert SessionConfig(intra_op_threads=3, deterministic=True).compiled_threads == 1
    assert SessionConfig(executor_type="SINGLE_THREADED_EXECUTOR").compiled_threads == 1

"""Lists of devices, the devices that sessions see, and memory statistics; without a GPU."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf
from weft import errors

config = wf.config.experimental
CPU = wf.config.list_physical_devices("CPU")[0]
GPU = wf.config.PhysicalDevice("/physical_device:GPU:7", "GPU")


def test_the_processor_is_there_always() -> None:
    assert wf.config.get_visible_devices("CPU") == [CPU]
    wf.config.set_visible_devices(CPU)
    assert config.get_memory_growth(CPU) and config.get_device_details(CPU) == {}
    with pytest.raises(errors.InvalidArgumentError, match="cannot be hidden"):
        wf.config.set_visible_devices([], "CPU")
    with pytest.raises(errors.InvalidArgumentError, match="always grows"):
        config.set_memory_growth(CPU, True)
    with pytest.raises(errors.InvalidArgumentError, match="must be of the type 'GPU'"):
        wf.config.set_visible_devices([CPU], "GPU")


def test_what_is_not_there_is_refused() -> None:
    for use in (wf.config.set_visible_devices, config.get_memory_growth, config.get_device_details):
        with pytest.raises(errors.InvalidArgumentError, match="this machine has"):
            use(GPU)
    for name in ("GPU:7", "CPU:1", "TPU:0", "CPU", "", "CPU:-1"):
        with pytest.raises(errors.InvalidArgumentError, match="unknown device"):
            config.get_memory_info(name)


def test_the_memory_of_the_processor() -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float32, [1 << 20])
        y = wf.sin(x) + 1.0
        config.reset_memory_stats("CPU:0")
        before = config.get_memory_info("/device:CPU:0")
        assert before["peak"] == before["current"] == config.get_memory_usage("cpu:0")
        kept = session.run(y, {x: np.zeros(1 << 20, np.float32)})
        assert config.get_memory_info("CPU:0")["peak"] >= before["current"] + kept.nbytes

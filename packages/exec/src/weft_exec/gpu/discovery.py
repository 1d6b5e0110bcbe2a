"""Discovery of the process's GPUs."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import threading
from typing import Any, Final

from weft_exec.config import GpuOptions
from weft_exec.gpu.hardware import Gpu
from weft_exec.gpu.properties import read_properties
from weft_exec.settings import settings
from weft_tensor import errors

_log = logging.getLogger("weft")
_lock = threading.Lock()
_gpus: dict[int, Gpu] = {}
_state: dict[str, Any] = {}

_MINIMAL_RESERVE: Final = 300 << 20
_RESERVED_SHARE: Final = 0.06


def modules() -> tuple[Any, Any] | None:
    """Return CuPy and its extensions, or None if they cannot be used; the result is cached."""
    if "modules" not in _state:
        modules, count = _find()  # without the lock, because it imports modules
        with _lock:
            _state.setdefault("count", count)
            _state.setdefault("modules", modules)
    result: tuple[Any, Any] | None = _state["modules"]
    return result


def nccl_module() -> Any:
    """Return CuPy's module for NCCL, whose `available` is true if the library exists.

    CuPy itself does not import this module.
    """
    return importlib.import_module("cupy.cuda.nccl")


def forget() -> None:
    """Clear the cached modules, for tests that replace CuPy."""
    with _lock:
        _state.clear()
        _gpus.clear()


def _find() -> tuple[tuple[Any, Any] | None, int]:
    if importlib.util.find_spec("cupy") is None:
        return None, 0
    try:
        cupy, cupyx = importlib.import_module("cupy"), importlib.import_module("cupyx")
    except (ImportError, OSError) as error:
        _log.warning("CuPy is installed, but cannot be loaded, so there are no GPUs: %s", error)
        return None, 0
    try:
        count = int(cupy.cuda.runtime.getDeviceCount())
    except RuntimeError as error:  # including CUDARuntimeError
        _log.warning("CuPy finds no GPU: %s%s", error, _versions(cupy))
        return None, 0
    if not count:
        _log.warning("CuPy finds no GPU")
        return None, 0
    return (cupy, cupyx), count


def _versions(cupy: Any) -> str:
    """Return a note on the CUDA versions of CuPy and the driver, if known."""
    runtime = cupy.cuda.runtime
    try:
        built_version, have = runtime.runtimeGetVersion(), runtime.driverGetVersion()
    except RuntimeError:
        return ""
    if not have:
        return " (there is no CUDA driver)"
    note = f" (CuPy is built for CUDA {built_version // 1000}.{built_version % 1000 // 10}, "
    return f"{note}the driver supports up to {have // 1000}.{have % 1000 // 10})"


def count() -> int:
    """Return the number of GPUs of the machine."""
    return 0 if modules() is None else int(_state["count"])


def gpu_details(index: int) -> dict[str, Any]:
    """Return the name and compute capability of a GPU."""
    result = modules()
    assert result is not None
    properties = read_properties(result[0], index)
    return {"device_name": properties.name, "compute_capability": properties.compute_capability}


def allocator(index: int) -> Any:
    """Return the allocator of a GPU; None if no session has used the GPU."""
    with _lock:
        gpu = _gpus.get(index)
    return None if gpu is None else gpu.allocator


def visible_gpus(options: GpuOptions) -> list[int]:
    """Return CUDA's numbers of the GPUs that a session uses, in the order of its devices.

    Raises: InvalidArgumentError: visible_device_list is malformed, repeats a number or names a GPU
    that does not exist.
    """
    num_gpus = count()
    if not num_gpus or not options.visible_device_list:
        return list(settings.visible.get("GPU", range(num_gpus)))
    try:
        indices = [int(part) for part in options.visible_device_list.split(",")]
    except ValueError:
        indices = [-1]
    if len(set(indices)) != len(indices) or any(not 0 <= index < num_gpus for index in indices):
        raise errors.InvalidArgumentError(
            "gpu_options.visible_device_list must be a list of different numbers in "
            f"[0, {num_gpus}), got {options.visible_device_list!r}"
        )
    return indices


def get_gpu(index: int, options: GpuOptions) -> Gpu:
    """Return a GPU of the process; its memory options are those of the first call.

    Raises: ResourceExhaustedError: it has less memory than the options request.
    """
    result = modules()
    assert result is not None
    cupy, cupyx = result
    with _lock:
        gpu = _gpus.get(index)
        if gpu is None:
            gpu = Gpu(cupy, cupyx, index, _limit(cupy, index, options.memory_fraction))
            if not (options.allow_growth or settings.memory_growth.get(("GPU", index))):
                gpu.allocator.reserve()
            _gpus[index] = gpu
        return gpu


def _limit(cupy: Any, index: int, fraction: float) -> int:
    """Return the bytes that a process may use of a GPU: a fraction, or almost all free memory."""
    with cupy.cuda.Device(index):
        free, total = cupy.cuda.runtime.memGetInfo()
    if fraction:
        return int(total * fraction)
    return max(int(free) - max(_MINIMAL_RESERVE, int(free * _RESERVED_SHARE)), 1 << 20)

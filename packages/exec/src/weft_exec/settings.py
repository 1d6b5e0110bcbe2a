"""Process-wide settings, which sessions use if their ConfigProto does not set them."""

from __future__ import annotations

__all__ = [
    "get_inter_op_parallelism_threads",
    "get_intra_op_parallelism_threads",
    "set_inter_op_parallelism_threads",
    "set_intra_op_parallelism_threads",
]
import os
from typing import Any

from weft_tensor import dtypes, errors
from weft_tensor.arguments import INT32_MAX, check_integer


class _Settings:
    inter_op_threads = 0
    intra_op_threads = 0
    soft_placement = False
    check_numerics = False
    optimizer: dict[str, Any] = {}  # noqa: RUF012 - replaced, never changed
    log_device_placement = False
    jit: bool | None = None

    def __init__(self) -> None:
        self.visible: dict[str, tuple[int, ...]] = {}
        self.memory_growth: dict[tuple[str, int], bool] = {}


settings = _Settings()


def get_inter_op_parallelism_threads() -> int:
    """Return the default number of kernels that run in parallel; 0 for the number of cores.

    Examples:
      >>> wf.config.threading.get_inter_op_parallelism_threads()
      0
    """
    return settings.inter_op_threads


def set_inter_op_parallelism_threads(num_threads: int) -> None:
    """Set the number of kernels that new sessions run in parallel.

    A number in a session's ConfigProto takes precedence.

    Args:
      num_threads: at least 0; 0 for the number of cores.

    Examples:
      >>> wf.config.threading.set_inter_op_parallelism_threads(2)
      >>> wf.config.threading.get_inter_op_parallelism_threads()
      2
      >>> wf.config.threading.set_inter_op_parallelism_threads(0)
    """
    settings.inter_op_threads = check_integer(num_threads, "num_threads", 0, INT32_MAX)


def get_intra_op_parallelism_threads() -> int:
    """Return the default number of threads of one matrix product; 0 for the number of cores.

    Examples:
      >>> wf.config.threading.get_intra_op_parallelism_threads()
      0
    """
    return settings.intra_op_threads


def set_intra_op_parallelism_threads(num_threads: int) -> None:
    """Set the number of threads of matrix products and compiled functions in new sessions.

    A number in a session's ConfigProto takes precedence. The BLAS library keeps the number of the
    process's first session.

    Args:
      num_threads: at least 0; 0 for the number of cores.

    Examples:
      >>> wf.config.threading.set_intra_op_parallelism_threads(0)
    """
    settings.intra_op_threads = check_integer(num_threads, "num_threads", 0, INT32_MAX)


def get_soft_device_placement() -> bool:
    """Return True if nodes may by default run on another device than requested.

    Examples:
      >>> wf.config.get_soft_device_placement()
      False
    """
    return settings.soft_placement


def set_soft_device_placement(enabled: bool) -> None:
    """Turn soft placement on or off for sessions without a ConfigProto.

    With soft placement, a node whose requested device cannot run it is placed on another device.

    Args:
      enabled: True to turn it on.

    Examples:
      >>> wf.config.set_soft_device_placement(True)
      >>> with wf.device("/gpu:7"):
      ...     x = wf.constant(1.0) + 1.0
      >>> wf.Session().run(x)
      np.float32(2.0)
      >>> wf.config.set_soft_device_placement(False)
    """
    settings.soft_placement = bool(enabled)


def get_log_device_placement() -> bool:
    """Return True if sessions log the device of each node by default.

    Examples:
      >>> wf.debugging.get_log_device_placement()
      False
    """
    return settings.log_device_placement


def set_log_device_placement(enabled: bool) -> None:
    """Turn logging of the device of each node on or off for all new sessions.

    Args:
      enabled: True to turn it on, also for sessions with a ConfigProto.

    Examples:
      >>> wf.debugging.set_log_device_placement(False)
    """
    settings.log_device_placement = bool(enabled)


def enable_check_numerics(stack_height_limit: int = 30, path_length_limit: int = 50) -> None:
    """Make steps fail at the first infinity or NaN, with the node and line that computed it.

    This applies to steps that sessions run for the first time after the call, and makes them
    slower.

    Args:
      stack_height_limit, path_length_limit: accepted for compatibility; errors show the line that
        created the node.

    Examples:
      >>> wf.debugging.enable_check_numerics()
      >>> wf.Session().run(wf.log(wf.constant(2.0) - 2.0) * 0.0)
      Traceback (most recent call last):
      ...
      weft_tensor.errors.InvalidArgumentError: output 0 of Log 'Log' : Tensor had Inf values
      ...
      >>> wf.debugging.disable_check_numerics()
    """
    settings.check_numerics = True


def disable_check_numerics() -> None:
    """Undo `enable_check_numerics`.

    Examples:
      >>> wf.debugging.disable_check_numerics()
    """
    settings.check_numerics = False


def get_experimental_options() -> dict[str, Any]:
    """Return the options set by `set_experimental_options`.

    Examples:
      >>> wf.config.optimizer.get_experimental_options()
      {}
    """
    return dict(settings.optimizer)


def set_experimental_options(options: dict[str, Any]) -> None:
    """Set the graph optimizations of new sessions.

    Args:
      options: by name, as in TensorFlow. "disable_meta_optimizer" turns off all passes that make
        steps faster. "auto_mixed_precision" computes products in float16, and
        "auto_mixed_precision_mkl" or "auto_mixed_precision_onednn_bfloat16" in bfloat16.
        Weft's other passes run together, so options for a single pass, such as
        "constant_folding", are stored without effect.
    Raises: InvalidArgumentError: an option is unknown, or requests "debug_stripper", which weft
    does not support.

    Examples:
      >>> wf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
      >>> wf.config.optimizer.set_experimental_options({})
    """
    known_options = _PASSES | MIXED_PRECISION.keys() | {"debug_stripper", "disable_meta_optimizer"}
    unknown = sorted(options.keys() - known_options)
    if unknown:
        raise errors.InvalidArgumentError(f"unknown option {', '.join(unknown)}")
    if options.get("debug_stripper"):
        raise errors.InvalidArgumentError(
            "debug_stripper: optimizations that remove checks are not supported"
        )
    settings.optimizer = dict(options)


_PASSES = {
    "arithmetic_optimization",
    "constant_folding",
    "dependency_optimization",
    "disable_model_pruning",
    "function_optimization",
    "implementation_selector",
    "layout_optimizer",
    "loop_optimization",
    "min_graph_nodes",
    "pin_to_host_optimization",
    "remapping",
    "scoped_allocator_optimization",
    "shape_optimization",
    "use_plugin_optimizers",
}
"""TensorFlow's options for single passes.

They are accepted, because results do not depend on them.
"""

MIXED_PRECISION = {
    "auto_mixed_precision": dtypes.float16,
    "auto_mixed_precision_mkl": dtypes.bfloat16,
    "auto_mixed_precision_onednn_bfloat16": dtypes.bfloat16,
}
"""The types of products by TensorFlow's options for mixed precision."""


def set_jit(enabled: bool | str | None) -> None:
    """Turn compilation of steps on or off for new sessions.

    By default steps are compiled in the background, except in deterministic sessions. Two settings
    take precedence over this one: a ConfigProto's `graph_options.optimizer_options` and scopes that
    set it for some nodes. The environment variable `WEFT_JIT=off` overrides everything.

    Args:
      enabled: True or "autoclustering" to turn it on, False or "" to turn it off, None to restore
        the default.
    Raises: InvalidArgumentError: another string.

    Examples:
      >>> wf.config.optimizer.set_jit(True)
      >>> wf.config.optimizer.get_jit()
      'autoclustering'
      >>> wf.config.optimizer.set_jit(None)
    """
    if isinstance(enabled, str) and enabled not in ("", "autoclustering"):
        raise errors.InvalidArgumentError(
            f"enabled must be a bool or 'autoclustering', got {enabled!r}"
        )
    settings.jit = None if enabled is None else bool(enabled)


def jit_environment() -> str:
    """Return the value of `WEFT_JIT`: "on", "now", "off", "asked", or "" if it is unset.

    Raises: InvalidArgumentError: another value.
    """
    setting = os.environ.get("WEFT_JIT", "")
    if setting not in ("", "on", "now", "off", "asked"):
        raise errors.InvalidArgumentError(
            f"the environment variable WEFT_JIT must be on, now, off or asked, got {setting!r}"
        )
    return setting


def graphs_environment() -> bool:
    """Return True if GPUs may capture steps into graphs: unless `WEFT_GPU_GRAPHS` is "off".

    Raises: InvalidArgumentError: a value other than "on" and "off".
    """
    setting = os.environ.get("WEFT_GPU_GRAPHS", "on")
    if setting not in ("on", "off"):
        raise errors.InvalidArgumentError(
            f"the environment variable WEFT_GPU_GRAPHS must be on or off, got {setting!r}"
        )
    return setting == "on"


def get_jit() -> str:
    """Return "autoclustering" if `set_jit` turned compilation on, else "".

    Examples:
      >>> wf.config.optimizer.get_jit()
      ''
    """
    return "autoclustering" if settings.jit else ""

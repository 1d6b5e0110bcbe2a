"""Settings of the process: the defaults of sessions whose ConfigProto leaves them open."""

from __future__ import annotations

__all__ = [
    "get_inter_op_parallelism_threads",
    "get_intra_op_parallelism_threads",
    "set_inter_op_parallelism_threads",
    "set_intra_op_parallelism_threads",
]
import os
from typing import Any

from weft_tensor import errors
from weft_tensor.arguments import INT32_MAX, integer


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
    """How many kernels sessions run side by side by default; 0 for the number of cores.

    Examples:
      >>> wf.config.threading.get_inter_op_parallelism_threads()
      0
    """
    return settings.inter_op_threads


def set_inter_op_parallelism_threads(num_threads: int) -> None:
    """Let sessions that are made from now on run so many kernels side by side.

    A ConfigProto that says how many goes before it.

    Args:
      num_threads: at least 0; 0 for the number of cores.

    Examples:
      >>> wf.config.threading.set_inter_op_parallelism_threads(2)
      >>> wf.config.threading.get_inter_op_parallelism_threads()
      2
      >>> wf.config.threading.set_inter_op_parallelism_threads(0)
    """
    settings.inter_op_threads = integer(num_threads, "num_threads", 0, INT32_MAX)


def get_intra_op_parallelism_threads() -> int:
    """How many threads one matrix product has by default; 0 for the number of cores.

    Examples:
      >>> wf.config.threading.get_intra_op_parallelism_threads()
      0
    """
    return settings.intra_op_threads


def set_intra_op_parallelism_threads(num_threads: int) -> None:
    """Let products and compiled functions of sessions made from now on have so many threads.

    A ConfigProto that says how many goes before it. For BLAS, a process's first session decides.

    Args:
      num_threads: at least 0; 0 for the number of cores.

    Examples:
      >>> wf.config.threading.set_intra_op_parallelism_threads(0)
    """
    settings.intra_op_threads = integer(num_threads, "num_threads", 0, INT32_MAX)


def get_soft_device_placement() -> bool:
    """Whether nodes go elsewhere by default where their request cannot be met.

    Examples:
      >>> wf.config.get_soft_device_placement()
      False
    """
    return settings.soft_placement


def set_soft_device_placement(enabled: bool) -> None:
    """Let nodes of sessions without a ConfigProto go elsewhere where requests cannot be met.

    Args:
      enabled: whether they do.

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
    """Whether sessions log by default where their nodes went.

    Examples:
      >>> wf.debugging.get_log_device_placement()
      False
    """
    return settings.log_device_placement


def set_log_device_placement(enabled: bool) -> None:
    """Let sessions that are made from now on log where each node went, ConfigProto or not.

    Args:
      enabled: whether they do.

    Examples:
      >>> wf.debugging.set_log_device_placement(False)
    """
    settings.log_device_placement = bool(enabled)


def enable_check_numerics(stack_height_limit: int = 30, path_length_limit: int = 50) -> None:
    """Let the first infinity or NaN that a step computes be an error with its node and line.

    It is for steps that sessions run for the first time from now on, and makes them slower.

    Args:
      stack_height_limit, path_length_limit: accepted; errors show the line that made the node.

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
    """The options that `set_experimental_options` was given.

    Examples:
      >>> wf.config.optimizer.get_experimental_options()
      {}
    """
    return dict(settings.optimizer)


def set_experimental_options(options: dict[str, Any]) -> None:
    """Say how sessions that are made from now on change graphs before they run them.

    Args:
      options: by name, as in TensorFlow: "disable_meta_optimizer" turns all passes off that make
        steps faster. Passes run together, so what would turn off one of them, such as
        "constant_folding", is kept and changes nothing.
    Raises: InvalidArgumentError: there is no such option, or it is one that changes results and
      that weft lacks ("debug_stripper", "auto_mixed_precision") and is asked for.

    Examples:
      >>> wf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
      >>> wf.config.optimizer.set_experimental_options({})
    """
    unknown = sorted(options.keys() - _PASSES - _CHANGING - {"disable_meta_optimizer"})
    if unknown:
        raise errors.InvalidArgumentError(f"there is no option {', '.join(unknown)}")
    changing = sorted(name for name in options.keys() & _CHANGING if options[name])
    if changing:
        raise errors.InvalidArgumentError(
            f"{', '.join(changing)}: steps are never changed so that they compute something else"
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
"""Options of TensorFlow that say which passes run; results are the same with and without."""
_CHANGING = {"auto_mixed_precision", "auto_mixed_precision_mkl", "debug_stripper"}


def set_jit(enabled: bool | str | None) -> None:
    """Say whether sessions that are made from now on compile their steps.

    Where nobody says anything they do, in the background, but for deterministic ones. A ConfigProto
    that says it in `graph_options.optimizer_options`, and scopes that say it of some nodes, go
    before this. The environment's `WEFT_JIT=off` goes before all.

    Args:
      enabled: whether they do; "autoclustering" is the same as True, "" as False; None takes back
        what was said.
    Raises: InvalidArgumentError: it is another text.

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
    """What `WEFT_JIT` says: "on", "now", "off", "asked", or "" for nothing.

    Raises: InvalidArgumentError: it says something else.
    """
    said = os.environ.get("WEFT_JIT", "")
    if said not in ("", "on", "now", "off", "asked"):
        raise errors.InvalidArgumentError(
            f"the environment variable WEFT_JIT must be on, now, off or asked, got {said!r}"
        )
    return said


def graphs_environment() -> bool:
    """Whether GPUs may capture steps into graphs: unless `WEFT_GPU_GRAPHS` says off.

    Raises: InvalidArgumentError: it says something else.
    """
    said = os.environ.get("WEFT_GPU_GRAPHS", "on")
    if said not in ("on", "off"):
        raise errors.InvalidArgumentError(
            f"the environment variable WEFT_GPU_GRAPHS must be on or off, got {said!r}"
        )
    return said == "on"


def get_jit() -> str:
    """Whether `set_jit` asked for compiled steps: "autoclustering", or "" if it did not.

    Examples:
      >>> wf.config.optimizer.get_jit()
      ''
    """
    return "autoclustering" if settings.jit else ""

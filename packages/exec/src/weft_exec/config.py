"""A session's options, read once from a ConfigProto."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from weft_exec.settings import MIXED_PRECISION, settings
from weft_tensor import errors
from weft_tensor.dtypes import DType

_EXECUTORS = ("", "DEFAULT", "READY_QUEUE", "SINGLE_THREADED_EXECUTOR")


class GpuOptions(NamedTuple):
    """GPU options of a session.

    Attributes:
      memory_fraction: the fraction of a GPU's memory that the process may use; 0 means nearly all
        free memory.
      allow_growth: allocate memory on demand instead of all at once.
      visible_device_list: comma-separated numbers of the GPUs to use; "" for all.
    """

    memory_fraction: float = 0.0
    allow_growth: bool = False
    visible_device_list: str = ""


class TraceOptions(NamedTuple):
    """Recordings that the config of a session requests; both paths may contain "%p".

    Attributes:
      trace_file: the file of a trace; "" for none.
      flight_path: the files of a flight recorder; "" for none.
      flight_seconds: how much it keeps.
      slow_seconds: minimum duration of a slow step; None for no limit.
    """

    trace_file: str = ""
    flight_path: str = ""
    flight_seconds: float = 10.0
    slow_seconds: float | None = None

    @staticmethod
    def of_config(proto: Any) -> TraceOptions:
        """Return the options of a ConfigProto.

        Raises: InvalidArgumentError: the flight recorder has no path, or a negative number.
        """
        flight = proto.experimental.flight_recorder
        if not flight.path and (flight.seconds or flight.slow_seconds):
            raise errors.InvalidArgumentError(
                "experimental.flight_recorder must have a path, got "
                f"seconds {flight.seconds:g} and slow_seconds {flight.slow_seconds:g} without one"
            )
        return TraceOptions(
            proto.experimental.trace_file,
            flight.path,
            flight.seconds or 10.0,
            flight.slow_seconds or None,
        )


class SessionConfig:
    """Options of one session.

    Attributes:
      inter_op_threads: threads that run kernels in parallel.
      intra_op_threads: threads of one BLAS call.
      compiled_threads: threads that may run one compiled function: `intra_op_threads`, or the
        number of processors.
      device_count: maps a device type to the number of devices.
      allow_soft_placement: place a node on another device if its requested device cannot run it.
      log_device_placement: log the device of each node.
      timeout_ms: timeout of every Run; 0 for none.
      deterministic: use one fixed order of kernels and one BLAS thread.
      optimize: run the graph passes.
      mixed_precision: the type of products, with casts from and to float32; None for float32.
      memory_optimization: a name of `RewriterConfig.MemOptType` that selects the memory
        optimizations.
      gradient_scope: the name scope that identifies gradient nodes.
      jit: the default for nodes without a compilation scope. None uses `WEFT_JIT`; if that is
        unset, everything worthwhile is compiled unless `deterministic`.
      jit_check: compare compiled results with those of kernels.
      measure_every, measure_after: after `measure_after` steps of a signature, every
        `measure_every`-th step is timed for the cost model; 0 for never.
      lossy_transfers: send float32 values between devices with 16 bits.
      gpu: GPU options.
      executor_type: "" to choose for each step, "READY_QUEUE" to schedule all nodes through the
        ready queue, "SINGLE_THREADED_EXECUTOR" to run kernels one after the other.
      proto: the ConfigProto that the options were read from, which sessions of other processes
        receive; or None.
      trace: the recordings that the session starts.
    """

    __slots__ = (
        "allow_soft_placement",
        "compiled_threads",
        "deterministic",
        "device_count",
        "executor_type",
        "gpu",
        "gradient_scope",
        "inter_op_threads",
        "intra_op_threads",
        "jit",
        "jit_check",
        "log_device_placement",
        "lossy_transfers",
        "measure_after",
        "measure_every",
        "memory_optimization",
        "mixed_precision",
        "optimize",
        "proto",
        "timeout_ms",
        "trace",
    )

    def __init__(
        self,
        inter_op_threads: int = 0,
        intra_op_threads: int = 0,
        device_count: Mapping[str, int] | None = None,
        allow_soft_placement: bool = False,
        log_device_placement: bool = False,
        timeout_ms: int = 0,
        deterministic: bool = False,
        optimize: bool = True,
        executor_type: str = "",
        lossy_transfers: bool = False,
        measure_every: int = 0,
        measure_after: int = 0,
        gpu: GpuOptions | None = None,
        memory_optimization: str = "DEFAULT_MEM_OPT",
        gradient_scope: str = "",
        jit: bool | None = None,
        jit_check: bool = False,
        mixed_precision: DType | None = None,
    ) -> None:
        if executor_type not in _EXECUTORS:
            raise errors.InvalidArgumentError(
                f"executor_type must be one of {_EXECUTORS}, got {executor_type!r}"
            )
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        if deterministic or executor_type == "SINGLE_THREADED_EXECUTOR":
            inter_op_threads = intra_op_threads = 1
        if not inter_op_threads:
            inter_op_threads = 1 if intra_op_threads > 1 else (cores or 1)
        self.inter_op_threads = max(1, inter_op_threads)
        self.compiled_threads = max(1, intra_op_threads or cores or 1)
        self.intra_op_threads = 1 if self.inter_op_threads > 1 else intra_op_threads or (cores or 1)
        self.device_count = dict(device_count or {})
        self.allow_soft_placement = allow_soft_placement
        self.log_device_placement = log_device_placement
        self.timeout_ms = timeout_ms
        self.deterministic = deterministic
        self.optimize = optimize
        self.lossy_transfers = lossy_transfers
        for label, count in (("", measure_every), ("_after", measure_after)):
            if count < 0:
                raise errors.InvalidArgumentError(
                    f"graph_options.build_cost_model{label} must be at least 0, got {count}"
                )
        self.gpu = gpu or GpuOptions()
        if not 0 <= self.gpu.memory_fraction <= 1:
            raise errors.InvalidArgumentError(
                "gpu_options.per_process_gpu_memory_fraction must be in [0, 1], got "
                f"{self.gpu.memory_fraction}"
            )
        self.measure_every = measure_every
        self.measure_after = measure_after
        self.memory_optimization = memory_optimization
        self.gradient_scope = gradient_scope or "gradients/"
        self.executor_type = "" if executor_type == "DEFAULT" else executor_type
        self.jit = jit
        self.jit_check = jit_check
        self.mixed_precision = mixed_precision
        self.proto: Any = None
        self.trace = TraceOptions()

    @staticmethod
    def from_proto(proto: Any) -> SessionConfig:
        """Return the options of a ConfigProto; None selects the defaults.

        Raises: InvalidTypeError: not a ConfigProto.
        """
        if proto is None:
            session_config = SessionConfig(
                settings.inter_op_threads,
                settings.intra_op_threads,
                allow_soft_placement=settings.soft_placement,
                log_device_placement=settings.log_device_placement,
                optimize=_optimized(),
                jit=settings.jit,
                mixed_precision=_mixed_precision(),
            )
            session_config.proto = _with_mixed_precision(None)
            return session_config
        if isinstance(proto, SessionConfig):
            return proto
        if getattr(getattr(proto, "DESCRIPTOR", None), "name", "") != "ConfigProto":
            raise errors.InvalidTypeError(f"config must be a ConfigProto, got {proto!r}")
        level = proto.graph_options.optimizer_options.opt_level
        rewrites = proto.graph_options.rewrite_options
        session_config = SessionConfig(
            proto.inter_op_parallelism_threads or settings.inter_op_threads,
            proto.intra_op_parallelism_threads or settings.intra_op_threads,
            proto.device_count,
            proto.allow_soft_placement,
            proto.log_device_placement or settings.log_device_placement,
            proto.operation_timeout_in_ms,
            _deterministic(proto),
            level >= 0 and not rewrites.disable_meta_optimizer and _optimized(),
            proto.experimental.executor_type,
            proto.graph_options.enable_bfloat16_sendrecv,
            proto.graph_options.build_cost_model,
            proto.graph_options.build_cost_model_after,
            _gpu_options(proto.gpu_options),
            rewrites.MemOptType.Name(rewrites.memory_optimization),
            rewrites.memory_optimizer_target_node_name_scope,
            _jit(proto.graph_options.optimizer_options),
            proto.experimental.jit_check,
            _mixed_precision(rewrites),
        )
        session_config.proto = _with_mixed_precision(proto)
        session_config.trace = TraceOptions.of_config(proto)
        return session_config


def _optimized() -> bool:
    return not settings.optimizer.get("disable_meta_optimizer", False)


def _mixed_precision(rewrites: Any = None) -> DType | None:
    """Return the short type that a `RewriterConfig` or else the settings request."""
    for option, dtype in MIXED_PRECISION.items():
        toggle = getattr(rewrites, option, 0)  # 0: as in the settings
        if toggle == 1 or (toggle == 0 and settings.optimizer.get(option, False)):
            return dtype
    return None


def _with_mixed_precision(proto: Any) -> Any:
    """Return a ConfigProto, or None, with the requests of the settings, for other processes."""
    requested = [option for option in MIXED_PRECISION if settings.optimizer.get(option, False)]
    if not requested:
        return proto
    from weft_graph.proto import ConfigProto

    result = ConfigProto()
    if proto is not None:
        result.CopyFrom(proto)
    rewrites = result.graph_options.rewrite_options
    for option in requested:
        setattr(rewrites, option, getattr(rewrites, option) or 1)
    return result


def _jit(options: Any) -> bool | None:
    """Return the compilation setting of a ConfigProto; both levels mean the same on CPUs."""
    level, on_processors = options.global_jit_level, options.cpu_global_jit
    if level < 0:
        return False
    return True if level > 0 and on_processors else settings.jit


def _gpu_options(proto: Any) -> GpuOptions:
    return GpuOptions(
        proto.per_process_gpu_memory_fraction, proto.allow_growth, proto.visible_device_list
    )


def _deterministic(proto: Any) -> bool:
    return bool(getattr(proto.experimental, "deterministic", False))

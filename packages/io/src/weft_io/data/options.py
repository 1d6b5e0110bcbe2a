"""Options of datasets, which do not change the elements."""

from __future__ import annotations

__all__ = ["Options"]

import enum
from typing import Any, ClassVar, Self

from weft_tensor import errors


class AutoShardPolicy(enum.IntEnum):
    """Policies for dividing a dataset among workers.

    Args:
      value: a number: OFF, AUTO, FILE, DATA or HINT.

    Examples:
      >>> wf.data.experimental.AutoShardPolicy(1).name
      'FILE'
    """

    OFF = -1
    AUTO = 0
    FILE = 1
    DATA = 2
    HINT = 3


class ExternalStatePolicy(enum.IntEnum):
    """Treatment of external state when a dataset is saved.

    Args:
      value: a number: WARN, IGNORE or FAIL.

    Examples:
      >>> wf.data.experimental.ExternalStatePolicy(2).name
      'FAIL'
    """

    WARN = 0
    IGNORE = 1
    FAIL = 2


class AutotuneAlgorithm(enum.IntEnum):
    """TensorFlow's autotuning algorithms of pipelines.

    Args:
      value: a number: DEFAULT, HILL_CLIMB, GRADIENT_DESCENT, MAX_PARALLELISM or STAGE_BASED.

    Examples:
      >>> wf.data.experimental.AutotuneAlgorithm(1).name
      'HILL_CLIMB'
    """

    DEFAULT = 0
    HILL_CLIMB = 1
    GRADIENT_DESCENT = 2
    MAX_PARALLELISM = 3
    STAGE_BASED = 4


class OptionsBase:
    """Named values with type checks; None by default."""

    _types: ClassVar[dict[str, type]] = {}

    def __init__(self) -> None:
        for name, kind in self._types.items():
            object.__setattr__(self, name, kind() if issubclass(kind, OptionsBase) else None)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._types:
            raise AttributeError(
                f"{type(self).__name__} has no option {name!r}; the options are "
                f"{', '.join(sorted(self._types))}"
            )
        kind = self._types[name]
        if value is not None and not isinstance(value, kind):
            raise errors.InvalidTypeError(
                f"the option {name} must be of type {kind.__name__}, got {value!r}"
            )
        object.__setattr__(self, name, value)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    def merge(self, options: Self) -> Self:
        """Return the options of both.

        Args:
          options: options of the same class.
        Raises: InvalidTypeError: they are of another class; InvalidArgumentError: an option has
          different values.
        """
        if type(options) is not type(self):
            raise errors.InvalidTypeError(
                f"options of class {type(self).__name__} are required, got {options!r}"
            )
        merged = type(self)()
        for name in self._types:
            object.__setattr__(merged, name, _merge(name, vars(self)[name], vars(options)[name]))
        return merged

    def __repr__(self) -> str:
        options = {name: value for name, value in vars(self).items() if value is not None}
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in options.items())})"


def _merge(name: str, value: Any, other_value: Any) -> Any:
    if isinstance(value, OptionsBase) and isinstance(other_value, OptionsBase):
        return value.merge(other_value)
    if value is None or other_value is None or value == other_value:
        return other_value if value is None else value
    raise errors.InvalidArgumentError(
        f"Cannot merge incompatible values of option: {name} is {value!r} and {other_value!r}"
    )


class DistributeOptions(OptionsBase):
    """Options for dividing a dataset among workers.

    Attributes:
      auto_shard: bool.
      auto_shard_policy: `AutoShardPolicy`.
      num_devices: int.

    Examples:
      >>> options = wf.data.experimental.DistributeOptions()
      >>> options.auto_shard = False
    """

    _types: ClassVar[dict[str, type]] = {
        "auto_shard": bool,
        "auto_shard_policy": AutoShardPolicy,
        "num_devices": int,
    }


class MapVectorizationOptions(OptionsBase):
    """Options of the vectorization of maps.

    Attributes:
      enabled, use_choose_fastest: bool.

    Examples:
      >>> wf.data.experimental.MapVectorizationOptions().enabled is None
      True
    """

    _types: ClassVar[dict[str, type]] = {"enabled": bool, "use_choose_fastest": bool}


class OptimizationOptions(OptionsBase):
    """Options for optimizations of a dataset's graph.

    Attributes:
      apply_default_optimizations, autotune, autotune_buffers, filter_fusion,
        filter_with_random_uniform_fusion, hoist_random_uniform, inject_prefetch,
        map_and_batch_fusion, map_and_filter_fusion, map_fusion, map_parallelization,
        noop_elimination, parallel_batch, seq_interleave_prefetch, shuffle_and_repeat_fusion: bool.
      autotune_cpu_budget: int.
      map_vectorization: `MapVectorizationOptions`.

    Examples:
      >>> options = wf.data.experimental.OptimizationOptions()
      >>> options.map_fusion = True
    """

    _types: ClassVar[dict[str, type]] = {
        **dict.fromkeys(
            (
                "apply_default_optimizations",
                "autotune",
                "autotune_buffers",
                "filter_fusion",
                "filter_with_random_uniform_fusion",
                "hoist_random_uniform",
                "inject_prefetch",
                "map_and_batch_fusion",
                "map_and_filter_fusion",
                "map_fusion",
                "map_parallelization",
                "noop_elimination",
                "parallel_batch",
                "seq_interleave_prefetch",
                "shuffle_and_repeat_fusion",
            ),
            bool,
        ),
        "autotune_cpu_budget": int,
        "map_vectorization": MapVectorizationOptions,
    }


class AutotuneOptions(OptionsBase):
    """Options of autotuning.

    Attributes:
      enabled: bool.
      cpu_budget, ram_budget, initial_parallelism, min_parallelism: int.
      autotune_algorithm: `AutotuneAlgorithm`.

    Examples:
      >>> options = wf.data.Options()
      >>> options.autotune.ram_budget = 1 << 30
      >>> options.autotune.enabled is None
      True
    """

    _types: ClassVar[dict[str, type]] = {
        "enabled": bool,
        "cpu_budget": int,
        "ram_budget": int,
        "initial_parallelism": int,
        "min_parallelism": int,
        "autotune_algorithm": AutotuneAlgorithm,
    }


class ThreadingOptions(OptionsBase):
    """Options for numbers of threads.

    Attributes:
      max_intra_op_parallelism, private_threadpool_size: int.

    Examples:
      >>> options = wf.data.experimental.ThreadingOptions()
      >>> options.private_threadpool_size = 4
    """

    _types: ClassVar[dict[str, type]] = {
        "max_intra_op_parallelism": int,
        "private_threadpool_size": int,
    }


class Options(OptionsBase):
    """Options of a dataset.

    Options are checked, stored and merged, so programs that set them run. They have no effect on
    the elements or their order: pipelines are always deterministic.

    Attributes:
      deterministic, experimental_deterministic, experimental_slack: bool.
      autotune: `AutotuneOptions`.
      experimental_external_state_policy: `ExternalStatePolicy`.
      experimental_distribute: `DistributeOptions`.
      experimental_optimization: `OptimizationOptions`.
      experimental_threading, threading: `ThreadingOptions`.

    Examples:
      >>> options = wf.data.Options()
      >>> options.experimental_deterministic = True
      >>> dataset = wf.data.Dataset.range(3).with_options(options).batch(2)
      >>> dataset.options().experimental_deterministic
      True
    """

    _types: ClassVar[dict[str, type]] = {
        **dict.fromkeys(
            (
                "deterministic",
                "experimental_autotune",
                "experimental_autotune_buffers",
                "experimental_deterministic",
                "experimental_numa_aware",
                "experimental_slack",
            ),
            bool,
        ),
        "autotune": AutotuneOptions,
        "experimental_autotune_cpu_budget": int,
        "experimental_external_state_policy": ExternalStatePolicy,
        "experimental_distribute": DistributeOptions,
        "experimental_optimization": OptimizationOptions,
        "experimental_threading": ThreadingOptions,
        "threading": ThreadingOptions,
    }

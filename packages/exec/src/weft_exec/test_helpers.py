"""Test utilities in addition to `TestCase`: stubs, conditional skipping, benchmarks."""

from __future__ import annotations

__all__ = [
    "Benchmark",
    "StubOutForTesting",
    "benchmark_config",
    "disable_with_predicate",
    "is_built_with_xla",
    "is_cpu_target_available",
]

import functools
import platform
import statistics
import sys
import time
import unittest
from collections.abc import Callable
from typing import Any, Final

from weft_exec.session.session import Session
from weft_graph import proto
from weft_graph.ir.thread_stacks import get_default_session

_MACHINES: Final = {
    "x86_64": ("x86_64", "amd64"),
    "aarch64": ("aarch64", "arm64"),
    "arm": ("armv6l", "armv7l"),
    "ppc": ("ppc64", "ppc64le"),
}


class StubOutForTesting:
    """Replaces attributes and restores the originals; also a context manager.

    Examples:
      >>> import math
      >>> with wf.test.StubOutForTesting() as stubs:
      ...     stubs.Set(math, "tau", 6)
      ...     math.tau
      6
      >>> math.tau > 6
      True
    """

    def __init__(self) -> None:
        self._replaced: list[tuple[Any, str, Any]] = []

    def __enter__(self) -> StubOutForTesting:
        return self

    def __exit__(self, *_: object) -> None:
        self.CleanUp()

    def Set(self, parent: Any, child_name: str, new_child: Any) -> None:  # noqa: N802
        """Replace an attribute.

        Args:
          parent: the module, class or object that has the attribute.
          child_name: the name of the attribute.
          new_child: its new value.
        """
        self._replaced.append((parent, child_name, _get_stored(parent, child_name)))
        setattr(parent, child_name, new_child)

    SmartSet = Set

    def UnsetAll(self) -> None:  # noqa: N802
        """Restore all replaced attributes, in reverse order."""
        while self._replaced:
            setattr(*self._replaced.pop())

    SmartUnsetAll = CleanUp = UnsetAll


def _get_stored(parent: Any, name: str) -> Any:
    """Return an attribute as its owner stores it, which preserves static and class methods."""
    return vars(parent)[name] if name in getattr(parent, "__dict__", ()) else getattr(parent, name)


def disable_with_predicate(pred: Callable[[], Any], skip_message: str) -> Any:
    """Return a decorator that skips tests under a condition.

    Args:
      pred: called when a test is about to run; returns True to skip it.
      skip_message: the reason to show.

    Examples:
      >>> class Some(wf.test.TestCase):
      ...     @wf.test.disable_with_predicate(lambda: True, "there is no GPU")
      ...     def test_gpu(self):
      ...         raise AssertionError
      >>> Some("test_gpu").run().skipped[0][1]
      'there is no GPU'
    """

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(test)
        def checked(self: unittest.TestCase, *args: Any, **kwargs: Any) -> Any:
            if pred():
                self.skipTest(skip_message)
            return test(self, *args, **kwargs)

        return checked

    return decorate


def is_built_with_xla() -> bool:
    """Return False: weft does not contain TensorFlow's XLA.

    Examples:
      >>> wf.test.is_built_with_xla()
      False
    """
    return False


def is_cpu_target_available(target: str) -> bool:
    """Return True if the processor has the given architecture.

    Args:
      target: "x86_64", "aarch64", "arm" or "ppc".

    Examples:
      >>> wf.test.is_cpu_target_available("nonsense")
      False
    """
    return platform.machine().lower() in _MACHINES.get(target, ())


def benchmark_config() -> proto.ConfigProto:
    """Return the session options for benchmarks, with graph optimizations turned off.

    Examples:
      >>> wf.test.benchmark_config().graph_options.optimizer_options.opt_level
      -1
    """
    config = proto.ConfigProto()
    config.graph_options.optimizer_options.opt_level = -1
    return config


class Benchmark:
    """Base class of benchmarks.

    Examples:
      >>> x = wf.placeholder(wf.float32, [100])
      >>> benchmark = wf.test.Benchmark()
      >>> with wf.Session() as session:
      ...     found = benchmark.run_op_benchmark(session, wf.sin(x), {x: [0.0] * 100}, min_iters=3)
      name: Benchmark, iters: 3, wall_time: ...
      >>> sorted(found)
      ['extras', 'iters', 'name', 'throughput', 'wall_time']
    """

    def evaluate(self, tensors: Any) -> Any:
        """Return the values of `tensors`, computed in the default session or a new one.

        Args:
          tensors: a structure of tensors.
        """
        session = get_default_session()
        if session is not None:
            return session.run(tensors)
        with Session() as new_session:
            return new_session.run(tensors)

    def run_op_benchmark(
        self,
        sess: Any,
        op_or_tensor: Any,
        feed_dict: Any = None,
        burn_iters: int = 2,
        min_iters: int = 10,
        store_trace: bool = False,
        store_memory_usage: bool = False,
        name: str | None = None,
        extras: dict[str, Any] | None = None,
        mbs: float = 0,
    ) -> dict[str, Any]:
        """Run an op repeatedly and report the median time.

        Args:
          sess: the session.
          op_or_tensor: the fetch.
          feed_dict: the feeds.
          burn_iters: number of warm-up runs, which are not measured.
          min_iters: number of measured runs.
          store_trace: store a trace of one more run in the extras, as "full_trace_chrome_format".
          store_memory_usage: accepted for compatibility; the peak of a pool does not belong to one
            step.
          name: name of the benchmark.
          extras: additional values to report.
          mbs: megabytes that a run moves, for the throughput.
        Returns: the report; times in seconds, throughput in MB/s.
        """
        target = op_or_tensor
        for _ in range(burn_iters):
            sess.run(target, feed_dict)
        times = []
        for _ in range(max(1, min_iters)):
            started = time.perf_counter()
            sess.run(target, feed_dict)
            times.append(time.perf_counter() - started)
        median = statistics.median(times)
        results: dict[str, Any] = {"wall_time_mean": statistics.fmean(times), **(extras or {})}
        if store_trace:
            results["full_trace_chrome_format"] = _trace(sess, target, feed_dict)
        return self.report_benchmark(
            len(times), wall_time=median, throughput=mbs / median if mbs else 0.0, extras=results,
            name=name,
        )  # fmt: skip

    def report_benchmark(
        self,
        iters: int | None = None,
        cpu_time: float | None = None,
        wall_time: float | None = None,
        throughput: float | None = None,
        extras: dict[str, Any] | None = None,
        name: str | None = None,
        metrics: Any = None,
    ) -> dict[str, Any]:
        """Print the result of a benchmark.

        Args:
          iters: number of runs.
          cpu_time, wall_time: seconds.
          throughput: megabytes per second.
          extras: additional values.
          name: name of the benchmark; the class's name by default.
          metrics: additional metrics.
        Returns: the arguments that are set, by name.
        """
        results = {
            "name": name or type(self).__name__,
            "iters": iters,
            "cpu_time": cpu_time,
            "wall_time": wall_time,
            "throughput": throughput,
            "extras": extras,
            "metrics": metrics,
        }
        reported = {key: value for key, value in results.items() if value is not None}
        text = ", ".join(f"{key}: {value}" for key, value in reported.items() if key != "extras")
        sys.stdout.write(f"{text}\n")
        return reported


def _trace(sess: Any, target: Any, feed_dict: Any) -> str:
    from weft_exec.profiling.timeline import Timeline

    options = proto.RunOptions(trace_level=proto.RunOptions.FULL_TRACE)
    metadata = proto.RunMetadata()
    sess.run(target, feed_dict, options=options, run_metadata=metadata)
    return Timeline(metadata.step_stats).generate_chrome_trace_format()

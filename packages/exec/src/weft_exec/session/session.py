"""Session: Extend and Run (paper, sections 2 and 4.2).

A Run's signature (fetches, feeds, targets) is looked up; on a miss it is derived once: pruned,
optimised, placed, and made into an executable.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from weft_exec.config import SessionConfig
from weft_exec.devices.device import DeviceAttributes, make_devices
from weft_exec.executor.context import StepContext
from weft_exec.executor.driver import Driver, checker
from weft_exec.executor.executable import Executable
from weft_exec.executor.overlap import Overlap
from weft_exec.executor.pool import shared_pool
from weft_exec.executor.quiet import quietly
from weft_exec.kernels.random_counters import in_new_step
from weft_exec.resources import containers
from weft_exec.session import blas
from weft_exec.session.feeds import converter, unknown_size
from weft_exec.session.fetches import FetchPlan, expand_feed, structure_key
from weft_exec.session.growth import GrowthWatch
from weft_exec.session.planning import Planner
from weft_exec.tracing import StepTrace
from weft_graph.ir import stacks
from weft_graph.ir.gc_pause import paused_gc
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Node, Output
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.costs import CostModel
    from weft_exec.session.explain import StepReport

_log = logging.getLogger("weft")
_GROWS = 8
"""What part of the sizes that it was planned for a step may have more without a new plan."""

_LARGEST_CACHE = 1024
"""Signatures kept; the oldest goes, since a program that makes new ones rarely comes back."""


class _Signature:
    """One cached Run: how to convert feeds, what to execute, how to return results."""

    __slots__ = (
        "converters",
        "executable",
        "feed_slots",
        "feeds",
        "plan",
        "planned_at",
        "single",
        "size",
        "steps",
    )

    def __init__(
        self,
        plan: FetchPlan,
        executable: Executable,
        feeds: Sequence[Output],
        single: bool,
        planned_at: int,
        size: int,
    ) -> None:
        self.plan = plan
        self.executable = executable
        self.converters = tuple([converter(feed) for feed in feeds])
        self.feed_slots = executable.feed_slots
        self.feeds = tuple(feeds)
        self.single = single
        self.planned_at = planned_at
        self.size = size
        self.steps = 0

    def slots(self, values: Any) -> list[Any]:
        """The slots of a new step, with the fed values in place."""
        slots = self.executable.template.copy()
        for convert, slot, value in zip(self.converters, self.feed_slots, values, strict=True):
            slots[slot] = convert(value)
        return slots


class BaseSession:
    """Runs a graph; see `Session` for the context manager.

    Args:
      target: "" for this process alone; `inproc://name` to share state with other sessions on it.
      graph: the default graph by default.
      config: a ConfigProto.
    Raises: InvalidArgumentError: the target's scheme is unknown.
    """

    def __init__(self, target: str = "", graph: Graph | None = None, config: Any = None) -> None:
        if target and not target.startswith("inproc://"):
            raise errors.InvalidArgumentError(
                f"a session's target must be '' or inproc://NAME, got {target!r}"
            )
        if graph is not None and not isinstance(graph, Graph):
            raise errors.InvalidTypeError(f"graph must be a Graph, got {graph!r}")
        self._target = target
        self._graph = graph or stacks.get_default_graph()
        self._config = SessionConfig.from_proto(config)
        blas.limit_once(self._config.intra_op_threads)
        self._resources = containers.resources_for(target)
        self._devices = make_devices(self._resources, self._config)
        threads = self._config.inter_op_threads
        self._pool = shared_pool(threads) if threads > 1 else None
        overlap = Overlap.of(self._config.executor_type, threads)
        self._planner = Planner(self._devices, self._config, overlap)
        watched = self._config.timeout_ms or self._config.measure_every or self._planner.limited
        self._plain = not watched
        self._cache: dict[Any, _Signature] = {}
        self._extended = 0
        self._epoch = self._resources.epoch
        self._growth = GrowthWatch()
        self._measurements = 0
        self._closed = False
        self._failed_beside: Callable[[], BaseException | None] | None = None
        self._steps: set[StepContext] = set()
        self._executables: weakref.WeakSet[Executable] = weakref.WeakSet()
        self._entered = False
        self._lock = threading.RLock()

    # ---------------------------------------------------------------- properties

    @property
    def graph(self) -> Graph:
        """The graph it runs."""
        return self._graph

    @property
    def graph_def(self) -> Any:
        """The graph as a GraphDef message."""
        return self._graph.as_graph_def()

    @property
    def sess_str(self) -> str:
        """The target."""
        return self._target

    @property
    def resources(self) -> Any:
        """The variables, queues and counters it sees."""
        return self._resources

    def list_devices(self) -> list[DeviceAttributes]:
        """The devices it may place nodes on."""
        self._check_open()
        return [DeviceAttributes(device) for device in self._devices]

    # ----------------------------------------------------------------------- run

    def run(
        self,
        fetches: Any,
        feed_dict: Mapping[Any, Any] | None = None,
        options: Any = None,
        run_metadata: Any = None,
    ) -> Any:
        """Run one step.

        Args:
          fetches: outputs, nodes, names ("bar:1"), variables, sparse values, or any nesting of
            lists, tuples, named tuples and mappings of these.
          feed_dict: outputs, or their names, to the values that take their place.
          options: RunOptions: `timeout_in_ms`, `trace_level`.
          run_metadata: RunMetadata, filled in when a trace is asked for.
        Returns: the structure of `fetches` with values in place: arrays and NumPy scalars that
          belong to the caller, bytes for rank-0 strings, None for nodes.
        Raises:
          FailedPreconditionError: the session is closed, or a variable has no value.
          InvalidArgumentError: a feed does not fit, a placeholder is not fed, or an element is of
            another graph.
          NotFoundError: a name is unknown.
          DeadlineExceededError: the step ran past its timeout.
          OpError: a kernel failed; the message says where.
        """
        kind = type(fetches)
        single = kind is Output or kind is Node
        try:
            key = (fetches if single else structure_key(fetches), tuple(feed_dict or ()))
            signature = self._cache.get(key)
        except TypeError:
            signature = None
        if (
            signature is None
            or self._extended != len(self._graph.nodes)
            or self._closed
            or self._epoch != self._resources.epoch
        ):
            signature, feed_dict = self._signature(key, fetches, feed_dict)
        values: Any = ()
        if feed_dict:
            if not isinstance(feed_dict, Mapping):
                raise errors.InvalidTypeError(f"feed_dict must be a mapping, got {feed_dict!r}")
            values = feed_dict.values()
        if options is None and self._plain:
            results = self._execute(signature, values)
        else:
            signature = self._fitting(signature, values)
            results = self._execute_with(signature, values, options, run_metadata)
        return results[0] if signature.single else signature.plan.rebuild(results)

    def _execute(self, signature: _Signature, values: Any) -> list[Any]:
        executable = signature.executable
        slots = signature.slots(values)
        run = executable.run_line
        if run is None:
            return self._drive(executable, slots, None, None)
        try:
            quietly(run, slots)
        except errors.OpError as error:
            if self._closed:
                raise errors.CancelledError("the session was closed while the step ran") from error
            raise
        return executable.results(slots)

    def _execute_with(
        self, signature: _Signature, values: Any, options: Any, run_metadata: Any
    ) -> list[Any]:
        timeout = getattr(options, "timeout_in_ms", 0) or self._config.timeout_ms
        traced = bool(getattr(options, "trace_level", 0))
        measured = self._is_measured(signature)
        trace = StepTrace() if traced or measured else None
        deadline = time.monotonic() + timeout / 1000 if timeout else None
        results = self._drive(signature.executable, signature.slots(values), deadline, trace)
        if trace is not None and measured:
            self._measure(signature, trace, run_metadata)
        if trace is not None and traced and run_metadata is not None:
            trace.fill(run_metadata, self._devices[0].name)
        if getattr(options, "output_partition_graphs", False) and run_metadata is not None:
            plan = signature.plan
            report = self._planner.explain(
                signature.feeds, plan.outputs, plan.targets, signature.size
            )
            run_metadata.partition_graphs.extend(report.parts())
        return results

    def _is_measured(self, signature: _Signature) -> bool:
        """Whether the step that begins tells the cost model what it takes."""
        every, after = self._config.measure_every, self._config.measure_after
        signature.steps += 1
        return bool(every) and signature.steps > after and (signature.steps - after) % every == 0

    def _measure(self, signature: _Signature, trace: StepTrace, run_metadata: Any) -> None:
        costs = self._planner.costs
        costs.observe(trace.records)
        self._measurements += 1
        if self._is_outdated(signature):
            with self._lock:
                for key in [key for key, found in self._cache.items() if found is signature]:
                    del self._cache[key]
        if run_metadata is not None:
            from weft_exec.costs import fill_cost_graph

            places = {record.node: record.device for record in trace.records}
            devices = {device.name: device for device in self._devices}
            fill_cost_graph(run_metadata, places, lambda node: devices[places[node]], costs)

    def _is_outdated(self, signature: _Signature) -> bool:
        """Whether enough was measured since it was placed to place it anew."""
        return len(self._devices) > 1 and self._measurements > 2 * signature.planned_at

    def _drive(
        self, executable: Executable, slots: list[Any], deadline: float | None, trace: Any
    ) -> list[Any]:
        context = StepContext(deadline, self._resources.default_container)
        self._steps.add(context)
        try:
            if self._closed:
                raise _closed_error()
            if executable.linear is not None:
                record = None if trace is None else trace.record
                run = executable.linear.run_checked
                quietly(in_new_step, run, slots, checker(context), record)
            else:
                quietly(Driver(executable, slots, context, self._pool, trace).run)
        except errors.OpError as error:
            if self._closed and not isinstance(error, errors.CancelledError):
                raise errors.CancelledError("the session was closed while the step ran") from error
            raise
        finally:
            self._steps.discard(context)
        return executable.results(slots)

    def make_callable(
        self, fetches: Any, feed_list: Sequence[Any] | None = None, accept_options: bool = False
    ) -> Callable[..., Any]:
        """A function that runs one signature with the least overhead.

        Args:
          fetches: as for `run`.
          feed_list: outputs or names; the function takes one positional value for each.
          accept_options: let the function take `options=` and `run_metadata=`.
        """
        self._check_open()
        self._extend()
        feeds = self._outputs(feed_list)
        if len(set(feeds)) != len(feeds):
            raise errors.InvalidArgumentError("feed_list names one tensor twice")
        plan = FetchPlan(self._graph, fetches)
        single = isinstance(fetches, Output)
        state: list[Any] = []

        def refresh() -> None:
            self._check_open()
            state[:] = [self._derive(plan, feeds, single), self._epoch]

        refresh()
        execute = self._execute

        def call(*values: Any, options: Any = None, run_metadata: Any = None) -> Any:
            if self._closed or state[1] != self._resources.epoch:
                self._refresh_epoch()
                refresh()
            if len(values) != len(feeds):
                raise errors.InvalidArgumentError(
                    f"the callable takes {len(feeds)} values, got {len(values)}"
                )
            signature: _Signature = state[0]
            if not self._plain:
                signature = state[0] = self._fitting(signature, values)
            if options is not None and not accept_options:
                raise errors.InvalidArgumentError("make_callable without accept_options=True")
            if options is None and self._plain:
                results = execute(signature, values)
            else:
                results = self._execute_with(signature, values, options, run_metadata)
                if self._is_outdated(signature):
                    refresh()
            return results[0] if signature.single else signature.plan.rebuild(results)

        return call

    def explain(self, fetches: Any, feed_list: Sequence[Any] | None = None) -> StepReport:
        """What becomes of a step before it runs: its stages, and where each node goes and why.

        Args:
          fetches: as for `run`.
          feed_list: outputs or names that would be fed.
        Raises: OpError: as `run` before it runs anything.
        """
        self._check_open()
        with self._lock:
            self._extend()
            plan = FetchPlan(self._graph, fetches)
            feeds = self._outputs(feed_list)
            known = self._cache.get((structure_key(fetches), tuple(feeds)))
            size = 0 if known is None else known.size
            return self._planner.explain(feeds, plan.outputs, plan.targets, size)

    def _outputs(self, names: Sequence[Any] | None) -> list[Any]:
        element = self._graph.as_graph_element
        return [element(name, allow_operation=False) for name in names or ()]

    @property
    def cost_model(self) -> CostModel:
        """What placement simulates with; `load` and `save` keep its measurements."""
        return self._planner.costs

    # ----------------------------------------------------------------- derivation

    def _signature(
        self, key: Any, fetches: Any, feed_dict: Any
    ) -> tuple[_Signature, dict[Output, Any]]:
        self._check_open()
        if feed_dict is not None and not isinstance(feed_dict, Mapping):
            raise errors.InvalidTypeError(f"feed_dict must be a mapping, got {feed_dict!r}")
        with self._lock:
            self._refresh_epoch()
            self._extend()
            pairs: list[tuple[Output, Any]] = []
            as_they_are = True
            for feed, value in (feed_dict or {}).items():
                expanded = expand_feed(self._graph, feed, value)
                as_they_are &= len(expanded) == 1 and expanded[0][1] is value
                pairs.extend(expanded)
            feeds = dict(pairs)
            if len(feeds) != len(pairs):
                raise errors.InvalidArgumentError("feed_dict feeds one tensor twice")
            expanded_key = (key[0], tuple(feeds))
            signature = self._cache.get(expanded_key)
            if signature is None:
                plan = FetchPlan(self._graph, fetches)
                size = unknown_size(list(feeds), feeds.values())
                signature = self._derive(plan, list(feeds), isinstance(fetches, Output), size)
                self._keep(expanded_key, signature)
            if as_they_are:
                self._keep(key, signature)
        return signature, feeds

    def _keep(self, key: Any, signature: _Signature) -> None:
        if len(self._cache) >= _LARGEST_CACHE:
            del self._cache[next(iter(self._cache))]
        self._cache[key] = signature

    def _derive(
        self, plan: FetchPlan, feeds: Sequence[Any], single: bool, size: int = 0
    ) -> _Signature:
        with self._lock, paused_gc():
            executable = self._planner.plan(feeds, plan.outputs, plan.targets, size)
            self._executables.add(executable)
        return _Signature(plan, executable, feeds, single, self._measurements, size)

    def _fitting(self, signature: _Signature, values: Iterable[Any]) -> _Signature:
        """A signature planned for sizes like those of some feeds, where that matters."""
        if not self._planner.limited:
            return signature
        size = unknown_size(signature.feeds, values)
        if size <= signature.size + signature.size // _GROWS:
            return signature
        found = self._derive(signature.plan, signature.feeds, signature.single, size)
        with self._lock:
            for key in [key for key, old in self._cache.items() if old is signature]:
                self._cache[key] = found
        return found

    def _extend(self) -> None:
        with self._lock:
            nodes = self._graph.nodes
            count = self._graph.complete
            if count == self._extended:
                return
            self._growth.extended(nodes, self._extended)
            self._planner.extend(nodes[self._extended : count])
            self._extended = count
            self._graph.mark_extended(count)

    def _refresh_epoch(self) -> None:
        if self._epoch != self._resources.epoch:
            self._cache.clear()
            self._epoch = self._resources.epoch

    # ------------------------------------------------------------------- lifetime

    def close(self) -> None:
        """Cancel running steps and release the session's own state; closing twice is fine."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._cache.clear()
        for executable in list(self._executables):
            executable.cancel()
        for context in list(self._steps):
            context.cancellation.cancel(errors.CancelledError("the session was closed"))
        if not self._target:
            self._resources.clear()

    @staticmethod
    def reset(target: str, containers: Sequence[str] | None = None, config: Any = None) -> None:
        """Drop the state that sessions on `target` share.

        Args:
          target: a session target.
          containers: names; all by default.
        """
        _reset(target, containers)

    def fail_next_step(self, take: Callable[[], BaseException | None]) -> None:
        """Let the next step raise what failed beside the steps, such as a save; from any thread.

        Args:
          take: gives the error, or None where somebody else has raised it meanwhile.
        """
        self._failed_beside = take
        self._resources.advance_epoch()

    def _check_open(self) -> None:
        if self._closed:
            raise _closed_error()
        take, self._failed_beside = self._failed_beside, None
        error = None if take is None else take()
        if error is not None:
            raise error


_reset = containers.reset


def _closed_error() -> errors.FailedPreconditionError:
    return errors.FailedPreconditionError("the session has been closed")


class Session(BaseSession):
    """A session that is also a context manager: inside it is the default session."""

    def __enter__(self) -> Session:
        if self._entered:
            raise errors.FailedPreconditionError("the session has been entered already")
        self._entered = True
        self._graph_scope = self._graph.as_default()
        self._graph_scope.__enter__()
        stacks.push_session(self)
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        self._entered = False
        stacks.pop_session(self)
        self._graph_scope.__exit__(None, None, None)
        self.close()

    def as_default(self) -> Any:
        """Make it the default session inside the block, without closing it."""
        return _default(self)


class _default:  # noqa: N801 - a context manager used as a function
    def __init__(self, session: BaseSession) -> None:
        self._session = session

    def __enter__(self) -> BaseSession:
        stacks.push_session(self._session)
        return self._session

    def __exit__(self, *_: Any) -> None:
        stacks.pop_session(self._session)


class InteractiveSession(BaseSession):
    """A session that makes itself the default one as soon as it is made."""

    def __init__(self, target: str = "", graph: Graph | None = None, config: Any = None) -> None:
        super().__init__(target, graph, config)
        self._own_graph = graph
        if graph is not None:
            stacks.push_graph(graph)
        stacks.push_session(self)

    def close(self) -> None:
        """Close it and leave the stack of default sessions."""
        if not self._closed:
            stacks.drop(self, self._own_graph)
        super().close()

"""Base class of sessions: Extend and Run (paper, sections 2 and 4.2).

The signature of a Run (fetches, feeds, targets) is looked up in a cache. On a miss, the graph is
pruned, optimized and placed, and an executable is derived from it.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from weft_exec.config import SessionConfig
from weft_exec.devices.device import DeviceAttributes
from weft_exec.executor.memory_budget import unknown_size
from weft_exec.executor.runner import closed_error
from weft_exec.session.fetches import FetchPlan, expand_feed, structure_key
from weft_exec.session.graph_growth import GrowthWatch
from weft_exec.session.signature import Signature
from weft_exec.session.target import find_target
from weft_exec.session.uninitialized_variables import advise
from weft_exec.session.update_ops import UpdateOpsWatch
from weft_exec.tracing import consumers
from weft_exec.tracing.environment import SessionRecordings, start_once
from weft_exec.tracing.records import records_of
from weft_exec.tracing.step_trace import StepTrace, clock
from weft_graph import proto
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.gc_pause import pause_gc
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Node, Output
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.costs import CostModel
    from weft_exec.executor.native.input_recording import InputRecorder
    from weft_exec.session.explain import StepReport
    from weft_exec.session.partial import PartialRun, PartialSignature
    from weft_exec.session.tensor_handle import HandleStore
    from weft_exec.tracing.consumers import TasksRecording

_log = logging.getLogger("weft")
_MAY_GROW = 8
"""Reciprocal of the fraction by which statically unknown sizes may exceed those of a plan: a
plan for 32 is used for 36.
"""

_LARGEST_CACHE = 1024
"""Maximum number of cached signatures; the oldest is evicted, because it is rarely used again."""


def _seconds_until(deadline: float | None) -> float:
    """Return the timeout of a lock acquisition with a deadline; -1 for no limit."""
    if deadline is None:
        return -1
    return min(max(deadline - time.monotonic(), 0.0), threading.TIMEOUT_MAX)


def _session_tensors(session: weakref.ref[BaseSession]) -> HandleStore:
    """Return the session's kept values, without a strong reference from its own signatures."""
    running = session()
    assert running is not None  # a session that fetched a value is alive
    return running._backend.kept_tensors(running)


class BaseSession:
    """Runs a graph; see `Session` for the context manager.

    Args:
      target: "" for private state in this process; `inproc://name` to share state with other
        sessions on that name; or a target of another package (`session/target.py`).
      graph: the default graph by default.
      config: a ConfigProto.
    Raises: InvalidArgumentError: the target's scheme is unknown.
    """

    def __init__(self, target: str = "", graph: Graph | None = None, config: Any = None) -> None:
        if graph is not None and not isinstance(graph, Graph):
            raise errors.InvalidTypeError(f"graph must be a Graph, got {graph!r}")
        self._target = target
        self._graph = graph or get_default_graph()
        self._settings = SessionConfig.from_proto(config)
        self._backend = find_target(target).connect(target, self._settings)
        self._resources = self._backend.resources
        self._runner = self._backend.runner
        config = self._settings
        self._watched = bool(config.timeout_ms or config.measure_every or self._backend.limited)
        self._get_tensors = partial(_session_tensors, weakref.ref(self))
        self._cache: dict[Any, Signature] = {}
        self._num_planned_nodes = 0
        self._epoch = self._resources.epoch
        self._growth = GrowthWatch()
        self._updates = UpdateOpsWatch()
        start_once()
        self._recordings = SessionRecordings(*config.trace)
        self._is_recorded = False
        self._measurements = 0
        self._partial_signatures: dict[Any, PartialSignature] = {}
        self._partial_runs: dict[str, PartialRun] = {}
        self._handles = 0
        self._closed = False
        self._failed_beside: Callable[[], BaseException | None] | None = None
        self._is_entered = False
        self._lock = threading.RLock()
        consumers.watch(self)
        self.tracing_changed()

    def __repr__(self) -> str:
        closed = ", closed" if self._closed else ""
        return f"<weft.{type(self).__name__} on {self._target!r} of {self._graph!r}{closed}>"

    # ---------------------------------------------------------------- properties

    @property
    def graph(self) -> Graph:
        """The graph that the session runs."""
        return self._graph

    @property
    def graph_def(self) -> Any:
        """The graph as a GraphDef message, with shapes if `graph_options.infer_shapes` is set."""
        config = self._settings.proto
        shapes = config is not None and config.graph_options.infer_shapes
        return self._graph.as_graph_def(add_shapes=shapes)

    @property
    def _config(self) -> Any:
        """The ConfigProto, under the name that TensorFlow programs access."""
        config = self._settings.proto
        return proto.ConfigProto() if config is None else config

    @property
    def sess_str(self) -> str:
        """The target."""
        return self._target

    @property
    def resources(self) -> Any:
        """The variables, queues and counters of the session."""
        return self._resources

    def list_devices(self) -> list[DeviceAttributes]:
        """Return the devices that the session may place nodes on.

        Examples:
          >>> [device.name for device in wf.Session().list_devices()]
          ['/job:localhost/replica:0/task:0/device:CPU:0']
        """
        self._check_open()
        return list(self._backend.devices)

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
          feed_dict: values by output or output name; they replace the outputs.
          options: RunOptions: `timeout_in_ms`, `trace_level`, `output_partition_graphs`.
          run_metadata: RunMetadata; its contents are replaced by the trace and the graphs that
            `options` request.
        Returns: the structure of `fetches` with values in place: arrays and NumPy scalars that
          belong to the caller, bytes for rank-0 strings, None for nodes.
        Raises:
          FailedPreconditionError: the session is closed, or a variable has no value.
          InvalidArgumentError: a feed does not fit, a placeholder is not fed, or an element is of
            another graph.
          NotFoundError: a name is unknown.
          DeadlineExceededError: the step ran past its timeout; or planning it, which the first run
            of a signature does before the step, waited longer than that for other tasks or threads.
          OpError: a kernel failed; the message says where.

        Examples:
          >>> x = wf.placeholder(wf.float32, name="x")
          >>> y = {"double": 2.0 * x, "pair": (x + 1.0, x - 1.0)}
          >>> session = wf.Session()
          >>> session.run(y, feed_dict={x: 3.0})
          {'double': np.float32(6.0), 'pair': (np.float32(4.0), np.float32(2.0))}
          >>> session.run("x:0", {"x:0": 4.0})
          np.float32(4.0)
        """
        kind = type(fetches)
        single = kind is Output or kind is Node
        try:
            key = (fetches if single else structure_key(fetches), tuple(feed_dict or ()))
            signature = self._cache.get(key)
        except TypeError:  # unhashable fetches or feeds are not cached
            key, signature = (object(), ()), None
        if (
            signature is None
            or self._num_planned_nodes != len(self._graph.nodes)
            or self._closed
            or self._epoch != self._resources.epoch
        ):
            start = clock()
            deadline = self._deadline(options)
            signature, feed_dict = self._signature(key, fetches, feed_dict, deadline)
            consumers.note_phase("plan", start)
        values: Any = ()
        if feed_dict:
            # A check for an abstract class is slow compared with the rest.
            if type(feed_dict) is not dict and not isinstance(feed_dict, Mapping):
                raise errors.InvalidTypeError(f"feed_dict must be a mapping, got {feed_dict!r}")
            values = feed_dict.values()
        return self._step(signature, values, options, run_metadata)

    def _step(self, signature: Signature, values: Any, options: Any, run_metadata: Any) -> Any:
        """Run one step of a signature with fed values; returns the result of `run`."""
        if run_metadata is not None:
            run_metadata.ClearField("step_stats")  # costs remain those of the last measured step
            run_metadata.ClearField("partition_graphs")
        try:
            executable = signature.executable
            if options is None and self._plain and executable.warm_up is None:
                results = self._runner.run(executable, signature.slots(executable, values))
            else:
                results = self._run_watched(signature, values, options, run_metadata)
        except errors.OpError as error:
            self._explain_failure(error, signature.plan.targets)
            raise
        return results[0] if signature.single else signature.plan.rebuild(results)

    def tracing_changed(self) -> None:
        """Determine if steps may take the fast path, which records and checks nothing."""
        watched = self._watched or self._updates.is_counting or consumers.is_active()
        self._plain = not watched

    def memory_in_use(self) -> dict[str, tuple[int, int]]:
        """Return the bytes in use and the free bytes in the pool of each device of this process.

        Returns: empty for a session without recorded steps.
        """
        return self._backend.memory_in_use() if self._is_recorded else {}

    def record_tasks(self) -> TasksRecording | None:
        """Start recording the tasks of other processes that run its steps, if there are any."""
        return None if self._closed else self._backend.record_tasks()

    def _explain_failure(self, error: errors.OpError, targets: Sequence[Node]) -> None:
        """Add the graph operation and, for missing values, advice to an error."""
        if error.node is not None:
            operation = self._graph.find_node(error.node)
            if operation is not None:
                error.of_operation(operation)
        if isinstance(error, errors.FailedPreconditionError):
            advise(error, self._graph, self._resources, targets)

    def _run_watched(
        self, signature: Signature, values: Any, options: Any, run_metadata: Any
    ) -> list[Any]:
        """Run one step with a timeout, a trace or measurements, or with a new plan."""
        if signature.skips_updates:
            self._updates.count_step()
            self.tracing_changed()
        self._fit(signature, values, self._deadline(options))
        traced = bool(getattr(options, "trace_level", 0))
        measured = self._is_measured(signature)
        trace: StepTrace | None
        if consumers.is_active():
            is_kept = traced or measured
            results, trace = self._run_recorded(signature, values, options, is_kept)
        else:
            trace = StepTrace() if traced or measured else None
            results = self._run_signature(signature, values, options, trace)
        if trace is not None and traced and trace.empty:
            trace.record_fetch(signature.plan.outputs, results, self._backend.devices[0].name)
        if trace is not None and measured:
            self._measure(signature, trace, run_metadata)
        if trace is not None and traced and run_metadata is not None:
            from weft_exec.tracing.step_stats import fill_metadata

            fill_metadata(run_metadata, trace, self._backend.devices[0].name)
        if getattr(options, "output_partition_graphs", False) and run_metadata is not None:
            plan = signature.plan
            report = self._backend.explain(
                signature.feeds, plan.outputs, plan.targets, signature.size
            )
            run_metadata.partition_graphs.extend(report.parts())
        return results

    def _run_recorded(
        self, signature: Signature, values: Any, options: Any, is_kept: bool
    ) -> tuple[list[Any], StepTrace]:
        """Run one step, and send its record to all consumers.

        Args:
          is_kept: True if the record is for the caller, too.
        """
        self._is_recorded = True
        trace = consumers.begin_step(signature.label, is_kept)
        failed = True
        try:
            results = self._run_signature(signature, values, options, trace)
            failed = False
        finally:
            consumers.end_step(trace, failed)
        return results, trace

    def _run_signature(
        self, signature: Signature, values: Any, options: Any, trace: StepTrace | None
    ) -> list[Any]:
        """Run one step, optionally with a deadline and a trace."""
        deadline = self._deadline(options)
        executable = signature.executable
        warm_up = executable.warm_up
        start = 0.0 if warm_up is None else warm_up.begin()
        fed = clock()
        slots = signature.slots(executable, values)
        if trace is not None:
            trace.record_phase("feed", fed, clock())
        if deadline is None and trace is None:
            results = self._runner.run(executable, slots)
        else:
            results = self._runner.run_watched(executable, slots, deadline, trace)
        if warm_up is not None:
            warm_up.end(start)
            signature.outdated |= warm_up.is_over
        return results

    def _deadline(self, options: Any) -> float | None:
        """Return the deadline, in the time of `time.monotonic()`, of a call that begins now.

        None for no limit.
        """
        timeout = getattr(options, "timeout_in_ms", 0) or self._settings.timeout_ms
        return time.monotonic() + timeout / 1000 if timeout else None

    def _is_measured(self, signature: Signature) -> bool:
        """Return True if the cost model should measure the step that begins."""
        interval, warm_up_steps = self._settings.measure_every, self._settings.measure_after
        signature.steps += 1
        return (
            bool(interval)
            and signature.steps > warm_up_steps
            and (signature.steps - warm_up_steps) % interval == 0
        )

    def _measure(self, signature: Signature, trace: StepTrace, run_metadata: Any) -> None:
        self._backend.observe(records_of(trace), run_metadata)
        self._measurements += 1
        has_several = len(self._backend.devices) > 1
        signature.outdated = has_several and self._measurements > 2 * signature.planned_at

    def make_callable(
        self, fetches: Any, feed_list: Sequence[Any] | None = None, accept_options: bool = False
    ) -> Callable[..., Any]:
        """Return a function that runs one signature with the least overhead.

        Args:
          fetches: as for `run`.
          feed_list: outputs or names; the function takes one positional value for each.
          accept_options: let the function take `options=` and `run_metadata=`.
        Returns: a function of the fed values that returns what `run` would return.
        Raises:
          InvalidArgumentError: `feed_list` names a tensor twice.
          NotFoundError: a name is unknown.

        Examples:
          >>> x = wf.placeholder(wf.float32, [2])
          >>> square = wf.Session().make_callable(x * x, feed_list=[x])
          >>> square([1.0, 3.0])
          array([1., 9.], dtype=float32)
        """
        self._check_open()
        with self._planning(self._deadline(None)):
            self._extend()
            feeds = self._outputs(feed_list)
            if len(set(feeds)) != len(feeds):
                raise errors.InvalidArgumentError(
                    "feed_list must name different tensors, got one twice"
                )
            plan = FetchPlan(self._graph, fetches, self._get_tensors)
            single = isinstance(fetches, Output)
            signature = self._derive(plan, feeds, single)
            epoch = self._epoch

        def call(*values: Any, options: Any = None, run_metadata: Any = None) -> Any:
            nonlocal signature, epoch
            if self._closed or epoch != self._resources.epoch:
                self._refresh_epoch()
                self._check_open()
                with self._planning(self._deadline(options)):
                    signature, epoch = self._derive(plan, feeds, single), self._epoch
            if len(values) != len(feeds):
                raise errors.InvalidArgumentError(
                    f"the callable takes {len(feeds)} values, got {len(values)}"
                )
            if options is not None and not accept_options:
                raise errors.InvalidArgumentError(
                    "the callable accepts options and run_metadata only if make_callable was "
                    "called with accept_options=True"
                )
            return self._step(signature, values, options, run_metadata)

        return call

    def partial_run_setup(self, fetches: Any, feeds: Sequence[Any] | None = None) -> str:
        """Start a step that is fed and fetched in several calls of `partial_run`.

        Args:
          fetches: everything that will be fetched, as for `run`. Nodes among them run for their
            effects as soon as they can.
          feeds: everything that will be fed: outputs or names.
        Returns: a handle for `partial_run`. Several partial runs may be in progress concurrently. A
          run that is never finished ends with the session.
        Raises:
          InvalidArgumentError: there are no fetches, or one of the tensors cannot be fed or
            fetched.
          NotFoundError: a name is unknown.
          UnimplementedError: the session's target does not support partial runs.

        Examples:
          >>> a, b = wf.placeholder(wf.float32, []), wf.placeholder(wf.float32, [])
          >>> double, total = 2.0 * a, 2.0 * a + b
          >>> session = wf.Session()
          >>> handle = session.partial_run_setup([double, total], [a, b])
          >>> first = session.partial_run(handle, double, {a: 3.0})
          >>> session.partial_run(handle, total, {b: first + 1.0})
          np.float32(13.0)
        """
        from weft_exec.session.partial import PartialSignature

        self._check_open()
        with self._planning(self._deadline(None)):
            self._refresh_epoch()
            self._extend()
            key = (structure_key(fetches), structure_key(list(feeds or ())))
            signature = self._partial_signatures.get(key)
            if signature is None:
                signature = PartialSignature(self._graph, fetches, feeds or ())
            run = self._backend.begin_partial(signature)
            self._partial_signatures[key] = signature
            self._handles += 1
            handle = f"partial_run_{self._handles}"
            self._partial_runs[handle] = run
        return handle

    def partial_run(
        self, handle: str, fetches: Any, feed_dict: Mapping[Any, Any] | None = None
    ) -> Any:
        """Feed more values of a partial run, and fetch values that can be computed by then.

        All other nodes that can run with the values fed so far have run when this returns.

        Args:
          handle: the result of `partial_run_setup`.
          fetches: some of the announced fetches, each at most once, in any structure.
          feed_dict: values of some of the announced feeds, each at most once.
        Returns: the structure of `fetches` with values in place.
        Raises:
          InvalidArgumentError: the handle is invalid or its step has ended; a feed or fetch was not
            announced, is repeated or does not match; a fetch is a node, or needs values that
            were not fed.
          OpError: see `run`; the step has ended.

        Examples:
          >>> x = wf.placeholder(wf.int32, [])
          >>> session = wf.Session()
          >>> handle = session.partial_run_setup([x + 1, x * x], [x])
          >>> session.partial_run(handle, [], {x: 5})
          []
        """
        self._check_open()
        run = self._partial_runs.get(handle)
        if run is None:
            raise errors.InvalidArgumentError(
                f"{handle!r} is not a partial run of this session, or its step has ended; "
                "call partial_run_setup to begin one"
            )
        plan = FetchPlan(self._graph, fetches, self._get_tensors)
        if plan.targets:
            raise errors.InvalidArgumentError(
                f"{plan.targets[0].name!r} is an operation, which has no value: pass it to "
                "partial_run_setup only; it runs as soon as its inputs are available"
            )
        pairs = [p for f, v in (feed_dict or {}).items() for p in expand_feed(self._graph, f, v)]
        timeout = self._settings.timeout_ms
        try:
            values = run.run(plan.outputs, pairs, timeout / 1000 if timeout else None)
        except errors.OpError as error:
            self._explain_failure(error, plan.targets)
            raise
        finally:
            if run.ended:
                self._partial_runs.pop(handle, None)
        return plan.rebuild(values)

    def explain(
        self,
        fetches: Any,
        feed_list: Sequence[Any] | None = None,
        *,
        feed_dict: Mapping[Any, Any] | None = None,
        verbose: bool = False,
    ) -> StepReport:
        """Explain the plan of a step: its stages, the placement, and the compiled regions.

        Args:
          fetches: as for `run`.
          feed_list: outputs or names that would be fed.
          feed_dict: values as for `run`, in place of `feed_list`; may be empty. If it is given, the
            step is run once with kernels, with all its side effects. Then each compiled function is
            timed on copies of its inputs, and the report includes the times.
          verbose: add the remarks of the compiler's passes to the text of the report: the rewrites
            of each function, and the reasons for missed rewrites. This requires `feed_dict`.
        Raises:
          OpError: see `run`; without `feed_dict`, it is raised before anything runs.
          InvalidArgumentError: both `feed_list` and `feed_dict` are given.

        Examples:
          >>> x = wf.placeholder(wf.float32, [None])
          >>> y = wf.tanh(x) * 2.0
          >>> session = wf.Session()
          >>> [node.name for node in session.explain(y, [x]).placement]
          ['Tanh', 'mul']
        """
        if feed_dict is not None:
            if feed_list is not None:
                raise errors.InvalidArgumentError(
                    "explain accepts either feed_list or feed_dict, not both"
                )
            report = self.explain(fetches, list(feed_dict), verbose=verbose)
            report.add_functions(self._functions(fetches, feed_dict))
            return report
        self._check_open()
        with self._planning(self._deadline(None)):
            self._extend()
            plan = FetchPlan(self._graph, fetches)
            feeds = self._outputs(feed_list)
            cached = self._cache.get((structure_key(fetches), tuple(feeds)))
            size = 0 if cached is None else cached.size
            report = self._backend.explain(feeds, plan.outputs, plan.targets, size)
            report.verbose = verbose
            return report

    def _functions(self, fetches: Any, feed_dict: Mapping[Any, Any]) -> list[InputRecorder]:
        """Return the compiled regions of a step after one run with a separate plan."""
        from weft_exec.executor.native.input_recording import collect_watched

        key = (object(), ())
        with collect_watched() as result:
            signature, values = self._signature(key, fetches, feed_dict)
            if signature.executable.warm_up is not None:  # a plan without regions
                with self._planning(self._deadline(None)):
                    self._plan(signature, signature.size)
        self._cache.pop(key, None)
        self._cache.pop((key[0], tuple(values)), None)
        self._step(signature, values.values(), None, None)
        return result

    def _outputs(self, names: Sequence[Any] | None) -> list[Any]:
        element = self._graph.as_graph_element
        return [element(name, allow_operation=False) for name in names or ()]

    @property
    def cost_model(self) -> CostModel:
        """The cost model of placement; `load` and `save` read and write its measurements."""
        return self._backend.costs

    # ----------------------------------------------------------------- derivation

    @contextmanager
    def _planning(self, deadline: float | None) -> Iterator[None]:
        """Hold the lock that serializes planning.

        Args:
          deadline: in `time.monotonic()`, for the wait for the lock and the backend's own waits;
            None for no limit.
        Raises: DeadlineExceededError: another thread held the lock until the deadline.
        """
        if not consumers.acquire(self._lock, "lock of the session", _seconds_until(deadline)):
            raise errors.DeadlineExceededError(
                "the call exceeded its timeout while another thread was planning a step of this "
                "session: raise timeout_in_ms, or plan the step earlier with a first run"
            )
        outer_deadline = self._backend.planning_deadline
        try:
            self._backend.planning_deadline = deadline
            yield
        finally:
            self._backend.planning_deadline = outer_deadline
            self._lock.release()

    def _signature(
        self, key: Any, fetches: Any, feed_dict: Any, deadline: float | None = None
    ) -> tuple[Signature, dict[Output, Any]]:
        self._check_open()
        if feed_dict is not None and not isinstance(feed_dict, Mapping):
            raise errors.InvalidTypeError(f"feed_dict must be a mapping, got {feed_dict!r}")
        with self._planning(deadline):
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
                raise errors.InvalidArgumentError(
                    "feed_dict must feed different tensors, got one twice"
                )
            expanded_key = (key[0], tuple(feeds))
            signature = self._cache.get(expanded_key)
            if signature is None:
                plan = FetchPlan(self._graph, fetches, self._get_tensors)
                size = unknown_size(list(feeds), feeds.values())
                signature = self._derive(plan, list(feeds), isinstance(fetches, Output), size)
                self._keep(expanded_key, signature)
            if as_they_are:
                self._keep(key, signature)
        return signature, feeds

    def _keep(self, key: Any, signature: Signature) -> None:
        if len(self._cache) >= _LARGEST_CACHE:
            del self._cache[next(iter(self._cache))]
        self._cache[key] = signature

    def _derive(
        self, plan: FetchPlan, feeds: Sequence[Any], single: bool, size: int = 0
    ) -> Signature:
        signature = Signature(plan, feeds, single and plan.plain)
        self._plan(signature, size, is_first=True)
        signature.skips_updates = self._updates.skips_updates(
            self._graph, feeds, plan.outputs, plan.targets
        )
        self.tracing_changed()
        return signature

    def _plan(self, signature: Signature, size: int, is_first: bool = False) -> None:
        """Derive an executable of a signature for steps whose unknown sizes are about `size`."""
        plan = signature.plan
        make = self._backend.plan if is_first else self._backend.plan_again
        with self._lock, pause_gc():
            signature.executable = make(signature.feeds, plan.outputs, plan.targets, size)
        signature.size = size
        signature.planned_at = self._measurements
        signature.outdated = False
        signature.steps = 0

    def _fit(self, signature: Signature, values: Iterable[Any], deadline: float | None) -> None:
        """Plan a signature again if its executable does not suit the step that begins.

        Under a memory limit, rematerialization and swapping depend on the sizes of values, so a
        step with larger feeds may not fit. With several devices, new measurements may change the
        placement.
        """
        if not (signature.outdated or self._backend.limited):
            return
        fed = unknown_size(signature.feeds, values)

        def fits() -> bool:
            grown = fed > signature.size + signature.size // _MAY_GROW
            return not (signature.outdated or grown)

        if not fits():
            start = clock()
            with self._planning(deadline):
                if not fits():  # another thread may have planned it meanwhile
                    self._plan(signature, fed)
            consumers.note_phase("plan", start)

    def _extend(self) -> None:
        with self._lock:
            nodes = self._graph.nodes
            count = self._graph.complete
            if count == self._num_planned_nodes:
                return
            self._growth.record_growth(nodes, self._num_planned_nodes)
            self._backend.extend(nodes[self._num_planned_nodes : count])
            self._num_planned_nodes = count
            self._graph.mark_extended(count)

    def _refresh_epoch(self) -> None:
        if self._epoch != self._resources.epoch:
            self._cache.clear()
            self._partial_signatures.clear()
            self._epoch = self._resources.epoch

    # ------------------------------------------------------------------- lifetime

    def close(self) -> None:
        """Cancel running steps and release the session's private state; may be called repeatedly.

        Examples:
          >>> session = wf.Session()
          >>> session.close()
        """
        if self._lock.acquire(blocking=False):
            self._lock.release()
        elif not self._closed:
            self._backend.stop_planning()  # else the lock might be held for minutes
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._cache.clear()
            self._partial_signatures.clear()
        for run in list(self._partial_runs.values()):
            run.close(errors.CancelledError("the step was cancelled: the session was closed"))
        self._partial_runs.clear()
        self._backend.close()
        self._recordings.close()

    @staticmethod
    def reset(target: str, containers: Sequence[str] | None = None, config: Any = None) -> None:
        """Drop the state that sessions on `target` share.

        Args:
          target: a session target.
          containers: names; all by default.
          config: ConfigProto: credentials, and `operation_timeout_in_ms` for the complete call.
        Raises:
          InvalidArgumentError: the target's scheme is unknown.
          UnavailableError, DeadlineExceededError: the server does not answer in time.
        """
        find_target(target).reset(target, containers, config)

    def fail_next_step(self, take: Callable[[], BaseException | None]) -> None:
        """Make the next step raise an error from outside steps, such as from a save; thread-safe.

        Args:
          take: returns the error, or None if it was already raised elsewhere.
        """
        self._failed_beside = take
        self._resources.advance_epoch()

    def _check_open(self) -> None:
        if self._closed:
            raise closed_error()
        take, self._failed_beside = self._failed_beside, None
        error = None if take is None else take()
        if error is not None:
            raise error

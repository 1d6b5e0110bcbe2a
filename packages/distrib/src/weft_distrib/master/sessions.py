"""One session on a master: its graph, the planned signatures, and the running steps."""

from __future__ import annotations

import hashlib
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple

import numpy as np

from weft_distrib.master.feeds import Feeds
from weft_distrib.master.limits import WaitLimit
from weft_distrib.master.links import AbortNotice, Fail, OwnWorker, TaskParts, WorkerLink
from weft_distrib.master.partial import PartialStep
from weft_distrib.master.state_location import locate_state
from weft_distrib.master.step import Abort, Finish, Instruction, StepCoordinator
from weft_distrib.protocol import messages
from weft_distrib.wire.channel import Answer
from weft_distrib.wire.methods import RunParts, RunStep, StepKey
from weft_distrib.wire.values import Pieces
from weft_distrib.worker import tracing
from weft_distrib.worker.rendezvous import task_of
from weft_distrib.worker.worker import Done
from weft_exec.config import SessionConfig
from weft_exec.devices.description import DeviceDescription
from weft_exec.executor.overlap import Overlap
from weft_exec.resources.cancellation import Timer, call_at
from weft_exec.session.planning import PartPlanner
from weft_exec.session.signature import step_label
from weft_exec.tracing.records import NodeRecord
from weft_exec.tracing.step_trace import clock, trace_time
from weft_graph import proto
from weft_graph.ir.device_spec import DeviceParts
from weft_graph.ir.gc_pause import pause_gc
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Node, Output
from weft_graph.ir.step_graph import Part
from weft_graph.ir.traits import Role
from weft_graph.serialize import part_pieces, read_graph
from weft_tensor import errors

ABORT_SECONDS: Final = 2.0
"""Seconds that an aborted step waits for tasks that still run its partitions."""

_NAMED = 3  # nodes, in an error

MAX_SIGNATURES: Final = 1 << 16
"""Maximum number of planned signatures of a session."""


class _Share(NamedTuple):
    """A task's share of a signature: the indices of its feeds and fetches."""

    task: DeviceParts
    link: WorkerLink
    feeds: tuple[int, ...]
    fetches: tuple[int, ...]
    waits: str  # its nodes that may wait for others, as an error names them; or ""


class _Planned(NamedTuple):
    shares: tuple[_Share, ...]
    feeds: Feeds
    fetches: int
    label: str  # for traces
    home: str  # the device of the caller in a partial run; else ""


class StartedStep(NamedTuple):
    """A step that was started.

    Attributes:
      cancel: ends the step with an error, unless it has ended.
      local_part: a function that the waiting thread must call first, as it runs a partition; or
        None.
    """

    cancel: Callable[[errors.OpError], None]
    local_part: Callable[[], None] | None = None


class MasterSession:
    """One session's graph on the devices of a cluster.

    Args:
      number: the number of the session, unique in the cluster.
      devices: the devices of all tasks, with the master's own task first.
      links: the links to the workers of the tasks.
      host: a device of this process that folds constants.
      config: the options of the session.
      owner: the connection that may use the session; None for the server's own process.
    Attributes:
      last_definition: the number of the last numbered definition; guarded by `edit_graph`.
      last_gradients: the reply to the last request for gradients; guarded by `edit_graph`.
    """

    def __init__(
        self,
        number: int,
        devices: Sequence[DeviceDescription],
        links: dict[DeviceParts, WorkerLink],
        host: Any,
        config: SessionConfig,
        owner: object = None,
    ) -> None:
        self.number = number
        self.owner = owner
        self.last_definition = 0
        self.last_gradients: tuple[Sequence[Any], bytes] = (), b""
        self._graph = Graph()
        self._links = links
        overlap = Overlap.of(config.executor_type, config.inter_op_threads)
        self._deterministic = config.deterministic
        self._timeout = config.timeout_ms
        self._isolated = config.proto is not None and config.proto.isolate_session_state
        self._own_task = devices[0].task
        self._planner = PartPlanner(devices, host, config, overlap)
        self._num_sent_nodes = 0
        self._unsettled: list[Node] = []
        self._numbers = itertools.count(1)
        self._steps = itertools.count(1)
        self._planned: dict[int, _Planned] = {}
        self._handles: dict[tuple[DeviceParts, bytes], int] = {}
        self._running: dict[int, _Step] = {}
        self._partial: dict[int, PartialStep] = {}
        self._lock = threading.Lock()
        self._planning = threading.RLock()
        self._closed = False

    # ----------------------------------------------------------------------- planning

    def extend(
        self, segment: Any, timeout: int = 0, is_wanted: Callable[[], bool] = lambda: True
    ) -> None:
        """Add nodes to the graph.

        Args:
          timeout: milliseconds to wait for another planning call; 0 for the timeout of the session.
          is_wanted: returns True while the client waits for the result.
        Raises: OpError: see `read_graph`; or the wait was too long. The graph is then unchanged.
        """
        with self.edit_graph(timeout, is_wanted) as graph:
            read_graph(memoryview(segment), into=graph)

    @contextmanager
    def edit_graph(
        self, timeout: int = 0, is_wanted: Callable[[], bool] = lambda: True
    ) -> Iterator[Graph]:
        """Let a block read the graph or add nodes and functions; if it raises, they are removed.

        Args:
          timeout, is_wanted: as for `extend`.
        Raises: DeadlineExceededError, CancelledError: see `plan`.
        """
        limit = self._limit(timeout, is_wanted)
        with limit.hold_lock(self._planning):
            self._check_open()
            yield self._graph
            nodes = self._graph.nodes
            added = nodes[self._num_sent_nodes :]
            self._planner.extend(added)
            self._num_sent_nodes = len(nodes)
            if not self._isolated:
                self._unsettled += self._planner.without_task(added)

    def _limit(self, timeout: int, is_wanted: Callable[[], bool]) -> WaitLimit:
        return WaitLimit(timeout or self._timeout, lambda: is_wanted() and not self._closed)

    def _settle(self, limit: WaitLimit) -> None:
        """Place new nodes that request no task in the task where their state already exists."""
        if self._unsettled:
            self._planner.settle(locate_state(self._unsettled, self._own_task, self._links, limit))
            self._unsettled = []

    def plan(
        self, request: messages.Signature, is_wanted: Callable[[], bool] = lambda: True
    ) -> messages.Planned:
        """Plan a signature, and register its partitions with their tasks.

        Args:
          is_wanted: returns True while the client waits for the result.
        Raises:
          DeadlineExceededError: a task or another planning call took longer than the timeout.
          CancelledError: the session was closed, or the client has given up.
          OpError: a name is unknown, a node cannot be placed, or a task rejects its partition.
        """
        self._check_open()
        limit = self._limit(request.timeout, is_wanted)
        with limit.hold_lock(self._planning):
            self._check_open()
            self._settle(limit)
            if len(self._planned) >= MAX_SIGNATURES:
                raise errors.ResourceExhaustedError(
                    f"the session already has {MAX_SIGNATURES} signatures, which is the maximum: "
                    "reuse the same fetches and feeds"
                )
            feeds = self._feeds(request.feeds)
            outputs = [self._output(name) for name in request.fetches]
            targets = [self._node(name) for name in request.targets]
            signature = next(self._numbers)
            planned = messages.Planned(signature)
            with pause_gc():
                if request.partial:
                    parts, planned.home, requirements = self._planner.partial_parts(
                        feeds, outputs, targets
                    )
                    planned.needs = [",".join(map(str, sorted(item))) for item in requirements]
                else:
                    parts = self._planner.parts(feeds, outputs, targets, request.size)
                if self._deterministic:
                    _merge_in_order(parts)
                try:
                    shares = self._register(signature, parts, limit)
                finally:
                    if self._closed:  # meanwhile, so that tasks forgot the session before this part
                        self._drop_on_workers()
        fetches = 0 if request.partial else len(outputs)
        label = step_label([*request.fetches, *request.targets], request.feeds)
        self._planned[signature] = _Planned(
            tuple(shares), Feeds(feeds), fetches, label, planned.home
        )
        return planned

    def explain(self, request: messages.Signature) -> list[np.ndarray]:
        """Explain the plan of a step; the result is encoded by `StepReport.to_arrays`.

        Raises: OpError: see `plan`.
        """
        self._check_open()
        limit = self._limit(request.timeout, lambda: True)
        with limit.hold_lock(self._planning):
            self._settle(limit)
            feeds = self._feeds(request.feeds)
            outputs = [self._output(name) for name in request.fetches]
            targets = [self._node(name) for name in request.targets]
            return self._planner.explain(feeds, outputs, targets, request.size).to_arrays()

    def _register(self, signature: int, parts: dict[str, Part], limit: WaitLimit) -> list[_Share]:
        by_task: dict[DeviceParts, dict[str, Part]] = {}
        for device, part in parts.items():
            by_task.setdefault(task_of(device), {})[device] = part
        shares, replies = [], _Replies()
        handles: dict[tuple[DeviceParts, bytes], int] = {}
        # The own worker blocks this thread, so the others are called first and work meanwhile.
        for task in sorted(by_task, key=lambda task: isinstance(self._links[task], OwnWorker)):
            task_parts, link = by_task[task], self._links[task]
            messages = {device: Pieces(part_pieces(part)) for device, part in task_parts.items()}
            replies.check()  # else a worker would look for a task that is known to be lost
            key = task, _digest(messages)
            handles[key] = self._handles.get(key, signature)
            same_as = self._handles.get(key, 0)
            link.register(self.number, signature, messages, same_as, replies.of(task))
            feeds = sorted({feed for part in task_parts.values() for feed in part.feeds})
            fetches = sorted({index for part in task_parts.values() for index in part.fetches})
            shares.append(
                _Share(task, link, tuple(feeds), tuple(fetches), _describe_waits(task_parts))
            )
        replies.wait(limit)
        self._handles.update(handles)
        return shares

    def _feeds(self, names: Sequence[str]) -> list[Output]:
        feeds = [self._output(name) for name in names]
        if len(set(feeds)) < len(feeds):
            repeated = next(output.name for output, count in Counter(feeds).items() if count > 1)
            raise errors.InvalidArgumentError(f"{repeated} is fed more than once")
        return feeds

    def _output(self, name: str) -> Output:
        graph_element = self._graph.as_graph_element(name, allow_operation=False)
        assert isinstance(graph_element, Output)
        return graph_element

    def _node(self, name: str) -> Node:
        graph_element = self._graph.as_graph_element(name, allow_tensor=False)
        assert isinstance(graph_element, Node)
        return graph_element

    # -------------------------------------------------------------------------- steps

    def run(
        self,
        request: RunStep,
        values: Sequence[Any],
        done: Done,
        fail: Fail,
        may_run_part: bool = False,
    ) -> StartedStep:
        """Run a step of a signature; either `done` or `fail` is called once, on any thread.

        Args:
          may_run_part: True if this thread only waits for the step, so that it may run a partition.
        Raises: OpError: the signature does not exist, or it has other feeds.
        """
        planned = self._signature(request)
        planned.feeds.check(values)
        if not request.timeout and self._timeout:
            request = request._replace(timeout=self._timeout)
        if request.traced:
            done = self._update_costs_before(done)
        step, running = self._new_step(planned, done, fail, self._drop_step)
        return StartedStep(step.cancel, step.begin(request, values, running, may_run_part))

    def _signature(self, request: RunStep) -> _Planned:
        planned = self._planned.get(request.signature)
        if planned is None:
            raise errors.NotFoundError(f"the session has no signature {request.signature}")
        return planned

    def _new_step(
        self, planned: _Planned, done: Done, fail: Fail, forget: Callable[[int], None]
    ) -> tuple[_Step, tuple[int, ...]]:
        """Create a step of a signature.

        Return it with the numbers of the steps that are running.
        """
        with self._lock:
            self._check_open()
            key = StepKey(self.number, next(self._steps))
            note = partial(self._note_step, planned.label)
            step = _Step(key, planned, done, fail, forget, note)
            running = tuple(self._running)
            self._running[step.key.step] = step
        return step, running

    def _note_step(self, label: str, key: StepKey, start: int, failed: bool) -> None:
        """Add a step that ends now to the recording of this task, if there is one."""
        own_link = self._links[self._own_task]
        assert isinstance(own_link, OwnWorker)
        recording = own_link.recording
        if recording is not None:
            recording.add_whole(key, label, start, clock(), failed)

    def begin_partial(self, request: RunStep) -> StepKey:
        """Start a step that its client feeds and fetches by `advance`.

        Raises: OpError: the signature does not exist.
        """
        planned = self._signature(request)
        if not planned.home:
            raise errors.InvalidArgumentError(
                f"signature {request.signature} was not planned for partial runs"
            )
        partial_steps: list[PartialStep] = []
        step, running = self._new_step(
            planned,
            lambda values, meta: partial_steps[0].done(None),
            lambda error: self._fail_partial(key.step, partial_steps[0], error),
            lambda number: None,  # kept until the client has all of its values
        )
        key = step.key
        own_link = self._links[self._own_task]
        assert isinstance(own_link, OwnWorker)
        rendezvous = own_link.rendezvous(key)
        forget = partial(self._drop_step, key.step)
        partial_steps.append(
            PartialStep(rendezvous, planned.home, planned.feeds, step.cancel, forget)
        )
        with self._lock:
            self._partial[key.step] = partial_steps[0]
        step.begin(request, (), running)
        return key

    def _fail_partial(self, number: int, step: PartialStep, error: errors.OpError) -> None:
        """End a failed partial run; it is kept until its client has received the error."""
        with self._lock:
            self._running.pop(number, None)
        step.done(error)

    def advance(
        self,
        request: messages.Advance,
        values: Sequence[Any],
        reply: Callable[[Sequence[Any]], None],
        fail: Fail,
    ) -> None:
        """Continue a partial run; either `reply` or `fail` is called once, on any thread.

        Raises: AbortedError: the run does not exist or has ended.
        """
        with self._lock:
            result = self._partial.get(request.step)
        if result is None:
            raise errors.AbortedError(
                f"the session has no partial run {request.step}: it has ended"
            )
        result.advance(request, values, reply, fail)

    def _update_costs_before(self, done: Done) -> Done:
        """Return `done`, preceded by an update of the cost model from the trace of the step."""

        def learn(results: list[Any], meta: bytes) -> None:
            stats = proto.StepStats.FromString(meta)
            self._planner.costs.observe(list(_records(stats, self._graph)))
            done(results, meta)

        return learn

    @property
    def running(self) -> int:
        """The number of running steps."""
        with self._lock:
            return len(self._running)

    def _drop_step(self, number: int) -> None:
        with self._lock:
            self._running.pop(number, None)
            self._partial.pop(number, None)

    def close(self, error: errors.OpError | None = None) -> None:
        """Abort the running steps, and remove the session from all tasks."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            running = list(self._running.values())
        for step in running:
            step.cancel(error or errors.CancelledError("the session was closed"))
        self._drop_on_workers()

    def _drop_on_workers(self) -> None:
        for link in self._links.values():
            link.forget(self.number)

    def _check_open(self) -> None:
        if self._closed:
            raise errors.FailedPreconditionError("the session has been closed")


class _Replies:
    """Replies of tasks to registrations; the first error is reported immediately."""

    def __init__(self) -> None:
        self._waiting: set[DeviceParts] = set()
        self._replies: SimpleQueue[tuple[DeviceParts, errors.OpError | None]] = SimpleQueue()

    def of(self, task: DeviceParts) -> Answer:
        """Register a task, and return the object that receives its reply."""
        self._waiting.add(task)
        return AbortNotice(
            lambda values, meta: self._replies.put((task, None)),
            lambda error: self._replies.put((task, error)),
        )

    def check(self) -> None:
        """Process the replies received so far.

        Raises: OpError: a task rejects its partition or is lost.
        """
        while not self._replies.empty():
            self._take(0)

    def wait(self, limit: WaitLimit) -> None:
        """Wait until all tasks have replied.

        Raises: OpError: a task rejects its partition, is lost, or takes too long.
        """
        while self._waiting:
            names = ", ".join(sorted(task.to_string() for task in self._waiting))
            seconds = limit.next_wait(f"{names} did not accept their parts of the step")
            with suppress(Empty):
                self._take(seconds)

    def _take(self, seconds: float) -> None:
        task, error = self._replies.get(timeout=seconds)
        self._waiting.discard(task)
        if error is not None:
            raise error


def _describe_waits(parts: dict[str, Part]) -> str:
    """Describe the nodes that may wait for something other than inputs and other partitions."""
    result = [
        f"{node.name!r} (op {node.type})"
        for part in parts.values()
        for node in part.nodes
        if node.traits.asynchronous and node.role not in (Role.SEND, Role.RECEIVE)
    ]
    suffix = [f"{len(result) - _NAMED} more"] if len(result) > _NAMED else []
    return ", ".join(result[:_NAMED] + suffix)


def _digest(parts: TaskParts) -> bytes:
    """Return a digest of partitions, for comparing two signatures."""
    digest = hashlib.sha256()
    for device, graph in parts.items():
        digest.update(f"{len(device)} {device} {graph.nbytes} ".encode())
        for piece in graph.buffers:
            digest.update(piece)
    return digest.digest()


def _merge_in_order(parts: dict[str, Part]) -> None:
    """Make collective operations merge in member order, unless the nodes specify an order."""
    for part in parts.values():
        for node in part.nodes:
            if node.attrs.get("communication_hint") == "auto":
                node.attrs["communication_hint"] = "ordered"


def _records(stats: Any, graph: Graph) -> Iterator[NodeRecord]:
    """Yield the records of a trace that belong to nodes of the session's graph."""
    for device in stats.dev_stats:
        for node_stat in device.node_stats:
            node = graph.find_node(node_stat.node_name)
            if node is not None:
                start = node_stat.all_start_nanos
                nbytes = sum(memory.total_bytes for memory in node_stat.memory)
                end = start + node_stat.all_end_rel_nanos
                yield NodeRecord(node, device.device, start, end, node_stat.thread_id, nbytes)


class _Step:
    """A running step, which executes the instructions of its coordinator."""

    def __init__(
        self,
        key: StepKey,
        planned: _Planned,
        done: Done,
        fail: Fail,
        forget: Callable[[int], None],
        note: Callable[[StepKey, int, bool], None],
    ) -> None:
        self.key = key
        self._planned = planned
        self._links = {share.task: share.link for share in planned.shares}
        self._results: list[Any] = [None] * planned.fetches
        self._done, self._fail, self._forget = done, fail, forget
        self._note = note
        self._start = clock()
        self._coordinator = StepCoordinator([share.task for share in planned.shares])
        self._lock = threading.Lock()
        self._timer: Timer | None = None
        self._traced = False
        self._stats = proto.StepStats()
        self._passages: list[tracing.Transfer] = []

    def begin(
        self,
        request: RunStep,
        values: Sequence[Any],
        running: tuple[int, ...],
        may_run_part: bool = False,
    ) -> Callable[[], None] | None:
        """Start the partitions of all tasks; return the function for `StartedStep.local_part`."""
        if request.timeout:
            error = errors.DeadlineExceededError(
                f"the step exceeded its timeout of {request.timeout} ms"
            )
            deadline = time.monotonic() + request.timeout / 1000
            self._timer = call_at(deadline, lambda: self.cancel(error))
        key, self._traced = self.key, request.traced
        signature, timeout = request.signature, request.timeout
        run_parts = RunParts(*key, signature, key.step, timeout, request.traced, running)
        if not self._planned.shares:
            self._carry_out([Finish(None)])
        retained = None
        for share in self._planned.shares:
            feed_values = [values[feed] for feed in share.feeds]
            replied, failed = self._listeners(share)
            try:
                retained = (
                    share.link.run(run_parts, feed_values, replied, failed, may_run_part)
                    or retained
                )
            except errors.OpError as error:
                failed(error)
        return retained

    def _listeners(self, share: _Share) -> tuple[Done, Fail]:
        sent = trace_time()

        def replied(results: list[Any], meta: bytes) -> None:
            actual = trace_time()
            if len(results) != len(share.fetches):
                failed(
                    errors.InternalError(
                        f"{share.task.to_string()} returned {len(results)} results"
                    )
                )
                return
            for index, value in zip(share.fetches, results, strict=True):
                self._results[index] = value
            traced = tracing.unpack(meta, sent, actual) if self._traced else None
            with self._lock:
                if traced is not None:
                    self._stats.MergeFrom(traced.stats)
                    self._passages += traced.passages
                actions = self._coordinator.replied(share.task)
            self._carry_out(actions)

        def failed(error: errors.OpError) -> None:
            error.details.setdefault("task", share.task.to_string())
            with self._lock:
                actions = self._coordinator.failed(share.task, error)
            self._carry_out(actions)

        return replied, failed

    def cancel(self, error: errors.OpError) -> None:
        """End the step with an error, unless it has ended."""
        with self._lock:
            actions = self._coordinator.cancel(error)
        self._carry_out(actions)

    def _stop_waiting(self) -> None:
        with self._lock:
            give_up = self._coordinator.stop_waiting()
        self._carry_out(give_up)

    def _carry_out(self, instructions: Sequence[Instruction[DeviceParts]]) -> None:
        aborted = False
        for instruction in instructions:
            if isinstance(instruction, Abort):
                aborted = True
                self._links[instruction.task].abort(self.key, instruction.error)
            else:
                self._finish(instruction)
                return
        if aborted:
            call_at(time.monotonic() + ABORT_SECONDS, self._stop_waiting)

    def _finish(self, finish: Finish) -> None:
        self._forget(self.key.step)
        self._note(self.key, self._start, finish.error is not None)
        if self._timer is not None:
            self._timer.cancel()
        if finish.error is None:
            if self._traced:
                tracing.add_transfers(self._stats, self._passages)
            self._done(self._results, self._stats.SerializeToString() if self._traced else b"")
        else:
            self._fail(self._add_node_name(finish.error))

    def _add_node_name(self, error: errors.OpError) -> errors.OpError:
        """Add the node that may have waited for a lost task to an error that names no node."""
        if error.node is not None or not isinstance(error, errors.UnavailableError):
            return error
        lost = error.details.get("task", "")
        waits_by_task = {share.task.to_string(): share.waits for share in self._planned.shares}.get(
            lost
        )
        if not waits_by_task:
            return error
        named_error = error.copy()
        named_error.message = (
            f"{error.message}; the step was running {waits_by_task}, which may block"
        )
        named_error.args = (named_error.message,)
        return named_error

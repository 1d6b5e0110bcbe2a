"""Threads that keep queues filled while steps empty them."""

from __future__ import annotations

from weft_graph import proto

__all__ = ["QueueRunner", "add_queue_runner", "start_queue_runners"]

import logging
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from weft_exec.session.base import BaseSession
from weft_graph.ir import thread_stacks
from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.node import Node, Output
from weft_graph.messages.collection_items import convert_each, register_collection
from weft_io.arguments import to_list
from weft_io.coordination.coordinator import Coordinator
from weft_io.queues.queue import QueueBase
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_graph import proto

_log = logging.getLogger("weft")


class QueueRunningSession:
    """A session that starts the queue runners of its graph automatically."""


class QueueRunner:
    """Keeps a queue filled: one thread for each enqueue operation, which repeats it.

    A thread stops when its operation reports the end of the data. The last one closes the queue, so
    that dequeues return the remaining elements and then fail with `OutOfRangeError`. When the
    coordinator stops, pending enqueues are canceled.

    Args:
      queue: a queue.
      enqueue_ops: operations; one may occur several times, for several threads.
      close_op: operation to run at the end of the data; `queue.close()` by default.
      cancel_op: operation to run when the coordinator stops;
        `queue.close(cancel_pending_enqueues=True)` by default.
      queue_closed_exception_types: errors that signal the end of the data; `OutOfRangeError` by
        default.
      queue_runner_def: a `QueueRunnerDef` to create the runner from, instead of the arguments
        above.
      import_scope: name scope that the nodes of `queue_runner_def` are in.
    Raises:
      InvalidArgumentError: the queue or the operations are missing, or there are both a message and
      other arguments.
      InvalidTypeError: `queue` is not a queue, something else is not an operation, or
        `queue_closed_exception_types` is not a tuple of errors.

    Examples:
      >>> queue = wf.FIFOQueue(10, [wf.int32], [[]])
      >>> wf.train.add_queue_runner(wf.train.QueueRunner(queue, [queue.enqueue(1)] * 2))
      >>> len(wf.get_collection(wf.GraphKeys.QUEUE_RUNNERS))
      1
    """

    def __init__(
        self,
        queue: Any = None,
        enqueue_ops: Sequence[Any] | None = None,
        close_op: Any = None,
        cancel_op: Any = None,
        queue_closed_exception_types: tuple[type[errors.OpError], ...] | None = None,
        queue_runner_def: Any = None,
        import_scope: str | None = None,
    ) -> None:
        if queue_runner_def is not None:
            if queue is not None or enqueue_ops:
                raise errors.InvalidArgumentError(
                    "queue_runner_def and queue are mutually exclusive."
                )
            self._init_from_proto(queue_runner_def, import_scope)
        else:
            self._init_from_args(
                queue, enqueue_ops, close_op, cancel_op, queue_closed_exception_types
            )
        self._lock = threading.Lock()
        self._running: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._raised: list[Exception] = []

    def _init_from_args(
        self,
        queue: Any,
        enqueue_ops: Sequence[Any] | None,
        close_op: Any,
        cancel_op: Any,
        exception_types: tuple[type[errors.OpError], ...] | None,
    ) -> None:
        if queue is None or enqueue_ops is None:
            raise errors.InvalidArgumentError("Must provide queue and enqueue_ops.")
        enqueue_ops = to_list(enqueue_ops, "enqueue_ops")
        if not enqueue_ops:
            raise errors.InvalidArgumentError("Must provide queue and enqueue_ops.")
        if exception_types is None:
            exception_types = (errors.OutOfRangeError,)
        if not (
            isinstance(exception_types, tuple)
            and exception_types
            and all(
                isinstance(kind, type) and issubclass(kind, errors.OpError)
                for kind in exception_types
            )
        ):
            raise errors.InvalidTypeError(
                "queue_closed_exception_types, when provided, must be a tuple of error types, "
                f"got {exception_types!r}"
            )
        if not isinstance(queue, QueueBase) and (close_op is None or cancel_op is None):
            raise errors.InvalidTypeError(f"queue must be a queue, got {queue!r}")
        for operation in enqueue_ops:
            _check_operation(operation, "each of enqueue_ops")
        for operation, label in ((close_op, "close_op"), (cancel_op, "cancel_op")):
            if operation is not None:
                _check_operation(operation, label)
        self._queue = queue
        self._enqueue_ops = enqueue_ops
        self._close_op = queue.close() if close_op is None else close_op
        self._cancel_op = cancel_op
        if cancel_op is None:
            self._cancel_op = queue.close(cancel_pending_enqueues=True)
        self._exception_types = exception_types

    def _init_from_proto(self, message: Any, import_scope: str | None) -> None:
        if not isinstance(message, proto.QueueRunnerDef):
            raise errors.InvalidTypeError(
                f"queue_runner_def must be a QueueRunnerDef, got {message!r}"
            )
        graph = get_default_graph()
        prefix = f"{import_scope}/" if import_scope else ""

        def element(name: str) -> Any:
            return graph.as_graph_element(prefix + name)

        self._queue = element(message.queue_name)
        self._enqueue_ops = [element(name) for name in message.enqueue_op_name]
        self._close_op = element(message.close_op_name)
        self._cancel_op = element(message.cancel_op_name)
        self._exception_types = tuple(
            [errors.from_code(code) for code in message.queue_closed_exception_types]
        ) or (errors.OutOfRangeError,)

    # ------------------------------------------------------------------ properties

    @property
    def queue(self) -> Any:
        """The queue; for a runner created from a message, the queue's node."""
        return self._queue

    @property
    def enqueue_ops(self) -> list[Any]:
        """The enqueue operations."""
        return self._enqueue_ops

    @property
    def close_op(self) -> Any:
        """The operation that runs at the end of the data."""
        return self._close_op

    @property
    def cancel_op(self) -> Any:
        """The operation that runs when the coordinator stops."""
        return self._cancel_op

    @property
    def queue_closed_exception_types(self) -> tuple[type[errors.OpError], ...]:
        """The errors that signal the end of the data."""
        return self._exception_types

    @property
    def exceptions_raised(self) -> list[Exception]:
        """Errors of threads without a coordinator since they were last started."""
        return self._raised

    @property
    def name(self) -> str:
        """The name of the queue."""
        name: str = self._queue.name
        return name

    # ------------------------------------------------------------------ threads

    def create_threads(
        self, sess: Any, coord: Coordinator | None = None, daemon: bool = False, start: bool = False
    ) -> list[threading.Thread]:
        """Return threads that keep the queue filled in a session.

        Args:
          sess: the session.
          coord: receives errors; without it they are raised in the thread and kept in
            `exceptions_raised`.
          daemon: True if the program may end while they run.
          start: start them; else the caller does.
        Returns: the threads; an empty list if earlier threads still run in this session.
        Raises: InvalidTypeError: `sess` is not a session, or `coord` not a coordinator.
        """
        if not (hasattr(sess, "run") and hasattr(sess, "make_callable")):
            raise errors.InvalidTypeError(f"sess must be a session, got {sess!r}")
        _check_coordinator(coord)
        with self._lock:
            if self._running.get(sess, 0) > 0:
                return []
            self._running[sess] = len(self._enqueue_ops)
            self._raised = []
        threads = [
            threading.Thread(
                target=self._run,
                args=(sess, operation, coord),
                name=f"QueueRunnerThread-{self.name}-{operation.name}",
            )
            for operation in self._enqueue_ops
        ]
        if coord is not None:
            threads.append(
                threading.Thread(
                    target=self._close_on_stop,
                    args=(sess, coord),
                    name=f"QueueRunnerThread-{self.name}-close_on_stop",
                )
            )
        for thread in threads:
            if coord is not None:
                coord.register_thread(thread)
            if daemon:
                thread.daemon = True
            if start:
                thread.start()
        return threads

    def _run(self, sess: Any, operation: Any, coord: Coordinator | None) -> None:
        has_ended = False
        try:
            enqueue = sess.make_callable(operation)
            while coord is None or not coord.should_stop():
                enqueue()
        except self._exception_types:
            has_ended = True
        except Exception as error:  # because the coordinator must receive any error
            self._handle_failure(error, coord)
        finally:
            with self._lock:
                self._running[sess] -= 1
                last = not self._running[sess]
            if has_ended and last:
                self._quietly(sess, self._close_op)

    def _handle_failure(self, error: Exception, coord: Coordinator | None) -> None:
        if coord is not None:
            coord.request_stop(error)
            return
        _log.error("Exception in QueueRunner: %s", error)
        with self._lock:
            self._raised.append(error)
        raise error

    def _close_on_stop(self, sess: Any, coord: Coordinator) -> None:
        coord.wait_for_stop()
        self._quietly(sess, self._cancel_op)

    def _quietly(self, sess: Any, operation: Any) -> None:
        """Run the operation that closes the queue, ignoring errors if it is closed already."""
        try:
            sess.run(operation)
        except errors.OpError as error:
            _log.debug("Ignored exception: %s", error)

    # ------------------------------------------------------------------ messages

    def to_proto(self, export_scope: str | None = None) -> proto.QueueRunnerDef | None:
        """Return the runner as a `QueueRunnerDef`.

        Args:
          export_scope: name scope to remove from the names; for a runner outside this scope, None
            is returned.
        """
        queue = self._queue
        node = queue.queue_ref.op if isinstance(queue, QueueBase) else _node(queue)
        prefix = f"{export_scope}/" if export_scope else ""
        if not node.name.startswith(prefix):
            return None

        def name(item: Any) -> str:
            return _node(item).name.removeprefix(prefix)

        return proto.QueueRunnerDef(
            queue_name=name(node),
            enqueue_op_name=[name(operation) for operation in self._enqueue_ops],
            close_op_name=name(self._close_op),
            cancel_op_name=name(self._cancel_op),
            queue_closed_exception_types=[kind.code for kind in self._exception_types],
        )

    @staticmethod
    def from_proto(queue_runner_def: Any, import_scope: str | None = None) -> QueueRunner:
        """Create a runner from a `QueueRunnerDef`, with nodes of the default graph.

        Raises: InvalidTypeError: it is not a QueueRunnerDef; NotFoundError: the graph lacks a node
          that it names.
        """
        if queue_runner_def is None:
            raise errors.InvalidTypeError("queue_runner_def must be a QueueRunnerDef, got None")
        return QueueRunner(queue_runner_def=queue_runner_def, import_scope=import_scope)


def _node(item: Any) -> Node:
    node: Node = item.op if isinstance(item, Output) else item
    return node


def _check_operation(item: Any, label: str) -> None:
    if not isinstance(item, Node | Output):
        raise errors.InvalidTypeError(f"{label} must be an operation, got {item!r}")


def _check_coordinator(coord: Any) -> None:
    if not (coord is None or isinstance(coord, Coordinator)):
        raise errors.InvalidTypeError(f"coord must be a Coordinator or None, got {coord!r}")


def add_queue_runner(qr: QueueRunner, collection: str = GraphKeys.QUEUE_RUNNERS) -> None:
    """Add a runner to a collection of the default graph, for `start_queue_runners`.

    Args:
      qr: a QueueRunner.
      collection: collection of the default graph.
    Raises: InvalidTypeError: it is not a QueueRunner.

    Examples:
      >>> queue = wf.FIFOQueue(10, [wf.int32], [[]])
      >>> wf.train.add_queue_runner(wf.train.QueueRunner(queue, [queue.enqueue(1)]))
    """
    if not hasattr(qr, "create_threads"):
        raise errors.InvalidTypeError(f"a QueueRunner is required, got {qr!r}")
    get_default_graph().add_to_collection(collection, qr)


def start_queue_runners(
    sess: Any = None,
    coord: Coordinator | None = None,
    daemon: bool = True,
    start: bool = True,
    collection: str = GraphKeys.QUEUE_RUNNERS,
) -> list[threading.Thread]:
    """Start the threads of all runners in a collection of the session's graph.

    Args:
      sess: the default session by default.
      coord: coordinator that stops the threads together and receives their errors.
      daemon: True if the program may end while they run.
      start: start them; else the caller does.
      collection: the collection of runners.
    Returns: the threads.
    Raises:
      InvalidArgumentError: `sess` is None and there is no default session.
      InvalidTypeError: `sess` is not a session, or `coord` is not a coordinator.

    Examples:
      >>> item = wf.train.range_input_producer(3, shuffle=False).dequeue()
      >>> with wf.Session() as session:
      ...     coordinator = wf.train.Coordinator()
      ...     threads = wf.train.start_queue_runners(session, coordinator)
      ...     session.run(item)
      ...     coordinator.request_stop()
      ...     coordinator.join(threads)
      np.int32(0)
    """
    _check_coordinator(coord)
    if sess is None:
        sess = thread_stacks.get_default_session()
        if sess is None:
            raise errors.InvalidArgumentError(
                "Cannot start queue runners: No default session is registered. Use `with "
                "sess.as_default()` or pass an explicit session to start_queue_runners(sess=sess)"
            )
    if not isinstance(sess, BaseSession):
        if isinstance(sess, QueueRunningSession):
            return []
        raise errors.InvalidTypeError(f"sess must be a `Session` object. Given class: {type(sess)}")
    runners = sess.graph.get_collection(collection)
    if not runners:
        _log.warning("start_queue_runners was called, but the graph has no queue runners")
    with sess.graph.as_default():
        return [
            thread
            for runner in runners
            for thread in runner.create_threads(sess, coord, daemon, start)
        ]


register_collection(GraphKeys.QUEUE_RUNNERS, "QueueRunnerDef", convert_each(QueueRunner.from_proto))

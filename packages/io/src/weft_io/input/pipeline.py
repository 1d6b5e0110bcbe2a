"""Producers of file names, numbers and slices: queues that are filled epoch by epoch."""

from __future__ import annotations

__all__ = [
    "input_producer",
    "limit_epochs",
    "match_filenames_once",
    "range_input_producer",
    "slice_input_producer",
    "string_input_producer",
]

from collections.abc import Sequence
from typing import Any

from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ir.default_graph import control_dependencies, name_scope
from weft_graph.ir.indexed_slices import convert_to_tensor_or_indexed_slices
from weft_graph.ir.node import Output
from weft_graph.ops import casting, gather, identity, random, sequence, shapes
from weft_graph.ops.control import Assert
from weft_graph.variables.base import Variable
from weft_io.arguments import encode_paths, to_list
from weft_io.coordination.queue_runner import QueueRunner, add_queue_runner
from weft_io.ops import summary
from weft_io.ops.files import matching_files
from weft_io.queues.queue import FIFOQueue, QueueBase
from weft_tensor import dtypes, errors
from weft_tensor.arguments import check_integer, check_text
from weft_tensor.shape import TensorShape


def match_filenames_once(pattern: Any, name: str | None = None) -> Variable:
    """Return the files that match a pattern; the variable's initializer lists them once.

    Args:
      pattern: string, shape () or (n,): names with * and ?.
    Returns: a local variable, string, shape (files,).
    Raises: InvalidTypeError: `pattern` is not a string; when its initializer runs:
      InvalidArgumentError: a set in a pattern does not end.

    Examples:
      >>> for name in ("part-1", "part-2"):
      ...     wf.Session().run(wf.write_file(name, ""))
      >>> files = wf.io.match_filenames_once("part-*")
      >>> with wf.Session() as session:
      ...     session.run(wf.local_variables_initializer())
      ...     session.run(files)
      array([b'part-1', b'part-2'], dtype=object)
    """
    return Variable(
        matching_files(pattern),
        trainable=False,
        collections=[GraphKeys.LOCAL_VARIABLES],
        validate_shape=False,
        name=name or "matching_filenames",
    )


def limit_epochs(tensor: Any, num_epochs: int | None = None, name: str | None = None) -> Output:
    """Return `tensor` up to `num_epochs` times; a local variable counts them.

    Args:
      tensor: any type, any shape.
      num_epochs: number of repetitions; None for no limit.
    Returns: type and shape of `tensor`.
    Raises:
      InvalidArgumentError: `num_epochs` is not positive.
      InvalidTypeError: `num_epochs` is not an integer.
    Raises (when it runs):
      OutOfRangeError: all epochs have been produced.
      FailedPreconditionError: local variables are not initialized.

    Examples:
      >>> x = wf.train.limit_epochs(wf.constant([1.0, 2.0]), num_epochs=2)
      >>> steps = 0
      >>> with wf.train.MonitoredSession() as session:
      ...     while not session.should_stop():
      ...         _ = session.run(x)
      ...         steps += 1
      >>> steps
      2
    """
    value = convert_to_tensor(tensor)
    if num_epochs is None:
        return value
    if check_integer(num_epochs, "num_epochs") <= 0:
        raise errors.InvalidArgumentError(f"num_epochs must be > 0 not {num_epochs}.")
    with name_scope(name, "limit_epochs", [value]) as scope:
        epochs = Variable(
            convert_to_tensor(0, dtypes.int64),
            name="epochs",
            trainable=False,
            collections=[GraphKeys.LOCAL_VARIABLES],
        )
        with control_dependencies([epochs.count_up_to(num_epochs)]):
            return identity.identity(value, scope)


def input_producer(
    input_tensor: Any,
    element_shape: Any = None,
    num_epochs: int | None = None,
    shuffle: bool = True,
    seed: int | None = None,
    capacity: int = 32,
    shared_name: str | None = None,
    summary_name: str | None = None,
    name: str | None = None,
    cancel_op: Any = None,
) -> QueueBase:
    """Return a queue that a queue runner fills with the rows of a tensor, epoch after epoch.

    Args:
      input_tensor: any type, shape (n, S).
      element_shape: S, if it is not static.
      num_epochs: number of epochs; None for no limit. A number requires that local variables are
        initialized.
      shuffle: shuffle the rows of each epoch.
      seed: seed of the order.
      capacity: capacity of the queue.
      shared_name: the name the queue is shared under among sessions.
      summary_name: name of the summary of the queue's fullness.
      cancel_op: the `cancel_op` of the queue runner.
    Returns: a queue of elements of the type of `input_tensor`, shape S.
    Raises: InvalidArgumentError: S is not fully known, or is not `element_shape`; or `num_epochs`
      is not positive.

    Examples:
      >>> points = wf.train.input_producer([[1, 2], [3, 4]], num_epochs=1, shuffle=False)
      >>> point = points.dequeue()
      >>> with wf.train.MonitoredSession() as session:
      ...     session.run(point)
      ...     session.run(point)
      array([1, 2], dtype=int32)
      array([3, 4], dtype=int32)
    """
    with name_scope(name, "input_producer", [input_tensor]):
        rows = convert_to_tensor(input_tensor, name="input_tensor")
        shape = rows.shape[1:].merge_with(TensorShape(element_shape))
        if not shape.is_fully_defined():
            raise errors.InvalidArgumentError(
                "Either `input_tensor` must have a fully defined shape or `element_shape` must be "
                f"specified; the shape of a row is {shape}"
            )
        if shuffle:
            rows = random.random_shuffle(rows, seed=seed)
        rows = limit_epochs(rows, num_epochs)
        queue = FIFOQueue(
            capacity,
            [rows.dtype.base_dtype],
            [shape],
            shared_name=shared_name,
            name=name or "fifo_queue",
        )
        runner = QueueRunner(queue, [queue.enqueue_many([rows])], cancel_op=cancel_op)
        add_queue_runner(runner)
        if summary_name is not None:
            summarize_fullness(summary_name, queue, 0, capacity)
        return queue


def summarize_fullness(name: str, queue: QueueBase, minimum: int, capacity: int) -> None:
    """Add a summary of the used fraction of a queue's capacity above `minimum`.

    Raises: InvalidArgumentError: the capacity is not above `minimum`.
    """
    check_text(name, "summary_name")
    if 0 <= capacity <= minimum:
        raise errors.InvalidArgumentError(
            f"capacity must be greater than min_after_dequeue={minimum}, got {capacity}"
        )
    used = casting.cast(queue.size(), dtypes.float32) - float(minimum)
    if minimum:
        used = out("Maximum", [used, 0.0])
    summary.scalar(name, used * (1.0 / (capacity - minimum)))


def string_input_producer(
    string_tensor: Any,
    num_epochs: int | None = None,
    shuffle: bool = True,
    seed: int | None = None,
    capacity: int = 32,
    shared_name: str | None = None,
    name: str | None = None,
    cancel_op: Any = None,
) -> QueueBase:
    """Enqueue strings, usually file names, as `input_producer` does.

    Args:
      string_tensor: string, shape (n,), n > 0; or a list of strings.
    Raises: InvalidArgumentError: the list is empty; when it runs, if the tensor is.

    Examples:
      >>> names = wf.train.string_input_producer(["a", "b"], shuffle=False).dequeue()
      >>> with wf.train.MonitoredTrainingSession(log_step_count_steps=None) as session:
      ...     session.run([names])
      ...     session.run([names])
      [b'a']
      [b'b']
    """
    message = "string_input_producer requires a non-null input tensor"
    if not isinstance(string_tensor, Output | Variable):
        if isinstance(string_tensor, str | bytes) or not hasattr(string_tensor, "__len__"):
            raise errors.InvalidTypeError(
                f"string_tensor must be a tensor or a list of strings, got {string_tensor!r}"
            )
        if not len(string_tensor):
            raise errors.InvalidArgumentError(message)
        string_tensor = encode_paths(string_tensor)
    with name_scope(name, "input_producer", [string_tensor]) as scope:
        names = convert_to_tensor(string_tensor, dtypes.string)
        with control_dependencies([Assert(shapes.size(names) > 0, [message])]):
            names = identity.identity(names)
        return input_producer(
            names,
            [],
            num_epochs,
            shuffle,
            seed,
            capacity,
            shared_name,
            f"fraction_of_{capacity}_full",
            scope,
            cancel_op,
        )


def range_input_producer(
    limit: Any,
    num_epochs: int | None = None,
    shuffle: bool = True,
    seed: int | None = None,
    capacity: int = 32,
    shared_name: str | None = None,
    name: str | None = None,
) -> QueueBase:
    """Enqueue the integers from 0 to `limit` - 1, as `input_producer` does.

    Args:
      limit: int32, shape ().

    Examples:
      >>> item = wf.train.range_input_producer(3, shuffle=False).dequeue()
      >>> item.dtype
      weft.int32
    """
    with name_scope(name, "input_producer", [limit]) as scope:
        count = convert_to_tensor(limit)
        if not count.dtype.is_integer or count.dims not in ((), None):
            raise errors.InvalidTypeError(f"limit must be an integer, shape (), got {limit!r}")
        return input_producer(
            sequence.range(count),
            [],
            num_epochs,
            shuffle,
            seed,
            capacity,
            shared_name,
            f"fraction_of_{capacity}_full",
            scope,
        )


def slice_input_producer(
    tensor_list: Sequence[Any],
    num_epochs: int | None = None,
    shuffle: bool = True,
    seed: int | None = None,
    capacity: int = 32,
    shared_name: str | None = None,
    name: str | None = None,
) -> list[Output]:
    """Return the rows of several tensors at the same index, epoch after epoch.

    Args:
      tensor_list: any types, shapes (n, S), with n the same for all.
    Returns: a tensor per tensor, of shape S.
    Raises: InvalidArgumentError: the list is empty, or sizes of first axes are known and differ.

    Examples:
      >>> image, label = wf.train.slice_input_producer([wf.zeros([5, 2]), wf.zeros([5])])
      >>> image.shape, label.shape
      (TensorShape([Dimension(2)]), TensorShape([]))
    """
    values = to_list(tensor_list, "tensor_list")
    with name_scope(name, "input_producer", values):
        tensors = [convert_to_tensor_or_indexed_slices(tensor) for tensor in values]
        if not tensors:
            raise errors.InvalidArgumentError(
                "Expected at least one tensor in slice_input_producer()."
            )
        _check_rows(tensors)
        count = shapes.shape(convert_to_tensor(tensors[0]))[0]
        queue = range_input_producer(count, num_epochs, shuffle, seed, capacity, shared_name)
        index = queue.dequeue()
        return [gather.gather(tensor, index) for tensor in tensors]


def _check_rows(tensors: Sequence[Any]) -> None:
    sizes: set[int] = set()
    for tensor in tensors:
        shape = tensor.shape.with_rank_at_least(1)
        if shape.ndims is not None and shape.as_list()[0] is not None:
            sizes.add(shape.as_list()[0])
    if len(sizes) > 1:
        raise errors.InvalidArgumentError(
            f"slice_input_producer requires first axes of the same size, got {sorted(sizes)}"
        )

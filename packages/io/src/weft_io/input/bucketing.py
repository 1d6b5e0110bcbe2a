"""Batches of similar examples, such as sentences of similar length."""

from __future__ import annotations

__all__ = ["bucket", "bucket_by_sequence_length"]

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from weft_graph.ir.builder import constant, convert_to_tensor
from weft_graph.ir.default_graph import name_scope
from weft_graph.ir.indexed_slices import SparseTensor
from weft_graph.ir.node import Node, Output
from weft_graph.ops import casting, comparison, control, reduction
from weft_io.coordination.queue_runner import QueueRunner, add_queue_runner
from weft_io.input.batching import Tensors, convert_keep_input, restore_structure, tensors_of
from weft_io.input.pipeline import summarize_fullness
from weft_io.input.sparse_batches import (
    SparseInfo,
    as_rows,
    convert_example,
    restore_sparse,
    select_rows,
    store_sparse,
)
from weft_io.queues.queue import FIFOQueue, PaddingFIFOQueue, QueueBase
from weft_tensor import dtypes, errors
from weft_tensor.shape import TensorShape

_ENDS = (errors.OutOfRangeError, errors.CancelledError)


def bucket(
    tensors: Tensors,
    which_bucket: Any,
    batch_size: Any,
    num_buckets: int,
    num_threads: int = 1,
    capacity: int = 32,
    bucket_capacities: Sequence[int] | None = None,
    shapes: Any = None,
    dynamic_pad: bool = False,
    allow_smaller_final_batch: bool = False,
    keep_input: Any = True,
    shared_name: str | None = None,
    name: str | None = None,
) -> tuple[Output, Any]:
    """Batch examples that belong to the same bucket.

    Each bucket is a queue. When it has enough elements for a batch, the batch moves to the output
    queue.

    Args:
      tensors: one example: a list of tensors, or a dict.
      which_bucket: int32, shape (): the example's bucket, in [0, num_buckets).
      batch_size: int32, shape (), or one per bucket.
      num_buckets: at least 1.
      num_threads: number of threads that run `tensors`.
      capacity: maximum number of prefetched batches, and by default of examples in a bucket.
      bucket_capacities: maximum number of examples in each bucket.
      shapes: the shape of each tensor, if not static.
      dynamic_pad: allow different sizes, and pad each batch with zeros to the largest.
      allow_smaller_final_batch: return the remaining elements at the end instead of dropping them.
      keep_input: bool, shape (): whether to keep the example.
      shared_name: the name under which sessions share the output queue.
    Returns: the bucket of the batch, int32, shape (); and the batch, as `tensors`.
    Raises: InvalidArgumentError: no tensors, no buckets, or a list of another length than
      `num_buckets`.
    Raises (when it runs): OutOfRangeError: the examples have ended.

    Examples:
      >>> x = wf.train.input_producer([1, 2, 3, 5], num_epochs=1, shuffle=False).dequeue()
      >>> which, numbers = wf.train.bucket([x], x % 2, batch_size=3, num_buckets=2)
      >>> with wf.train.MonitoredSession() as session:
      ...     session.run((which, numbers))
      (np.int32(1), array([1, 3, 5], dtype=int32))
    """
    sizes = _check_sizes(batch_size, num_buckets)
    limits = list(bucket_capacities or [capacity] * num_buckets)
    if len(limits) != num_buckets:
        raise errors.InvalidArgumentError(
            f"The list of bucket_capacities ({limits}) must have the same number of elements as "
            f"num_buckets ({num_buckets})"
        )
    if not len(tensors_of(tensors)):
        raise errors.InvalidArgumentError("Expected at least one tensor in bucket().")
    with name_scope(name, "bucket", tensors_of(tensors)) as prefix:
        keep = convert_keep_input(keep_input, enqueue_many=False)
        index = convert_to_tensor(which_bucket, dtypes.int32)
        example = convert_example(tensors_of(tensors))
        component_shapes = _component_shapes(example, shapes)
        queues, enqueue, infos = _fill_buckets(
            example, component_shapes, index, keep, limits, dynamic_pad
        )
        top = _collect(queues, sizes, capacity, allow_smaller_final_batch, shared_name)
        _run(queues, [enqueue] * num_threads, *top)
        dequeued = top[0].dequeue(name=prefix)
        components = dequeued[1:] if len(dequeued) > 2 else dequeued[1]
        return dequeued[0], restore_structure(tensors, restore_sparse(components, infos))


def bucket_by_sequence_length(
    input_length: Any,
    tensors: Tensors,
    batch_size: Any,
    bucket_boundaries: Sequence[int],
    num_threads: int = 1,
    capacity: int = 32,
    bucket_capacities: Sequence[int] | None = None,
    shapes: Any = None,
    dynamic_pad: bool = False,
    allow_smaller_final_batch: bool = False,
    keep_input: Any = True,
    shared_name: str | None = None,
    name: str | None = None,
) -> tuple[Output, Any]:
    """Batch sequences of similar length.

    Args:
      input_length: int32 or int64, shape (): the length of the example.
      tensors: as for `bucket`, like all arguments that are not listed here.
      batch_size: int32, shape (), or one per bucket; there is one more bucket than boundaries.
      bucket_boundaries: increasing lengths. An example whose length equals a boundary belongs to
        the bucket above it.
    Returns: the lengths in the batch, shape (batch_size,); and the batch, as `tensors`.
    Raises: InvalidArgumentError: there are no boundaries, or they do not increase; and as `bucket`.
    Raises (when it runs): OutOfRangeError: the examples have ended.

    Examples:
      >>> length = wf.train.input_producer([1, 7, 2], num_epochs=1, shuffle=False).dequeue()
      >>> lengths, sequences = wf.train.bucket_by_sequence_length(
      ...     length, [wf.range(length)], 2, bucket_boundaries=[5], dynamic_pad=True
      ... )
      >>> with wf.train.MonitoredSession() as session:
      ...     session.run((lengths, sequences))
      (array([1, 2], dtype=int32), array([[0, 0],
             [0, 1]], dtype=int32))
    """
    boundaries = [int(boundary) for boundary in bucket_boundaries]
    if not boundaries:
        raise errors.InvalidArgumentError("bucket_boundaries must not be empty")
    if any(a >= b for a, b in pairwise(boundaries)):
        raise errors.InvalidArgumentError(f"bucket_boundaries must be increasing, got {boundaries}")
    with name_scope(name, "bucket_by_sequence_length", [input_length]) as prefix:
        length = convert_to_tensor(input_length, preferred_dtype=dtypes.int32)
        reached = comparison.less_equal(constant(boundaries, length.dtype.base_dtype), length)
        index = reduction.reduce_sum(casting.cast(reached, dtypes.int32))
        tensor_list = tensors_of(tensors)
        shapes = None if shapes is None else [[], *shapes]
        _, batch = bucket(
            [length, *tensor_list],
            index,
            batch_size,
            len(boundaries) + 1,
            num_threads,
            capacity,
            bucket_capacities,
            shapes,
            dynamic_pad,
            allow_smaller_final_batch,
            keep_input,
            shared_name,
            prefix,
        )
        components = batch[1:] if len(batch) > 2 else batch[1]
        return batch[0], restore_structure(tensors, components)


# --------------------------------------------------------------------------- parts


def _check_sizes(batch_size: Any, num_buckets: int) -> list[Any]:
    if num_buckets < 1:
        raise errors.InvalidArgumentError(f"num_buckets must be at least 1, got {num_buckets}")
    if not isinstance(batch_size, list | tuple):
        return [batch_size] * num_buckets
    if len(batch_size) != num_buckets:
        raise errors.InvalidArgumentError(
            f"If batch_size is a list it must have num_buckets ({num_buckets}) elements, "
            f"got {len(batch_size)}"
        )
    return list(batch_size)


def _component_shapes(example: Sequence[Any], shapes: Any) -> list[TensorShape]:
    """Return the shape of each component; in the queues, sparse tensors are numbers."""
    if shapes is not None:
        return [TensorShape(shape) for shape in shapes]
    return [TensorShape([]) if isinstance(t, SparseTensor) else t.shape for t in example]


def _fill_buckets(
    example: Sequence[Any],
    shapes: Sequence[TensorShape],
    output: Output,
    keep: Output | None,
    capacities: Sequence[int],
    padded: bool,
) -> tuple[list[QueueBase], Node, Sequence[SparseInfo | None]]:
    """Create the queues of the buckets, and the op that enqueues the example into one of them.

    The op enqueues a batch of one example into its bucket, and an empty batch, which never waits,
    into the others.
    """
    rows = as_rows(example)
    if keep is not None:
        rows = select_rows(rows, keep)
    components, infos = store_sparse(rows, rows=True)
    types = [component.dtype.base_dtype for component in components]
    kind = PaddingFIFOQueue if padded else FIFOQueue
    queues: list[QueueBase] = [
        kind(limit, types, list(shapes), name=f"bucket_queue_{i}")
        for i, limit in enumerate(capacities)
    ]
    checked = control.with_dependencies([_check_range(output, len(queues))], output)
    enqueues = [
        queue.enqueue_many(select_rows(components, comparison.equal(checked, i)))
        for i, queue in enumerate(queues)
    ]
    return queues, control.group(*enqueues, name="group_enqueues"), infos


def _check_range(output: Output, count: int) -> Node:
    in_range = comparison.logical_and(output >= 0, output < count)
    return control.Assert(in_range, [f"which_bucket must be in [0, {count}), got", output])


def _collect(
    queues: Sequence[QueueBase],
    sizes: Sequence[Any],
    capacity: int,
    smaller: bool,
    shared_name: str | None,
) -> tuple[QueueBase, list[Node]]:
    """Create the queue of batches, and the ops that move a batch from each bucket into it."""
    batches = []
    for queue, size in zip(queues, sizes, strict=True):
        dequeue_up = queue.dequeue_up_to(size) if smaller else queue.dequeue_many(size)
        batches.append(dequeue_up if isinstance(dequeue_up, list) else [dequeue_up])
    shapes = [TensorShape([])]
    for column in zip(*batches, strict=True):
        shape = column[0].shape
        for output in column[1:]:
            shape = shape.most_specific_compatible_shape(output.shape)
        shapes.append(shape)
    types = [dtypes.int32, *[output.dtype.base_dtype for output in batches[0]]]
    fixed = all(shape.is_fully_defined() for shape in shapes)
    top: QueueBase = (
        FIFOQueue(capacity, types, shapes, shared_name=shared_name, name="top_queue")
        if fixed
        else PaddingFIFOQueue(capacity, types, shapes, shared_name=shared_name, name="top_queue")
    )
    moves = [
        top.enqueue([constant(i, dtypes.int32), *batch], name=f"read_bucket_{i}")
        for i, batch in enumerate(batches)
    ]
    summarize_fullness(f"fraction_of_{capacity}_full", top, 0, capacity)
    return top, moves


def _run(
    queues: Sequence[QueueBase], enqueues: Sequence[Node], top: QueueBase, moves: Sequence[Node]
) -> None:
    """Add the queue runners: one for all buckets, and one for the queue of batches."""
    filling = QueueRunner(
        queues[0],
        enqueues,
        close_op=control.group(*[queue.close() for queue in queues]),
        cancel_op=control.group(*[queue.close(cancel_pending_enqueues=True) for queue in queues]),
        queue_closed_exception_types=_ENDS,
    )
    add_queue_runner(filling)
    add_queue_runner(QueueRunner(top, moves, queue_closed_exception_types=_ENDS))

"""Batches of examples, by queues that threads fill and steps empty."""

from __future__ import annotations

__all__ = [
    "batch",
    "batch_join",
    "maybe_batch",
    "maybe_batch_join",
    "maybe_shuffle_batch",
    "maybe_shuffle_batch_join",
    "shuffle_batch",
    "shuffle_batch_join",
]

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any

from weft_graph.ir.builder import convert_to_tensor
from weft_graph.ir.constant_value import constant_value
from weft_graph.ir.default_graph import name_scope
from weft_graph.ir.indexed_slices import SparseTensor
from weft_graph.ir.node import Node, Output
from weft_io.arguments import to_list
from weft_io.coordination.queue_runner import QueueRunner, add_queue_runner
from weft_io.input.pipeline import summarize_fullness
from weft_io.input.sparse_batches import (
    as_rows,
    convert_example,
    restore_sparse,
    select_rows,
    store_sparse,
)
from weft_io.queues.queue import FIFOQueue, PaddingFIFOQueue, QueueBase, RandomShuffleQueue
from weft_tensor import dtypes, errors
from weft_tensor.arguments import check_integer
from weft_tensor.shape import TensorShape

Tensors = Any
"""A list of tensors, or a dict of tensors by name; they may be sparse."""

MakeQueue = Callable[[list[Any], list[TensorShape]], QueueBase]
"""A function from the element types and shapes of components to a queue."""


class _Options:
    """Options shared by all functions that batch examples."""

    def __init__(
        self,
        batch_size: Any,
        enqueue_many: bool,
        shapes: Any,
        smaller: bool,
        padded: bool = False,
        threads: int = 1,
    ) -> None:
        self.batch_size = batch_size
        self.enqueue_many = enqueue_many
        self.shapes = None if shapes is None else to_list(shapes, "shapes")
        self.smaller = smaller
        self.padded = padded
        self.threads = check_integer(threads, "num_threads", 1)


def batch(
    tensors: Tensors,
    batch_size: Any,
    num_threads: int = 1,
    capacity: int = 32,
    enqueue_many: bool = False,
    shapes: Any = None,
    dynamic_pad: bool = False,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> Any:
    """Batch the results of repeated runs of `tensors`, prefetched by a queue runner.

    Args:
      tensors: one example, or with `enqueue_many` several along a first axis.
      batch_size: int32, shape ().
      num_threads: number of threads that run `tensors`; with several, the order is not fixed.
      capacity: number of prefetched examples.
      enqueue_many: True if `tensors` have a first axis of examples.
      shapes: shape of each tensor of an example, if it is not static.
      dynamic_pad: allow different sizes, and pad each batch with zeros to the largest.
      allow_smaller_final_batch: return the remaining examples at the end instead of dropping
        them.
      shared_name: the name the queue is shared under among sessions.
    Returns: the structure of `tensors`, with a first axis of `batch_size`; for a list of one
      tensor, that tensor.
    Raises: InvalidArgumentError: no tensors, or a shape is not known.
    Raises (when it runs): OutOfRangeError: the examples have ended.

    Examples:
      >>> x = wf.train.range_input_producer(10, shuffle=False).dequeue()
      >>> rows = wf.train.batch([x], batch_size=3)
      >>> rows.shape
      TensorShape([Dimension(3)])
    """
    return maybe_batch(
        tensors,
        True,
        batch_size,
        num_threads,
        capacity,
        enqueue_many,
        shapes,
        dynamic_pad,
        allow_smaller_final_batch,
        shared_name,
        name,
    )


def maybe_batch(
    tensors: Tensors,
    keep_input: Any,
    batch_size: Any,
    num_threads: int = 1,
    capacity: int = 32,
    enqueue_many: bool = False,
    shapes: Any = None,
    dynamic_pad: bool = False,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> Any:
    """Batch the examples for which `keep_input` is true, as `batch` does.

    Args:
      tensors: as for `batch`, like all arguments that are not listed here.
      keep_input: bool, shape (); with `enqueue_many` shape () for all, or (n,), one per example.
    Returns: as `batch`.
    Raises: InvalidArgumentError: as `batch`, or the rank of `keep_input` is unknown, over 1, or 1
      without `enqueue_many`.
    Raises (when it runs): OutOfRangeError: the examples have ended.

    Examples:
      >>> x = wf.train.range_input_producer(10, shuffle=False).dequeue()
      >>> even = wf.train.maybe_batch([x], wf.equal(x % 2, 0), batch_size=3)
      >>> with wf.train.MonitoredSession() as session:
      ...     session.run(even)
      array([0, 2, 4], dtype=int32)
    """
    options = _Options(
        batch_size, enqueue_many, shapes, allow_smaller_final_batch, dynamic_pad, num_threads
    )
    return _batch(
        [tensors],
        keep_input,
        _fifo(capacity, dynamic_pad, shared_name),
        options,
        (0, capacity),
        name_scope(name, "batch", _values([tensors], keep_input)),
    )


def batch_join(
    tensors_list: Sequence[Tensors],
    batch_size: Any,
    capacity: int = 32,
    enqueue_many: bool = False,
    shapes: Any = None,
    dynamic_pad: bool = False,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> Any:
    """Batch examples from several sources, with a thread for each, as `batch` does.

    Args:
      tensors_list: the `tensors` of each source, with the same number and types; without
        `dynamic_pad` also with the same shapes. batch_size, capacity, enqueue_many, shapes,
        dynamic_pad, allow_smaller_final_batch,
        shared_name: as for `batch`.
    Returns: as `batch`, with the structure of the first source.
    Raises: InvalidArgumentError: as `batch`, or the sources differ in the number, names or shapes
      of tensors; InvalidTypeError: they differ in types, or only some are dicts.
    Raises (when it runs): OutOfRangeError: the examples have ended.

    Examples:
      >>> sources = [
      ...     [wf.train.input_producer(rows, num_epochs=1).dequeue()] for rows in ([1, 2], [30, 40])
      ... ]
      >>> rows = wf.train.batch_join(sources, batch_size=4)
      >>> with wf.train.MonitoredSession() as session:
      ...     sorted(session.run(rows).tolist())
      [1, 2, 30, 40]
    """
    return maybe_batch_join(
        tensors_list,
        True,
        batch_size,
        capacity,
        enqueue_many,
        shapes,
        dynamic_pad,
        allow_smaller_final_batch,
        shared_name,
        name,
    )


def maybe_batch_join(
    tensors_list: Sequence[Tensors],
    keep_input: Any,
    batch_size: Any,
    capacity: int = 32,
    enqueue_many: bool = False,
    shapes: Any = None,
    dynamic_pad: bool = False,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> Any:
    """Batch the examples for which `keep_input` is true, as `batch_join` does.

    Args:
      tensors_list: as for `batch_join`, like all arguments that are not listed here.
      keep_input: bool, shape (), or with `enqueue_many` also (n,); it applies to every source.
    Returns: as `batch_join`.
    Raises: InvalidArgumentError, InvalidTypeError: as `batch_join`, and as `maybe_batch`.
    Raises (when it runs): OutOfRangeError: the examples have ended.

    Examples:
      >>> sources = [[wf.constant([1, 2])], [wf.constant([1, 3])]]
      >>> firsts = wf.train.maybe_batch_join(
      ...     sources, [True, False], batch_size=4, enqueue_many=True
      ... )
      >>> with wf.train.MonitoredSession() as session:
      ...     session.run(firsts)
      array([1, 1, 1, 1], dtype=int32)
    """
    options = _Options(batch_size, enqueue_many, shapes, allow_smaller_final_batch, dynamic_pad)
    return _batch(
        tensors_list,
        keep_input,
        _fifo(capacity, dynamic_pad, shared_name),
        options,
        (0, capacity),
        name_scope(name, "batch_join", _values(tensors_list, keep_input)),
    )


def shuffle_batch(
    tensors: Tensors,
    batch_size: Any,
    capacity: int,
    min_after_dequeue: int,
    num_threads: int = 1,
    seed: int | None = None,
    enqueue_many: bool = False,
    shapes: Any = None,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> Any:
    """Batch examples in a random order, otherwise as `batch` does.

    Args:
      tensors, batch_size, num_threads, enqueue_many, shapes, allow_smaller_final_batch,
        shared_name: as for `batch`.
      capacity: maximum number of prefetched examples.
      min_after_dequeue: minimum number of examples to choose from; larger values shuffle better and
        start later.
      seed: seed of the random order.
    Returns: as `batch`.
    Raises: InvalidArgumentError: as `batch`, or `capacity` is not above `min_after_dequeue`.
    Raises (when it runs): OutOfRangeError: the examples have ended.

    Examples:
      >>> x = wf.train.range_input_producer(10, shuffle=False).dequeue()
      >>> rows = wf.train.shuffle_batch([x], batch_size=3, capacity=10, min_after_dequeue=5)
      >>> rows.shape
      TensorShape([Dimension(3)])
    """
    return maybe_shuffle_batch(
        tensors,
        batch_size,
        capacity,
        min_after_dequeue,
        True,
        num_threads,
        seed,
        enqueue_many,
        shapes,
        allow_smaller_final_batch,
        shared_name,
        name,
    )


def maybe_shuffle_batch(
    tensors: Tensors,
    batch_size: Any,
    capacity: int,
    min_after_dequeue: int,
    keep_input: Any,
    num_threads: int = 1,
    seed: int | None = None,
    enqueue_many: bool = False,
    shapes: Any = None,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> Any:
    """Batch the examples for which `keep_input` is true, as `shuffle_batch` does.

    Args:
      tensors: as for `shuffle_batch`, like all arguments that are not listed here.
      keep_input: bool, shape (); with `enqueue_many` shape () for all, or (n,), one per example.
    Returns: as `batch`.
    Raises: InvalidArgumentError: as `shuffle_batch`, and as `maybe_batch`.
    Raises (when it runs): OutOfRangeError: the examples have ended.

    Examples:
      >>> x = wf.train.range_input_producer(10, num_epochs=1).dequeue()
      >>> even = wf.train.maybe_shuffle_batch(
      ...     [x], 5, capacity=10, min_after_dequeue=2, keep_input=wf.equal(x % 2, 0)
      ... )
      >>> with wf.train.MonitoredSession() as session:
      ...     sorted(session.run(even).tolist())
      [0, 2, 4, 6, 8]
    """
    options = _Options(
        batch_size, enqueue_many, shapes, allow_smaller_final_batch, threads=num_threads
    )
    return _batch(
        [tensors],
        keep_input,
        _shuffle_queue_factory(capacity, min_after_dequeue, seed, shared_name),
        options,
        (min_after_dequeue, capacity),
        name_scope(name, "shuffle_batch", _values([tensors], keep_input)),
    )


def shuffle_batch_join(
    tensors_list: Sequence[Tensors],
    batch_size: Any,
    capacity: int,
    min_after_dequeue: int,
    seed: int | None = None,
    enqueue_many: bool = False,
    shapes: Any = None,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> Any:
    """Batch examples from several sources, with a thread for each, as `shuffle_batch` does.

    Args:
      tensors_list: the `tensors` of each source, with the same number, types and shapes.
      batch_size, capacity, min_after_dequeue, seed, enqueue_many, shapes,
        allow_smaller_final_batch, shared_name: as for `shuffle_batch`.
    Returns: as `batch`, with the structure of the first source.
    Raises: InvalidArgumentError, InvalidTypeError: as `shuffle_batch`, and as `batch_join`.
    Raises (when it runs): OutOfRangeError: the examples have ended.

    Examples:
      >>> sources = [
      ...     [wf.train.input_producer(rows, num_epochs=1).dequeue()] for rows in ([1, 2], [30, 40])
      ... ]
      >>> rows = wf.train.shuffle_batch_join(sources, 4, capacity=10, min_after_dequeue=2)
      >>> with wf.train.MonitoredSession() as session:
      ...     sorted(session.run(rows).tolist())
      [1, 2, 30, 40]
    """
    return maybe_shuffle_batch_join(
        tensors_list,
        batch_size,
        capacity,
        min_after_dequeue,
        True,
        seed,
        enqueue_many,
        shapes,
        allow_smaller_final_batch,
        shared_name,
        name,
    )


def maybe_shuffle_batch_join(
    tensors_list: Sequence[Tensors],
    batch_size: Any,
    capacity: int,
    min_after_dequeue: int,
    keep_input: Any,
    seed: int | None = None,
    enqueue_many: bool = False,
    shapes: Any = None,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> Any:
    """Batch the examples for which `keep_input` is true, as `shuffle_batch_join` does.

    Args:
      tensors_list: as for `shuffle_batch_join`, like all arguments that are not listed here.
      keep_input: bool, shape (), or with `enqueue_many` also (n,); it applies to every source.
    Returns: as `batch_join`.
    Raises: InvalidArgumentError, InvalidTypeError: as `shuffle_batch_join`, and as `maybe_batch`.
    Raises (when it runs): OutOfRangeError: the examples have ended.

    Examples:
      >>> sources = [[wf.constant([1, 2])], [wf.constant([1, 3])]]
      >>> firsts = wf.train.maybe_shuffle_batch_join(
      ...     sources, 4, 10, 2, keep_input=[True, False], enqueue_many=True
      ... )
      >>> with wf.train.MonitoredSession() as session:
      ...     session.run(firsts)
      array([1, 1, 1, 1], dtype=int32)
    """
    options = _Options(batch_size, enqueue_many, shapes, allow_smaller_final_batch)
    return _batch(
        tensors_list,
        keep_input,
        _shuffle_queue_factory(capacity, min_after_dequeue, seed, shared_name),
        options,
        (min_after_dequeue, capacity),
        name_scope(name, "shuffle_batch_join", _values(tensors_list, keep_input)),
    )


# --------------------------------------------------------------------------- the one way


def _fifo(capacity: int, padded: bool, shared_name: str | None) -> MakeQueue:
    kind = PaddingFIFOQueue if padded else FIFOQueue
    return lambda types, shapes: kind(capacity, types, shapes, shared_name=shared_name)


def _shuffle_queue_factory(
    capacity: int, minimum: int, seed: int | None, shared_name: str | None
) -> MakeQueue:
    minimum = check_integer(minimum, "min_after_dequeue", 0)
    return lambda types, shapes: RandomShuffleQueue(
        capacity, minimum, types, shapes, seed=seed, shared_name=shared_name
    )


def _batch(
    sources: Sequence[Tensors],
    keep_input: Any,
    make_queue: MakeQueue,
    options: _Options,
    fullness: tuple[int, int],
    scope: name_scope,
) -> Any:
    """Create the queue, its enqueue operations and the dequeue of batches.

    Args:
      fullness: the range of sizes for the summary of the queue's fullness.
    """
    with scope as prefix:
        keep = convert_keep_input(keep_input, options.enqueue_many)
        examples = [convert_example(tensors_of(source)) for source in _check_sources(sources)]
        enqueue_many = options.enqueue_many
        if keep is not None:
            enqueue_many = True
            rows = [e if options.enqueue_many else as_rows(e) for e in examples]
            examples = [select_rows(row, keep) for row in rows]
        first, infos = store_sparse(examples[0], enqueue_many)
        components = [first] + [
            store_sparse(example, enqueue_many, infos)[0] for example in examples[1:]
        ]
        shapes = _merge_shapes(components, options, enqueue_many)
        queue = make_queue(_types(components), shapes)
        enqueues = [_enqueue(queue, component, enqueue_many) for component in components]
        add_queue_runner(QueueRunner(queue, enqueues * options.threads))
        minimum, capacity = fullness
        name = f"fraction_over_{minimum}_of_{capacity}_full" if minimum else None
        summarize_fullness(name or f"fraction_of_{capacity}_full", queue, minimum, capacity)
        take = queue.dequeue_up_to if options.smaller else queue.dequeue_many
        return restore_structure(
            sources[0], restore_sparse(take(options.batch_size, name=prefix), infos)
        )


def _enqueue(queue: QueueBase, components: Sequence[Output], is_many: bool) -> Node:
    return queue.enqueue_many(components) if is_many else queue.enqueue(components)


def convert_keep_input(keep_input: Any, enqueue_many: bool) -> Output | None:
    """Return `keep_input` as a tensor; None if it is known to be true.

    Raises: InvalidArgumentError: its rank is unknown, over 1, or 1 without `enqueue_many`.
    """
    keep = convert_to_tensor(keep_input, dtypes.bool_)
    rank = keep.shape.ndims
    if rank is None:
        raise errors.InvalidArgumentError(
            "`keep_input` dimensions must be known at graph construction."
        )
    if rank == 1 and not enqueue_many:
        raise errors.InvalidArgumentError(
            "`keep_input` cannot be a vector when `enqueue_many=False`."
        )
    if rank > 1:
        raise errors.InvalidArgumentError("`keep_input` must be 0 or 1 dimensions.")
    constant = constant_value(keep)
    return None if constant is not None and constant.all() else keep


def _values(sources: Sequence[Tensors], keep_input: Any) -> list[Any]:
    tensor_lists = to_list(sources, "tensors_list")
    return [keep_input, *[tensor for source in tensor_lists for tensor in tensors_of(source)]]


def tensors_of(source: Tensors) -> list[Any]:
    """Return the tensors of one example in order; for a dict, by sorted names.

    Raises: InvalidTypeError: it is not a list or dict of tensors, or its keys have no order.
    """
    if isinstance(source, dict):
        try:
            return [source[key] for key in sorted(source)]
        except TypeError as cause:
            raise errors.InvalidTypeError(
                f"the keys of tensors must be text, got {list(source)!r}"
            ) from cause
    if isinstance(source, Output | SparseTensor):
        return [source]
    if isinstance(source, str | bytes) or not isinstance(source, Iterable):
        raise errors.InvalidTypeError(
            f"tensors must be a list of tensors, or a dict of them, got {source!r}"
        )
    return list(source)


def restore_structure(source: Tensors, components: Any) -> Any:
    """Return dequeued components in the structure of an example."""
    if isinstance(source, dict):
        items = components if isinstance(components, list) else [components]
        return dict(zip(sorted(source), items, strict=True))
    return components


def _check_sources(sources: Sequence[Tensors]) -> Sequence[Tensors]:
    if not sources or not all(len(tensors_of(source)) for source in sources):
        raise errors.InvalidArgumentError("Expected at least one tensor in batch().")
    first = sources[0]
    for source in sources[1:]:
        if isinstance(first, dict) != isinstance(source, dict):
            raise errors.InvalidTypeError(
                "if one of the inputs is a dictionary of tensors, all must be dictionaries"
            )
        if isinstance(first, dict) and sorted(first) != sorted(source):
            raise errors.InvalidArgumentError(
                "all dictionaries of tensors must have the same keys, "
                f"got {sorted(first)} and {sorted(source)}"
            )
        if len(tensors_of(source)) != len(tensors_of(first)):
            raise errors.InvalidArgumentError(
                "all inputs must have the same number of tensors as the first, "
                f"{len(tensors_of(first))}, "
                f"got {len(tensors_of(source))}"
            )
    return sources


def _types(components: Sequence[Sequence[Output]]) -> list[Any]:
    types = [output.dtype.base_dtype for output in components[0]]
    for component in components[1:]:
        actual = [output.dtype.base_dtype for output in component]
        if actual != types:
            raise errors.InvalidTypeError(
                f"Expected types to be consistent: {[t.name for t in types]} vs. "
                f"{[t.name for t in actual]}."
            )
    return types


def _merge_shapes(
    components: Sequence[Sequence[Output]], options: _Options, enqueue_many: bool
) -> list[TensorShape]:
    """Return the merged static shape of each component over all sources."""
    if options.shapes is not None:
        return [TensorShape(shape) for shape in options.shapes]
    combine = (
        TensorShape.most_specific_compatible_shape if options.padded else TensorShape.merge_with
    )
    shapes = []
    for column in zip(*components, strict=True):
        for output in column:
            if output.shape.ndims is None:
                raise errors.InvalidArgumentError(f"Cannot infer Tensor's rank: {output}")
        rows = [
            out.shape.with_rank_at_least(1)[1:] if enqueue_many else out.shape for out in column
        ]
        shapes.append(reduce(combine, rows))
    return shapes

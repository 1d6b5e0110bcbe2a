"""The public classes of queues (paper, section 4.6)."""

from __future__ import annotations

__all__ = ["PaddingFIFOQueue", "PriorityQueue", "QueueBase", "RandomShuffleQueue"]

from collections.abc import Sequence
from functools import reduce
from typing import Any

from weft_graph.ir.builder import convert_to_tensor
from weft_graph.ir.constant_value import constant_value
from weft_graph.ir.default_graph import name_scope
from weft_graph.ir.node import Node, Output
from weft_graph.ir.random_seed import get_seed
from weft_graph.ops.gather import gather
from weft_graph.ops.join import stack
from weft_io.ops import queue as ops
from weft_io.queues.components import HasComponents
from weft_tensor import dtypes as types_, errors
from weft_tensor.dtypes import DType
from weft_tensor.shape import Dimension, TensorShape

Components = Any
"""A tensor, a list of tensors, or, for queues with names, a dict of tensors."""


class QueueBase(HasComponents):
    """Base class of queues: elements of one or several components, in a bounded buffer.

    Operations block until other steps let them proceed: `enqueue` waits for space, `dequeue` for
    elements. A waiting operation ends with its step: by a timeout, a failure elsewhere in the
    step, or the end of the session. In that case no element is lost or dequeued twice.

    Args:
      dtypes: element type of each component.
      shapes: static shape of each component, or None if they may have any shape.
      names: name of each component; elements are then dicts.
      queue_ref: the handle, resource, shape ().
    Raises: InvalidArgumentError: the lists have different lengths.

    Examples:
      >>> queues = [wf.FIFOQueue(2, [wf.int32]), wf.RandomShuffleQueue(2, 0, [wf.int32])]
      >>> chosen = wf.QueueBase.from_list(1, queues)
      >>> with wf.Session() as session:
      ...     session.run(chosen.enqueue(5))
      ...     session.run([queue.size() for queue in queues])
      ...     session.run(queues[1].dequeue())
      [np.int32(0), np.int32(1)]
      np.int32(5)
    """

    def __init__(
        self,
        dtypes: Sequence[Any],
        shapes: Sequence[Any] | None,
        names: Sequence[str] | None,
        queue_ref: Output,
    ) -> None:
        self._dtypes = [types_.as_dtype(dtype) for dtype in dtypes]
        if shapes is None:
            self._shapes = [TensorShape(None) for _ in self._dtypes]
        else:
            self._shapes = [TensorShape(shape) for shape in shapes]
        self._names = None if names is None else list(names)
        _check_length("shapes", self._shapes, self._dtypes)
        if self._names is not None:
            _check_length("names", self._names, self._dtypes)
        self._queue_ref = queue_ref
        self._name = queue_ref.op.name.rpartition("/")[2]

    @property
    def name(self) -> str:
        """The name of its node, with all scopes."""
        return self._queue_ref.op.name

    @staticmethod
    def from_list(index: Any, queues: Sequence[QueueBase]) -> QueueBase:
        """Return the queue that `index` selects among `queues` at run time.

        Args:
          index: int32 or int64, shape ().
          queues: queues with equal element types and names.
        Raises: InvalidTypeError: `queues` is not a list of queues, or they differ in types or
          names.
        """
        if (
            not isinstance(queues, list)
            or not queues
            or not all(isinstance(queue, QueueBase) for queue in queues)
        ):
            raise errors.InvalidTypeError("expected a list of queues")
        first = queues[0]
        if any(queue.dtypes != first.dtypes for queue in queues):
            raise errors.InvalidTypeError("Queues do not have matching component dtypes.")
        if any(queue.names != first.names for queue in queues):
            raise errors.InvalidTypeError("Queues do not have matching component names.")
        shapes = [
            reduce(TensorShape.most_specific_compatible_shape, column)
            for column in zip(*[queue.shapes for queue in queues], strict=True)
        ]
        selected = gather(stack([queue.queue_ref for queue in queues]), index)
        return QueueBase(first.dtypes, shapes, first.names, selected)

    # ------------------------------------------------------------------ properties

    @property
    def queue_ref(self) -> Output:
        """The handle."""
        return self._queue_ref

    # ------------------------------------------------------------------ putting in

    def enqueue(self, vals: Components, name: str | None = None) -> Node:
        """Enqueue one element; wait while the queue is full.

        Args:
          vals: a tensor, a list of one tensor per component, or a dict by name.
        Raises:
          InvalidArgumentError: `vals` does not match the components.
        Raises (when it runs): CancelledError: the queue is closed.
        """
        with name_scope(name, f"{self._name}_enqueue", _collect_outputs(vals)) as scope:
            tensors = self._convert(vals)
            for tensor, shape in zip(tensors, self._shapes, strict=True):
                tensor.shape.assert_is_compatible_with(shape)
            return ops.queue_enqueue(self._queue_ref, tensors, name=scope)

    def enqueue_many(self, vals: Components, name: str | None = None) -> Node:
        """Enqueue the rows of a batch; wait while the queue is full, possibly between rows.

        Args:
          vals: as for `enqueue`, with a first axis that has the same size in all components.
        Raises: InvalidArgumentError: `vals` does not match the components.
        Raises (when it runs): CancelledError: the queue is closed.
        """
        with name_scope(name, f"{self._name}_EnqueueMany", _collect_outputs(vals)) as scope:
            tensors = self._convert(vals)
            size = Dimension(None)
            for tensor, shape in zip(tensors, self._shapes, strict=True):
                batch = tensor.shape.with_rank_at_least(1)
                if batch.dims is not None:
                    size = size.merge_with(batch[0])
                    batch[1:].assert_is_compatible_with(shape)
            return ops.queue_enqueue_many(self._queue_ref, tensors, name=scope)

    def _convert(self, vals: Components) -> list[Output]:
        """Return one tensor per component."""
        if isinstance(vals, dict):
            vals = self._order_by_name(vals)
        elif self._names is not None:
            raise errors.InvalidArgumentError("You must enqueue a dictionary in a Queue with names")
        elif not isinstance(vals, list | tuple):
            vals = [vals]
        _check_length("components", vals, self._dtypes)
        return [
            convert_to_tensor(value, dtype, f"component_{i}")
            for i, (value, dtype) in enumerate(zip(vals, self._dtypes, strict=True))
        ]

    def _order_by_name(self, vals: dict[str, Any]) -> list[Any]:
        if self._names is None:
            raise errors.InvalidArgumentError("Queue must have names to enqueue a dictionary")
        if sorted(self._names, key=str) != sorted(vals, key=str):
            raise errors.InvalidArgumentError(
                "Keys in dictionary to enqueue do not match names of Queue.  Dictionary: "
                f"{sorted(vals, key=str)}, Queue: {sorted(self._names, key=str)}"
            )
        return [vals[name] for name in self._names]

    # ------------------------------------------------------------------ taking out

    def dequeue(self, name: str | None = None) -> Any:
        """Dequeue one element; wait while the queue is empty.

        Returns: a tensor, a list of one tensor per component, or a dict by name.
        Raises (when it runs): OutOfRangeError: the queue is closed and empty.
        """
        outputs = ops.queue_dequeue(
            self._queue_ref, self._dtypes, name=name or f"{self._name}_Dequeue"
        )
        for output, shape in zip(outputs, self._shapes, strict=True):
            output.set_shape(shape)
        return self._structure(outputs)

    def dequeue_many(self, n: Any, name: str | None = None) -> Any:
        """Dequeue `n` elements as a batch; wait until that many are available.

        Args:
          n: int32, shape ().
        Returns: as `dequeue`, with a first axis of size n.
        Raises (when it runs):
          OutOfRangeError: the queue is closed and has fewer than n elements, which remain in it.
          InvalidArgumentError: the queue has no shapes, or n is negative.
        """
        return self._batch(n, name or f"{self._name}_DequeueMany", up_to=False)

    def dequeue_up_to(self, n: Any, name: str | None = None) -> Any:
        """Dequeue `n` elements, or the remaining ones of a closed queue.

        Args:
          n: int32, shape ().
        Returns: as `dequeue`, with a first axis of unknown static size.
        Raises (when it runs):
          OutOfRangeError: the queue is closed and empty.
          InvalidArgumentError: the queue has no shapes, or n is negative.
        """
        return self._batch(n, name or f"{self._name}_DequeueUpTo", up_to=True)

    def _batch(self, n: Any, name: str, up_to: bool) -> Any:
        outputs = ops.queue_dequeue_many(self._queue_ref, n, self._dtypes, name=name, up_to=up_to)
        size = None if up_to else _static_int(outputs[0].op.inputs[1])
        for output, shape in zip(outputs, self._shapes, strict=True):
            output.set_shape(TensorShape([size]).concatenate(shape))
        return self._structure(outputs)

    def _structure(self, outputs: Sequence[Output]) -> Any:
        if self._names is not None:
            return dict(zip(self._names, outputs, strict=True))
        return outputs[0] if len(outputs) == 1 else list(outputs)

    # ------------------------------------------------------------------ the rest

    def close(self, cancel_pending_enqueues: bool = False, name: str | None = None) -> Node:
        """Close the queue: reject new elements; existing ones can still be dequeued.

        Args:
          cancel_pending_enqueues: make waiting enqueues fail; by default closing waits for them.
        Raises (when it runs): CancelledError: the queue is already closed, and
          `cancel_pending_enqueues` is false.
        """
        name = name or f"{self._name}_Close"
        return ops.queue_close(self._queue_ref, cancel_pending_enqueues, name)

    def is_closed(self, name: str | None = None) -> Output:
        """Return True if the queue is closed: bool, shape ()."""
        return ops.queue_is_closed(self._queue_ref, name or f"{self._name}_Is_Closed")

    def size(self, name: str | None = None) -> Output:
        """Return the number of elements in the queue: int32, shape ()."""
        return ops.queue_size(self._queue_ref, name or f"{self._name}_Size")

    def __repr__(self) -> str:
        return f"<weft.{type(self).__name__} {self._queue_ref.op.name!r}>"


class FIFOQueue(QueueBase):
    """A queue that returns elements in first-in-first-out order.

    Args:
      capacity: maximum number of elements; unbounded if negative.
      dtypes: element type of each component, or of the only component.
      shapes: fully known shape of each component; None for any shape, which excludes
        `dequeue_many`.
      names: name of each component; elements are then dicts.
      shared_name: the name it is shared under among sessions.
      name: name of its node.
    Raises: InvalidArgumentError: the lists differ in length, or a shape is not fully known.

    Examples:
      >>> queue = wf.FIFOQueue(capacity=10, dtypes=[wf.int32], shapes=[[]])
      >>> fill = queue.enqueue_many([[1, 2, 3]])
      >>> item = queue.dequeue()
      >>> with wf.Session() as session:
      ...     session.run(fill)
      ...     session.run(item), session.run(queue.size())
      (np.int32(1), np.int32(2))
    """

    def __init__(
        self,
        capacity: int,
        dtypes: Any,
        shapes: Any = None,
        names: Any = None,
        shared_name: str | None = None,
        name: str = "fifo_queue",
    ) -> None:
        types, dims, labels = _describe(dtypes, shapes, names)
        handle = ops.fifo_queue(types, dims or (), capacity, shared_name, name)
        super().__init__(types, dims, labels, handle)


class RandomShuffleQueue(QueueBase):
    """A queue that returns elements in random order.

    Args:
      capacity: maximum number of elements; unbounded if negative.
      min_after_dequeue: number of elements that stay in an open queue to keep the order random.
      dtypes, shapes, names, shared_name, name: as for `FIFOQueue`.
      seed: seed of the order; it is combined with the graph's seed as for random operations.
    Raises: InvalidArgumentError: the lists differ in length, or a shape is not fully known.

    Examples:
      >>> queue = wf.RandomShuffleQueue(10, min_after_dequeue=0, dtypes=[wf.int32], shapes=[[]])
      >>> session = wf.Session()
      >>> session.run(queue.enqueue_many([[1, 2, 3]]))
      >>> sorted(session.run(queue.dequeue_many(3)).tolist())
      [1, 2, 3]
    """

    def __init__(
        self,
        capacity: int,
        min_after_dequeue: int,
        dtypes: Any,
        shapes: Any = None,
        names: Any = None,
        seed: int | None = None,
        shared_name: str | None = None,
        name: str = "random_shuffle_queue",
    ) -> None:
        types, dims, labels = _describe(dtypes, shapes, names)
        handle = ops.random_shuffle_queue(
            types,
            dims or (),
            capacity,
            min_after_dequeue,
            _shared_seeds(seed, shared_name),
            shared_name,
            name,
        )
        super().__init__(types, dims, labels, handle)


class PaddingFIFOQueue(QueueBase):
    """A FIFO queue for elements of different sizes, padded to the largest in a batch.

    Numbers are padded with zeros, strings with empty strings, at the end of each axis.

    Args:
      capacity: maximum number of elements; unbounded if negative.
      dtypes: element type of each component, or of the only component.
      shapes: shape of each component, of known rank; sizes may be None.
      names, shared_name, name: as for `FIFOQueue`.
    Raises: InvalidArgumentError: the lists differ in length, or a rank is not known.

    Examples:
      >>> queue = wf.PaddingFIFOQueue(10, [wf.int32], [[None]])
      >>> session = wf.Session()
      >>> session.run(queue.enqueue([[1, 2]]))
      >>> session.run(queue.enqueue([[3]]))
      >>> session.run(queue.dequeue_many(2))
      array([[1, 2],
             [3, 0]], dtype=int32)
    """

    def __init__(
        self,
        capacity: int,
        dtypes: Any,
        shapes: Any,
        names: Any = None,
        shared_name: str | None = None,
        name: str = "padding_fifo_queue",
    ) -> None:
        types, dims, labels = _describe(dtypes, shapes, names, partly=True)
        if dims is None:
            raise errors.InvalidArgumentError("a PaddingFIFOQueue requires shapes, got None")
        handle = ops.fifo_queue(types, dims, capacity, shared_name, name, padding=True)
        super().__init__(types, dims, labels, handle)


class PriorityQueue(QueueBase):
    """A queue that returns the element with the lowest priority number first.

    The number, int64 of shape (), is the first component of an element. Elements with equal numbers
    are returned in first-in-first-out order.

    Args:
      capacity: maximum number of elements; unbounded if negative.
      types: element type of each component except the priority.
      shapes: fully known shape of each component; None for any shape.
      names: name of each component, starting with the priority.
      shared_name, name: as for `FIFOQueue`.
    Raises: InvalidArgumentError: the lists differ in length, or a shape is not fully known.

    Examples:
      >>> queue = wf.PriorityQueue(10, [wf.string], [[]])
      >>> session = wf.Session()
      >>> session.run(queue.enqueue([2, "later"]))
      >>> session.run(queue.enqueue([1, "first"]))
      >>> session.run(queue.dequeue())
      [np.int64(1), b'first']
    """

    def __init__(
        self,
        capacity: int,
        types: Any,
        shapes: Any = None,
        names: Any = None,
        shared_name: str | None = None,
        name: str = "priority_queue",
    ) -> None:
        component_types = _type_list(types)
        dims = _shape_list(shapes, component_types, partly=False)
        labels = None if names is None else _name_list(names)
        all_types = [types_.int64, *component_types]
        if labels is not None:
            _check_length("names", labels, all_types)
        handle = ops.priority_queue(component_types, dims or (), capacity, shared_name, name)
        super().__init__(all_types, None if dims is None else [(), *dims], labels, handle)


# --------------------------------------------------------------------------- arguments


def _describe(
    dtypes: Any, shapes: Any, names: Any, partly: bool = False
) -> tuple[list[DType], list[TensorShape] | None, list[str] | None]:
    types = _type_list(dtypes)
    dims = _shape_list(shapes, types, partly)
    labels = None if names is None else _name_list(names)
    if labels is not None:
        _check_length("names", labels, types)
    return types, dims, labels


def _type_list(dtypes: Any) -> list[DType]:
    single = not isinstance(dtypes, list | tuple)
    return [types_.as_dtype(dtype).base_dtype for dtype in ([dtypes] if single else dtypes)]


def _name_list(names: Any) -> list[str]:
    return list(names) if isinstance(names, list | tuple) else [names]


def _shape_list(shapes: Any, types: Sequence[DType], partly: bool) -> list[TensorShape] | None:
    if shapes is None:
        return None
    if isinstance(shapes, TensorShape):
        shapes = [shapes]
    if not isinstance(shapes, list | tuple):
        raise errors.InvalidTypeError(
            "Shapes must be a TensorShape or a list or tuple of TensorShapes, "
            f"got {type(shapes)} instead."
        )
    if is_one_shape(shapes) and not (isinstance(shapes, list) and not shapes and not types):
        if partly:
            raise errors.InvalidArgumentError(
                "When providing partial shapes, a list of shapes must be provided."
            )
        shapes = [shapes]
    dims = [TensorShape(shape) for shape in shapes]
    if not partly and not all(shape.is_fully_defined() for shape in dims):
        raise errors.InvalidArgumentError(f"All shapes must be fully defined: {dims}")
    if any(shape.ndims is None for shape in dims):
        raise errors.InvalidArgumentError(f"All shapes must have a defined rank: {dims}")
    _check_length("shapes", dims, types)
    return dims


def is_one_shape(shapes: Sequence[Any]) -> bool:
    """Return True if the argument is a single shape, not a list of shapes."""
    return all(size is None or isinstance(size, int | Dimension) for size in shapes)


def _check_length(label: str, items: Sequence[Any], types: Sequence[DType]) -> None:
    if len(items) != len(types):
        raise errors.InvalidArgumentError(
            f"Queue {label} must have the same length as dtypes, "
            f"received len({label})={len(items)}, len(dtypes)={len(types)}"
        )


def _shared_seeds(seed: int | None, shared_name: str | None) -> tuple[int, int]:
    """Return the two seeds of a queue; with a graph-level seed they are equal in all sessions."""
    first, second = get_seed(seed)
    if first is None or second is None:
        return 0, 0
    if seed is None and shared_name is not None:
        import hashlib  # here, since it loads a library that few programs need

        digest = hashlib.md5(f"{first}{shared_name}".encode(), usedforsecurity=False)
        second = int(digest.hexdigest()[:8], 16) & 0x7FFFFFFF
    return first, second


def _collect_outputs(vals: Components) -> list[Output]:
    if isinstance(vals, dict):
        vals = list(vals.values())
    items = vals if isinstance(vals, list | tuple) else [vals]
    return [item for item in items if isinstance(item, Output)]


def _static_int(value: Output) -> int | None:
    constant = constant_value(value)
    return None if constant is None else int(constant)

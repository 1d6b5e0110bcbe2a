"""The public class of barriers."""

from __future__ import annotations

__all__ = ["Barrier"]

from typing import Any, NamedTuple

from weft_graph.ir.builder import convert_to_tensor
from weft_graph.ir.node import Node, Output
from weft_io.ops import barrier as ops
from weft_io.queues.queue import is_one_shape
from weft_tensor import dtypes, errors
from weft_tensor.shape import TensorShape


class BarrierTaken(NamedTuple):
    """The result of `Barrier.take_many`."""

    indices: Output
    """int64, shape (n,): the number of the batch that inserted the key, counted from -2⁶³."""
    keys: Output
    """string, shape (n,)."""
    values: list[Output]
    """A batch per component, shape (n, S)."""


class Barrier:
    """Elements by key: components are inserted separately, and complete elements can be taken.

    Args:
      types: element type of each component, or of the only component.
      shapes: static shape of each component; None for any, but all elements of one `take_many` must
        have equal shapes.
      shared_name: the name it is shared under among sessions.
      name: name of its node.
    Raises: InvalidArgumentError: the numbers of shapes and types differ, or a shape is not fully
      known.

    Examples:
      >>> barrier = wf.queue.Barrier([wf.float32, wf.int32], shapes=[[], []])
      >>> taken = barrier.take_many(1)
      >>> with wf.Session() as session:
      ...     session.run(barrier.insert_many(0, ["a", "b"], [0.5, 1.5]))
      ...     session.run(barrier.insert_many(1, ["b"], [3]))  # completes "b"
      ...     session.run([taken.keys, *taken.values])
      [array([b'b'], dtype=object), array([1.5], dtype=float32), array([3], dtype=int32)]
    """

    def __init__(
        self,
        types: Any,
        shapes: Any = None,
        shared_name: str | None = None,
        name: str = "barrier",
    ) -> None:
        component_types = types if isinstance(types, list | tuple) else [types]
        self._types = [dtypes.as_dtype(dtype).base_dtype for dtype in component_types]
        if shapes is None:
            self._shapes = [TensorShape(None)] * len(self._types)
        else:
            self._shapes = [
                TensorShape(shape) for shape in ([shapes] if is_one_shape(shapes) else shapes)
            ]
            if len(self._shapes) != len(self._types):
                raise errors.InvalidArgumentError(
                    f"Barrier shapes must have the same length as types, received "
                    f"len(shapes)={len(self._shapes)}, len(types)={len(self._types)}"
                )
            if any(not shape.is_fully_defined() for shape in self._shapes):
                raise errors.InvalidArgumentError(
                    f"Barrier shapes must be fully defined: {self._shapes}"
                )
        static_shapes = [] if shapes is None else self._shapes
        self._barrier_ref = ops.barrier(self._types, static_shapes, shared_name, name)
        self._name = self._barrier_ref.op.name.rpartition("/")[2]

    @property
    def barrier_ref(self) -> Output:
        """The reference."""
        return self._barrier_ref

    @property
    def name(self) -> str:
        """The name of its node, without scopes."""
        return self._name

    def insert_many(
        self, component_index: int, keys: Any, values: Any, name: str | None = None
    ) -> Node:
        """Insert one component of several elements; an unknown key begins a new element.

        Args:
          component_index: the number of the component.
          keys: string, shape (n,).
          values: values of the component's type and shape, with a first axis of n.
        Raises:
          InvalidArgumentError: the component does not exist, or the shapes do not match.
        Raises (when it runs, inserting nothing): InvalidArgumentError: an element already has the
          component.
          CancelledError: the barrier is closed, and a key is unknown.
        """
        if not 0 <= component_index < len(self._types):
            raise errors.InvalidArgumentError(
                f"the component index {component_index} is not in [0, {len(self._types)})"
            )
        tensor = convert_to_tensor(values, self._types[component_index])
        rows = TensorShape([None]).concatenate(self._shapes[component_index])
        tensor.shape.assert_is_compatible_with(rows)
        name = name or f"{self._name}_BarrierInsertMany"
        return ops.barrier_insert_many(self._barrier_ref, component_index, keys, tensor, name)

    def take_many(
        self,
        num_elements: Any,
        allow_small_batch: bool = False,
        timeout: int | None = None,
        name: str | None = None,
    ) -> BarrierTaken:
        """Wait until `num_elements` elements are complete, then remove them, oldest keys first.

        Args:
          num_elements: int32, shape ().
          allow_small_batch: let a closed barrier return fewer elements, but at least one, without
            waiting for incomplete ones.
          timeout: maximum wait in milliseconds.
        Raises (when it runs):
          OutOfRangeError: the barrier is closed and has too few elements.
          DeadlineExceededError: it waited longer than `timeout`.
        """
        outputs = ops.barrier_take_many(
            self._barrier_ref,
            num_elements,
            self._types,
            allow_small_batch,
            -1 if timeout is None else timeout,
            name or f"{self._name}_BarrierTakeMany",
        )
        return BarrierTaken(outputs[0], outputs[1], list(outputs[2:]))

    def close(self, cancel_pending_enqueues: bool = False, name: str | None = None) -> Node:
        """Close the barrier: reject new keys; elements may still be completed.

        Args:
          cancel_pending_enqueues: drop incomplete elements.
        Raises (when it runs): CancelledError: it is already closed, and `cancel_pending_enqueues`
          is false now or was true before.
        """
        name = name or f"{self._name}_BarrierClose"
        return ops.barrier_close(self._barrier_ref, cancel_pending_enqueues, name)

    def ready_size(self, name: str | None = None) -> Output:
        """Return the number of complete elements: int32, shape ()."""
        return ops.barrier_ready_size(self._barrier_ref, name or f"{self._name}_BarrierReadySize")

    def incomplete_size(self, name: str | None = None) -> Output:
        """Return the number of elements that lack a component: int32, shape ()."""
        name = name or f"{self._name}_BarrierIncompleteSize"
        return ops.barrier_incomplete_size(self._barrier_ref, name)

"""The public classes of gradient accumulators."""

from __future__ import annotations

__all__ = ["ConditionalAccumulator", "ConditionalAccumulatorBase", "SparseConditionalAccumulator"]

from typing import Any, NamedTuple

from weft_graph.ir.builder import convert_to_tensor
from weft_graph.ir.indexed_slices import IndexedSlices
from weft_graph.ir.node import Node, Output
from weft_graph.ops.casting import cast
from weft_io.ops import accumulator as ops
from weft_tensor import dtypes
from weft_tensor.dtypes import DType
from weft_tensor.shape import TensorShape


class ConditionalAccumulatorBase:
    """Base class of accumulators.

    Each gradient has the number of the step that computed it. The accumulator also has a
    step number, which increases by one with each result. Gradients with lower numbers are dropped.

    Args:
      dtype: element type of the gradients.
      shape: static shape of a gradient, or None.
      accumulator_ref: the handle.

    Examples:
      >>> gradients = [wf.ConditionalAccumulator(wf.float32, []) for _ in range(2)]
      >>> isinstance(gradients[0], wf.ConditionalAccumulatorBase)
      True
      >>> stale = gradients[0].apply_grad(1.0, local_step=2)
      >>> with wf.Session() as session:
      ...     for accumulator in gradients:
      ...         session.run(accumulator.set_global_step(3))
      ...     session.run(stale)
      ...     session.run(gradients[0].num_accumulated())
      np.int32(0)
    """

    def __init__(self, dtype: Any, shape: Any, accumulator_ref: Output) -> None:
        self._dtype = dtypes.as_dtype(dtype)
        self._shape = TensorShape(shape)
        self._accumulator_ref = accumulator_ref
        self._name = accumulator_ref.op.name.rpartition("/")[2]

    @property
    def accumulator_ref(self) -> Output:
        """The handle."""
        return self._accumulator_ref

    @property
    def name(self) -> str:
        """The name of its node, without scopes."""
        return self._name

    @property
    def dtype(self) -> DType:
        """Element type of the gradients."""
        return self._dtype

    def num_accumulated(self, name: str | None = None) -> Output:
        """Return the number of accumulated gradients: int32, shape ()."""
        return ops.num_accumulated(self._accumulator_ref, name or f"{self._name}_NumAccumulated")

    def set_global_step(self, new_global_step: Any, name: str | None = None) -> Node:
        """Set the accumulator's step; a decrease is logged as a warning.

        Args:
          new_global_step: an integer, shape ().
        """
        step = _step(new_global_step)
        return ops.set_global_step(
            self._accumulator_ref, step, name or f"{self._name}_SetGlobalStep"
        )


def _step(value: Any) -> Output:
    step: Output = cast(convert_to_tensor(value, preferred_dtype=dtypes.int64), dtypes.int64)
    return step


class ConditionalAccumulator(ConditionalAccumulatorBase):
    """Accumulates gradients until their mean or sum is taken.

    Args:
      dtype: element type of the gradients, a number.
      shape: static shape of a gradient.
      shared_name: the name it is shared under among sessions.
      name: name of its node.
      reduction_type: "MEAN" or "SUM".
    Raises:
      InvalidTypeError: `dtype` is not a number.
      InvalidArgumentError: `reduction_type` is unknown.

    Examples:
      >>> accumulator = wf.ConditionalAccumulator(wf.float32, shape=[])
      >>> mean = accumulator.take_grad(2)
      >>> with wf.Session() as session:
      ...     session.run(accumulator.apply_grad(1.0))
      ...     session.run(accumulator.apply_grad(3.0))
      ...     session.run(mean)
      np.float32(2.0)
    """

    def __init__(
        self,
        dtype: Any,
        shape: Any = None,
        shared_name: str | None = None,
        name: str = "conditional_accumulator",
        reduction_type: str = "MEAN",
    ) -> None:
        dims = TensorShape(shape)
        handle = ops.accumulator(
            "ResourceConditionalAccumulator", dtype, dims, shared_name, reduction_type, name
        )
        super().__init__(dtype, dims, handle)

    def apply_grad(self, grad: Any, local_step: Any = 0, name: str | None = None) -> Node:
        """Add a gradient, unless it is stale.

        Args:
          grad: a tensor of the accumulator's type and shape.
          local_step: an integer, shape (): the step that computed it.
        Raises:
          InvalidArgumentError: the shape is incompatible.
        """
        value = convert_to_tensor(grad, self._dtype)
        value.shape.assert_is_compatible_with(self._shape)
        return ops.apply_gradient(self._accumulator_ref, _step(local_step), value, name)

    def take_grad(self, num_required: Any, name: str | None = None) -> Output:
        """Wait for `num_required` gradients, then remove and return their mean or sum.

        The accumulator is reset, and its step number increases by one.

        Args:
          num_required: int32, shape (), positive.
        Raises (when it runs): InvalidArgumentError: `num_required` is not positive.
        """
        result = ops.take_gradient(self._accumulator_ref, num_required, self._dtype, name)
        result.set_shape(self._shape)
        return result


class SparseGradient(NamedTuple):
    """The result of `SparseConditionalAccumulator.take_grad`."""

    indices: Output
    """int64, shape (n,), increasing."""
    values: Output
    """Shape (n, S)."""
    shape: Output
    """int64; the first size is -1 if unknown."""


class SparseConditionalAccumulator(ConditionalAccumulatorBase):
    """Accumulates rows of gradients until their mean or sum is taken.

    The mean of a row is over the gradients that contain the row.

    Args:
      dtype: element type of the gradients, a number.
      shape: static shape of a whole gradient.
      shared_name: the name it is shared under among sessions.
      name: name of its node.
      reduction_type: "MEAN" or "SUM".
    Raises:
      InvalidTypeError: `dtype` is not a number.
      InvalidArgumentError: another `reduction_type`.

    Examples:
      >>> rows = wf.SparseConditionalAccumulator(wf.float32, shape=[3, 1])
      >>> mean = rows.take_indexed_slices_grad(2)
      >>> with wf.Session() as session:
      ...     session.run(rows.apply_grad([0], [[1.0]]))
      ...     session.run(rows.apply_grad([0, 2], [[3.0], [5.0]]))
      ...     indices, values = session.run([mean.indices, mean.values])
      >>> indices, values
      (array([0, 2]), array([[2.],
             [5.]], dtype=float32))
    """

    def __init__(
        self,
        dtype: Any,
        shape: Any = None,
        shared_name: str | None = None,
        name: str = "sparse_conditional_accumulator",
        reduction_type: str = "MEAN",
    ) -> None:
        dims = TensorShape(shape)
        handle = ops.accumulator(
            "SparseConditionalAccumulator", dtype, dims, shared_name, reduction_type, name
        )
        super().__init__(dtype, dims, handle)

    def apply_indexed_slices_grad(
        self, grad: IndexedSlices, local_step: Any = 0, name: str | None = None
    ) -> Node:
        """Add a gradient in the form of IndexedSlices; see `apply_grad`."""
        return self.apply_grad(grad.indices, grad.values, grad.dense_shape, local_step, name)

    def apply_grad(
        self,
        grad_indices: Any,
        grad_values: Any,
        grad_shape: Any = None,
        local_step: Any = 0,
        name: str | None = None,
    ) -> Node:
        """Add a gradient, unless it is stale.

        Args:
          grad_indices: integers, shape (n,), in any order; rows with equal indices are added.
          grad_values: shape (n, S).
          grad_shape: shape of the whole gradient, if it is known.
          local_step: an integer, shape (): the step that computed it.
        Raises (when it runs): InvalidArgumentError: shapes are incompatible, or an index is out of
          range.
        """
        shape = None if grad_shape is None else _step(grad_shape)
        return ops.apply_sparse_gradient(
            self._accumulator_ref,
            _step(local_step),
            _step(grad_indices),
            convert_to_tensor(grad_values, self._dtype),
            shape,
            name,
        )

    def take_grad(self, num_required: Any, name: str | None = None) -> SparseGradient:
        """Wait for `num_required` gradients, then remove and return their mean or sum.

        The accumulator is reset, and its step number increases by one.

        Args:
          num_required: int32, shape (), positive.
        Raises (when it runs): InvalidArgumentError: `num_required` is not positive.
        """
        parts = ops.take_sparse_gradient(self._accumulator_ref, num_required, self._dtype, name)
        return SparseGradient(*parts)

    def take_indexed_slices_grad(self, num_required: Any, name: str | None = None) -> IndexedSlices:
        """Return the result of `take_grad` as IndexedSlices.

        Args:
          num_required: int32, shape (), positive.
        """
        grad = self.take_grad(num_required, name)
        return IndexedSlices(grad.values, grad.indices, grad.shape)

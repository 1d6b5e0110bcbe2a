"""Average losses over a batch, which several replicas may share."""

from __future__ import annotations

__all__ = ["compute_average_loss", "scale_regularization_loss"]

from typing import Any

from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.node import Output
from weft_graph.ops import casting, reduction, shapes
from weft_tensor import errors


def compute_average_loss(
    per_example_loss: Any, sample_weight: Any = None, global_batch_size: Any = None
) -> Output:
    """Return the sum of weighted losses divided by the batch size.

    Args:
      per_example_loss: floating, shape (N, ...).
      sample_weight: real; broadcasts to the losses; missing axes are added at the end.
      global_batch_size: integer, rank 0; N by default.
    Returns: rank 0, dtype of the losses.
    Raises: InvalidArgumentError: the losses have rank 0, or the weights do not broadcast.

    Examples:
      >>> wf.Session().run(wf.nn.compute_average_loss([1.0, 3.0], [1.0, 0.5]))
      np.float32(1.25)
    """
    loss = convert_to_tensor(per_example_loss)
    if loss.dims == ():
        raise errors.InvalidArgumentError(
            "compute_average_loss requires losses of rank 1 or more, got a scalar"
        )
    kind = loss.dtype.base_dtype
    if sample_weight is not None:
        weight = casting.cast(convert_to_tensor(sample_weight), kind)
        if weight.dims and loss.dims is not None:
            for _ in range(len(loss.dims) - len(weight.dims)):
                weight = shapes.expand_dims(weight, -1)
        loss = out("Mul", [loss, weight])
    size = shapes.shape(loss)[0] if global_batch_size is None else global_batch_size
    return out("RealDiv", [reduction.reduce_sum(loss), casting.cast(size, kind)])


def scale_regularization_loss(regularization_loss: Any) -> Output:
    """Return the sum of regularization losses divided by the number of replicas, which is 1.

    Args:
      regularization_loss: floating, any shape.
    Returns: rank 0, dtype of the losses.

    Examples:
      >>> wf.Session().run(wf.nn.scale_regularization_loss([1.0, 2.0]))
      np.float32(3.0)
    """
    return reduction.reduce_sum(convert_to_tensor(regularization_loss))

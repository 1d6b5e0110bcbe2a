"""Second derivatives, by gradients of gradients."""

from __future__ import annotations

__all__ = ["hessians"]

from typing import Any

from weft_autodiff.gradients.backprop import gradients
from weft_graph.control_flow.loop import while_loop
from weft_graph.control_flow.tensor_array import TensorArray
from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.default_graph import name_scope
from weft_graph.ir.node import Output
from weft_tensor import dtypes


def hessians(
    ys: Any,
    xs: Any,
    name: str = "hessians",
    colocate_gradients_with_ops: bool = False,
    gate_gradients: bool = False,
    aggregation_method: Any = None,
) -> list[Output]:
    """Compute the second derivatives of the sum of `ys` with respect to each of `xs`.

    A loop differentiates every element of the first gradient.

    Args:
      ys: output or list of outputs, floating, any shape.
      xs: output, variable, or list of these.
      name: name scope of the new nodes.
      colocate_gradients_with_ops, gate_gradients, aggregation_method: as in `gradients`.
    Returns: one for each x, of shape `x.shape + x.shape` and the dtype of x; zeros if the second
      derivative vanishes.
    Raises: as `gradients`.

    Examples:
      >>> x = wf.constant([1.0, 2.0])
      >>> wf.Session().run(wf.hessians(x[0] * x[0] * x[1], x))
      [array([[4., 2.],
             [2., 0.]], dtype=float32)]
    """
    options = {
        "colocate_gradients_with_ops": colocate_gradients_with_ops,
        "gate_gradients": gate_gradients,
        "aggregation_method": aggregation_method,
        "unconnected_gradients": "zero",
    }
    with name_scope(name):
        points = list(xs) if isinstance(xs, list | tuple) else [xs]
        first_grads = gradients(ys, points, **options)
        return [
            _hessian(convert_to_tensor(grad_of_x), x, options)
            for grad_of_x, x in zip(first_grads, points, strict=True)
        ]


def _hessian(slope: Output, x: Any, options: dict[str, Any]) -> Output:
    value = convert_to_tensor(x)
    flat = out("Reshape", [slope, [-1]])
    count = out("Size", [flat])
    rows = TensorArray(value.dtype.base_dtype, size=count)

    def body(i: Output, rows: Any) -> tuple[Any, Any]:
        row = convert_to_tensor(gradients(flat[i], x, **options)[0])
        return i + 1, rows.write(i, row)

    _, rows = while_loop(
        lambda i, _: out("Less", [i, count]), body, (convert_to_tensor(0, dtypes.int32), rows)
    )
    shape = out("Shape", [value])
    return out("Reshape", [rows.stack(), out("ConcatV2", [[shape, shape], 0])])

"""Products and solutions of dense matrices with broadcast batches."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from weft_graph.ir.builder import out
from weft_graph.ir.node import Output
from weft_graph.ops import linalg, permutation
from weft_tensor.shape import Dims, TensorShape, broadcast_dims


def adjoint_of(x: Output) -> Output:
    """Return the conjugate transpose."""
    return permutation.matrix_transpose(x, conjugate=True)


def product(a: Output, b: Output, adjoint_a: bool = False, adjoint_b: bool = False) -> Output:
    """Return a @ b."""
    return out("BatchMatMulV2", [a, b], {"adj_x": adjoint_a, "adj_y": adjoint_b})


def spread(a: Output, b: Output) -> tuple[Output, Output]:
    """Broadcast two batches of matrices to common leading axes."""
    if a.dims is not None and b.dims is not None:
        lead = a.dims[:-2]
        if lead == b.dims[:-2] and None not in lead:
            return a, b
    shapes = [out("Shape", [x]) for x in (a, b)]
    lead_shape = out("BroadcastArgs", [shapes[0][:-2], shapes[1][:-2]])
    broadcast = [
        out("BroadcastTo", [x, out("ConcatV2", [[lead_shape, shape[-2:]], 0])])
        for x, shape in zip((a, b), shapes, strict=True)
    ]
    return broadcast[0], broadcast[1]


def solve(matrix: Output, rhs: Output, adjoint: bool = False) -> Output:
    """Return X with matrix @ X = rhs."""
    return linalg.matrix_solve(*spread(matrix, rhs), adjoint=adjoint)


def solve_triangular(
    matrix: Output, rhs: Output, lower: bool = True, adjoint: bool = False
) -> Output:
    """Return X with matrix @ X = rhs for a triangular matrix."""
    return linalg.matrix_triangular_solve(*spread(matrix, rhs), lower=lower, adjoint=adjoint)


def broadcast_batch_dims(shapes: Sequence[TensorShape]) -> Dims:
    """Return the statically known broadcast of batch shapes."""
    empty: Dims = ()
    batch_dims: list[Dims] = [
        None if shape.dims is None else tuple(shape.as_list()) for shape in shapes
    ]
    return reduce(broadcast_dims, batch_dims, empty)


def broadcast_batch_shape(shapes: Sequence[Output]) -> Output:
    """Return the broadcast of batch shapes as a tensor."""
    return reduce(lambda a, b: out("BroadcastArgs", [a, b]), shapes)


def concat_shape(*parts: Any) -> Output:
    """Concatenate vectors and single sizes to a shape."""
    vectors = [
        part if isinstance(part, Output) and part.dims != () else out("Pack", [[part]])
        for part in parts
    ]
    return out("ConcatV2", [vectors, 0])


def log_magnitude(x: Output) -> Output:
    """Return log(|x|) in the dtype of x."""
    if not x.dtype.is_complex:
        return out("Log", [out("Abs", [x])])
    size = out("ComplexAbs", [x], {"Tout": x.dtype.real_dtype})
    return out("Cast", [out("Log", [size])], {"DstT": x.dtype.base_dtype})


def conjugate(x: Output, yes: bool = True) -> Output:
    """Return the complex conjugate; real values are returned unchanged."""
    return out("Conj", [x]) if yes and x.dtype.is_complex else x

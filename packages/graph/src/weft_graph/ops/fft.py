"""Discrete Fourier transforms over the last axes or selected axes, and shifts of spectra.

`F[k] = sum over j of x[j] * exp(-2j * pi * j * k / n)` along each axis; the inverse has the other
sign and divides by n. For real input, only the half up to `n // 2` is stored along the last axis,
because the rest are its conjugates. float32 and complex64 are computed in single precision.
"""

from __future__ import annotations

__all__ = [
    "fft",
    "fft2d",
    "fft3d",
    "fftnd",
    "ifft",
    "ifft2d",
    "ifft3d",
    "ifftnd",
    "irfftnd",
    "rfftnd",
]

from collections.abc import Callable, Sequence
from math import log2, prod
from typing import Any

import numpy as np

from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.constant_value import constant_value
from weft_graph.ir.costs import Sizes
from weft_graph.ir.default_graph import name_scope
from weft_graph.ir.node import Output
from weft_graph.ir.op_def import NodeSpec, ShapeRule, register_op
from weft_graph.ir.traits import Traits
from weft_graph.ops import shape_rules
from weft_graph.ops.casting import cast
from weft_graph.ops.cost_rules import computes
from weft_graph.ops.permutation import roll
from weft_tensor import dtypes, errors
from weft_tensor.shape import Dims, format_dims

_COMPLEX = "{complex64, complex128} = complex64"
_REAL = "{float32, float64} = float32"

# ------------------------------------------------------------------------------ shapes


def _same_shape_rule(min_rank: int) -> ShapeRule:
    def rule(node: NodeSpec) -> Sequence[Dims]:
        return (shape_rules.with_rank_at_least(node.inputs[0].dims, min_rank, "input"),)

    return rule


def _lengths(node: NodeSpec, count: int | None) -> list[int] | None:
    """Return the static sizes in fft_length."""
    vector = node.inputs[1]
    (num_lengths,) = shape_rules.with_rank(vector.dims, 1, "fft_length")
    shape_rules.merge_size(
        num_lengths, count, "the sizes in fft_length and the axes of the transform"
    )
    static = shape_rules.constant_array(vector)
    if static is None:
        return None
    lengths: list[int] = static.tolist()
    if min(lengths, default=0) < 0:
        raise errors.InvalidArgumentError(
            f"fft_length must have sizes of at least 0, got {lengths}"
        )
    return lengths


def half(size: int) -> int:
    """Return the number of stored elements of the transform of `size` real numbers."""
    return size // 2 + 1 if size else 0


def _transform_dims(
    dims: tuple[int | None, ...], axes: Sequence[int], lengths: list[int] | None, halved: str
) -> Sequence[Dims]:
    """Return the shape of the result: `lengths` along the axes, or half along the last one.

    Args:
      halved: the side with half the last length: "input", "output" or "".
    """
    result = list(dims)
    last = axes[-1] if axes else None
    static_lengths: Sequence[int | None] = [None] * len(axes) if lengths is None else lengths
    for axis, size in zip(axes, static_lengths, strict=True):
        input_size, output_size = size, size
        if size is not None and axis == last:
            input_size = half(size) if halved == "input" else size
            output_size = half(size) if halved == "output" else size
        dim = dims[axis]
        if input_size is not None and dim is not None and dim < input_size:
            raise errors.InvalidArgumentError(
                f"a transform of length {size} requires at least {input_size} elements along axis "
                f"{axis}, got shape {format_dims(dims)}"
            )
        result[axis] = output_size
    return (tuple(result),)


def _innermost_shape(rank: int, halved: str) -> ShapeRule:
    def rule(node: NodeSpec) -> Sequence[Dims]:
        lengths = _lengths(node, rank)
        dims = shape_rules.with_rank_at_least(node.inputs[0].dims, rank, "input")
        if dims is None:
            return (None,)
        return _transform_dims(dims, range(len(dims) - rank, len(dims)), lengths, halved)

    return rule


def _axes_shape(halved: str) -> ShapeRule:
    def rule(node: NodeSpec) -> Sequence[Dims]:
        (count,) = shape_rules.with_rank(node.inputs[2].dims, 1, "axes")
        lengths = _lengths(node, count)
        axes = shape_rules.constant_array(node.inputs[2])
        dims = node.inputs[0].dims
        if dims is None or axes is None:
            return (None if dims is None else (None,) * len(dims),)
        positions = shape_rules.normal_axes(axes.tolist(), len(dims))
        return _transform_dims(dims, positions, lengths, halved)

    return rule


# ------------------------------------------------------------------------------ declarations


@computes
def _cost(sizes: Sizes) -> float:
    """Cost rule: the usual estimate 5 n log2(n), with all axes as one."""
    count = max(prod(sizes.inputs[0]), prod(sizes.outputs[0]))
    return 5 * count * log2(max(count, 2))


_TRAITS = Traits(cost=_cost)
_REAL_INVERSES = frozenset({"IRFFT", "IRFFT2D", "IRFFT3D", "IRFFTND"})


def _declare(rank: int | None) -> None:
    """Declare the four transforms over some of the last axes, or over selected axes."""
    suffix = "ND" if rank is None else "" if rank == 1 else f"{rank}D"
    axes_text = "over selected axes" if rank is None else f"over the last {rank} axes"
    lengths = ("fft_length: int32", "axes: int32") if rank is None else ("fft_length: int32",)
    length_args = lengths if rank is None else ()
    real = {"Treal": _REAL, "Tcomplex": _COMPLEX}
    for op, inputs, output, attrs, halved, doc in (
        (
            "FFT",
            ("input: Tcomplex", *length_args),
            "Tcomplex",
            {"Tcomplex": _COMPLEX},
            "",
            "Fourier transforms",
        ),
        (
            "IFFT",
            ("input: Tcomplex", *length_args),
            "Tcomplex",
            {"Tcomplex": _COMPLEX},
            "",
            "Inverse Fourier transforms",
        ),
        ("RFFT", ("input: Treal", *lengths), "Tcomplex", real, "output", "Real Fourier transforms"),
        (
            "IRFFT",
            ("input: Tcomplex", *lengths),
            "Treal",
            real,
            "input",
            "Inverse real Fourier transforms",
        ),
    ):
        if rank is None:
            rule = _axes_shape(halved)
        else:
            rule = _innermost_shape(rank, halved) if halved else _same_shape_rule(rank)
        register_op(
            op + suffix,
            inputs,
            (f"output: {output}",),
            attrs,
            rule,
            traits=_TRAITS,
            doc=f"{doc} {axes_text}.",
        )


for _rank in (1, 2, 3, None):
    _declare(_rank)

# ---------------------------------------------------------------------------------- functions


def fft(input: Any, name: str | None = None) -> Output:
    """Return the Fourier transform over the last axis.

    Args:
      input: complex, shape (..., N).
    Returns: shape and dtype of `input`.

    Examples:
      >>> wf.Session().run(wf.signal.fft([1 + 0j, 2.0, 3.0, 4.0]))
      array([10.+0.j, -2.+2.j, -2.+0.j, -2.-2.j])
    """
    return out("FFT", [input], name=name)


def ifft(input: Any, name: str | None = None) -> Output:
    """Return the inverse of `fft`.

    Args:
      input: complex, shape (..., N).
    Returns: shape and dtype of `input`.

    Examples:
      >>> wf.Session().run(wf.signal.ifft([4 + 0j, 0.0, 0.0, 0.0]))
      array([1.+0.j, 1.+0.j, 1.+0.j, 1.+0.j])
    """
    return out("IFFT", [input], name=name)


def fft2d(input: Any, name: str | None = None) -> Output:
    """Return the Fourier transform over the last two axes.

    Args:
      input: complex, shape (..., M, N).
    Returns: shape and dtype of `input`.

    Examples:
      >>> wf.Session().run(wf.signal.fft2d([[1 + 0j, 2.0], [3.0, 4.0]]))
      array([[10.+0.j, -2.+0.j],
             [-4.+0.j,  0.+0.j]])
    """
    return out("FFT2D", [input], name=name)


def ifft2d(input: Any, name: str | None = None) -> Output:
    """Return the inverse of `fft2d`.

    Args:
      input: complex, shape (..., M, N).
    Returns: shape and dtype of `input`.

    Examples:
      >>> wf.Session().run(wf.signal.ifft2d([[4 + 0j, 0.0], [0.0, 0.0]]))
      array([[1.+0.j, 1.+0.j],
             [1.+0.j, 1.+0.j]])
    """
    return out("IFFT2D", [input], name=name)


def fft3d(input: Any, name: str | None = None) -> Output:
    """Return the Fourier transform over the last three axes.

    Args:
      input: complex, shape (..., L, M, N).
    Returns: shape and dtype of `input`.

    Examples:
      >>> wf.Session().run(wf.signal.fft3d([[[1 + 0j, 2.0]]]))
      array([[[ 3.+0.j, -1.+0.j]]])
    """
    return out("FFT3D", [input], name=name)


def ifft3d(input: Any, name: str | None = None) -> Output:
    """Return the inverse of `fft3d`.

    Args:
      input: complex, shape (..., L, M, N).
    Returns: shape and dtype of `input`.

    Examples:
      >>> wf.Session().run(wf.signal.ifft3d([[[3 + 0j, -1.0]]]))
      array([[[1.+0.j, 2.+0.j]]])
    """
    return out("IFFT3D", [input], name=name)


def rfft(input_tensor: Any, fft_length: Any = None, name: str | None = None) -> Output:
    """Return the Fourier transform of real numbers over the last axis.

    Args:
      input_tensor: float32 or float64, shape (..., N).
      fft_length: int32, shape (1,): the length n, to which the axis is cropped or filled with
        zeros; N by default.
    Returns: complex64 or complex128, shape (..., n // 2 + 1).

    Examples:
      >>> wf.Session().run(wf.signal.rfft([1.0, 2.0, 3.0, 4.0]))
      array([10.+0.j, -2.+2.j, -2.+0.j], dtype=complex64)
    """
    return _real_transform("RFFT", 1, input_tensor, fft_length, name or "rfft")


def irfft(input_tensor: Any, fft_length: Any = None, name: str | None = None) -> Output:
    """Return the inverse of `rfft`.

    Args:
      input_tensor: complex, shape (..., N); imaginary parts that must be 0 are ignored.
      fft_length: int32, shape (1,): the length n of the result; 2 * (N - 1) by default; required
        for odd lengths.
    Returns: float32 or float64, shape (..., n).

    Examples:
      >>> wf.Session().run(wf.signal.irfft([10 + 0j, -2 + 2j, -2.0]))
      array([1., 2., 3., 4.], dtype=float32)
    """
    return _real_transform("IRFFT", 1, input_tensor, fft_length, name or "irfft")


def rfft2d(input_tensor: Any, fft_length: Any = None, name: str | None = None) -> Output:
    """Return the Fourier transform of real numbers over the last two axes.

    Args:
      input_tensor: float32 or float64, shape (..., M, N).
      fft_length: int32, shape (2,): the lengths (m, n), as in `rfft`.
    Returns: complex64 or complex128, shape (..., m, n // 2 + 1).

    Examples:
      >>> wf.Session().run(wf.signal.rfft2d([[1.0, 2.0], [3.0, 4.0]]))
      array([[10.+0.j, -2.+0.j],
             [-4.+0.j,  0.+0.j]], dtype=complex64)
    """
    return _real_transform("RFFT2D", 2, input_tensor, fft_length, name or "rfft2d")


def irfft2d(input_tensor: Any, fft_length: Any = None, name: str | None = None) -> Output:
    """Return the inverse of `rfft2d`.

    Args:
      input_tensor: complex, shape (..., M, N).
      fft_length: int32, shape (2,): the lengths (m, n) of the result; (M, 2 * (N - 1)) by default.
    Returns: float32 or float64, shape (..., m, n).

    Examples:
      >>> wf.Session().run(wf.signal.irfft2d([[10 + 0j, -2.0], [-4.0, 0.0]]))
      array([[1., 2.],
             [3., 4.]], dtype=float32)
    """
    return _real_transform("IRFFT2D", 2, input_tensor, fft_length, name or "irfft2d")


def rfft3d(input_tensor: Any, fft_length: Any = None, name: str | None = None) -> Output:
    """Return the Fourier transform of real numbers over the last three axes.

    Args:
      input_tensor: float32 or float64, shape (..., L, M, N).
      fft_length: int32, shape (3,): the lengths (l, m, n), as in `rfft`.
    Returns: complex64 or complex128, shape (..., l, m, n // 2 + 1).

    Examples:
      >>> wf.Session().run(wf.signal.rfft3d([[[1.0, 2.0]]]))
      array([[[ 3.+0.j, -1.+0.j]]], dtype=complex64)
    """
    return _real_transform("RFFT3D", 3, input_tensor, fft_length, name or "rfft3d")


def irfft3d(input_tensor: Any, fft_length: Any = None, name: str | None = None) -> Output:
    """Return the inverse of `rfft3d`.

    Args:
      input_tensor: complex, shape (..., L, M, N).
      fft_length: int32, shape (3,): the lengths (l, m, n) of the result; (L, M, 2 * (N - 1)) by
        default.
    Returns: float32 or float64, shape (..., l, m, n).

    Examples:
      >>> wf.Session().run(wf.signal.irfft3d([[[3 + 0j, -1.0]]]))
      array([[[1., 2.]]], dtype=float32)
    """
    return _real_transform("IRFFT3D", 3, input_tensor, fft_length, name or "irfft3d")


def _real_transform(op: str, rank: int, value: Any, fft_length: Any, name: str) -> Output:
    with name_scope(name) as scope:
        inverse = op in _REAL_INVERSES
        x = _convert_input(value, inverse)
        if fft_length is None:
            fft_length = _full_lengths(x, np.arange(-rank, 0, dtype=np.int32), inverse)
        lengths = convert_to_tensor(fft_length, dtypes.int32)
        x = _pad_to_lengths(x, lengths, np.arange(-rank, 0, dtype=np.int32), inverse)
        return out(op, [x, lengths], _result_type(x, op), scope)


def _convert_input(value: Any, inverse: bool) -> Output:
    """Convert the input to a tensor; Python integers become floats."""
    return convert_to_tensor(value, preferred_dtype=dtypes.complex64 if inverse else dtypes.float32)


def _result_type(x: Output, op: str) -> dict[str, Any]:
    if x.dtype.is_complex:
        return {"Treal": x.dtype.real_dtype} if op in _REAL_INVERSES else {}
    wide = dtypes.complex128 if x.dtype.base_dtype is dtypes.float64 else dtypes.complex64
    return {"Tcomplex": wide}


def _full_lengths(x: Output, axes: Any, inverse: bool) -> Any:
    """Return the full lengths of the transforms along the axes."""
    sizes = shape_of(x, axes)
    if not inverse or not len(axes):
        return sizes
    if isinstance(sizes, np.ndarray):
        return np.append(sizes[:-1], np.int32(max(0, 2 * (sizes[-1] - 1))))
    last = out("Maximum", [0, out("Mul", [2, out("Sub", [sizes[-1:], 1])])])
    return out("ConcatV2", [[sizes[:-1], last], 0])


def shape_of(x: Output, axes: Any) -> Any:
    """Return the sizes along axes, as an array if they are static, else as an output."""
    if x.dims is not None:
        static_sizes = [
            x.dims[axis] for axis in shape_rules.normal_axes(map(int, axes), len(x.dims))
        ]
        if None not in static_sizes:
            return np.array(static_sizes, np.int32)
    selected = axes if x.dims is None else np.array(axes, np.int32) % max(len(x.dims), 1)
    if x.dims is None and len(axes) and min(axes) < 0:
        selected = out("AddV2", [axes, out("Rank", [x])])
    return out("GatherV2", [out("Shape", [x]), selected, 0])


def _pad_to_lengths(x: Output, lengths: Output, axes: Any, inverse: bool) -> Output:
    """Pad axes that are shorter than the transform with zeros at the end."""
    sizes, static_lengths = shape_of(x, axes), constant_value(lengths)
    if isinstance(sizes, np.ndarray) and static_lengths is not None:
        required = static_lengths.copy()
        if inverse and len(required):
            required[-1] = half(int(required[-1]))
        if required.shape == sizes.shape and not (required > sizes).any():
            return x
    lengths_needed = lengths
    if inverse:
        last = out("AddV2", [out("FloorDiv", [lengths[-1:], 2]), 1])
        lengths_needed = out("ConcatV2", [[lengths[:-1], last], 0])
    lack = out("Maximum", [0, out("Sub", [lengths_needed, sizes])])
    rank = out("Rank", [x]) if x.dims is None else len(x.dims)
    positions = out("FloorMod", [axes, rank])
    trailing = out("ScatterNd", [out("ExpandDims", [positions, 1]), lack, out("Pack", [[rank]])])
    paddings = out("Pack", [[out("ZerosLike", [trailing]), trailing]], {"axis": 1})
    return out("Pad", [x, paddings])


# -------------------------------------------------------------------- over selected axes


def fftnd(
    input_tensor: Any,
    fft_length: Any = None,
    axes: Any = None,
    norm: str | None = None,
    name: str | None = None,
) -> Output:
    """Return the Fourier transform over selected axes.

    Args:
      input_tensor: complex, rank n.
      fft_length: int32, one length for each of `axes`, to which the axis is cropped or padded with
        zeros; the axis sizes by default.
      axes: distinct constant integers; all axes by default.
      norm: "backward" to scale the inverse only, "forward" to scale the transform only, or "ortho"
        to divide both by the square root of the number of elements.
    Returns: dtype of `input_tensor`, `fft_length` along the axes.
    Raises: InvalidArgumentError: the rank or the axes are not statically known.

    Examples:
      >>> wf.Session().run(wf.signal.fftnd([[1 + 0j, 2.0], [3.0, 4.0]], axes=[0]))
      array([[ 4.+0.j,  6.+0.j],
             [-2.+0.j, -2.+0.j]], dtype=complex64)
    """
    return _transform_axes("FFTND", input_tensor, fft_length, axes, norm, name or "fftnd")


def ifftnd(
    input_tensor: Any,
    fft_length: Any = None,
    axes: Any = None,
    norm: str | None = None,
    name: str | None = None,
) -> Output:
    """Return the inverse of `fftnd`.

    Args:
      input_tensor: complex, rank n.
      fft_length, axes, norm: as in `fftnd`.
    Returns: dtype of `input_tensor`, `fft_length` along the axes.
    Raises: InvalidArgumentError: the rank or the axes are not statically known.

    Examples:
      >>> wf.Session().run(wf.signal.ifftnd([[4 + 0j, 6.0], [-2.0, -2.0]], axes=[0]))
      array([[1.+0.j, 2.+0.j],
             [3.+0.j, 4.+0.j]], dtype=complex64)
    """
    return _transform_axes("IFFTND", input_tensor, fft_length, axes, norm, name or "ifftnd")


def rfftnd(
    input_tensor: Any,
    fft_length: Any = None,
    axes: Any = None,
    norm: str | None = None,
    name: str | None = None,
) -> Output:
    """Return the Fourier transform of real numbers over selected axes.

    Args:
      input_tensor: float32 or float64, rank n.
      fft_length, axes, norm: as in `fftnd`.
    Returns: complex64 or complex128, `fft_length` along the axes, half of it along the last one.
    Raises: InvalidArgumentError: the rank or the axes are not statically known.

    Examples:
      >>> wf.Session().run(wf.signal.rfftnd([[1.0, 2.0], [3.0, 4.0]]))
      array([[10.+0.j, -2.+0.j],
             [-4.+0.j,  0.+0.j]], dtype=complex64)
    """
    return _transform_axes("RFFTND", input_tensor, fft_length, axes, norm, name or "rfftnd")


def irfftnd(
    input_tensor: Any,
    fft_length: Any = None,
    axes: Any = None,
    norm: str | None = None,
    name: str | None = None,
) -> Output:
    """Return the inverse of `rfftnd`.

    Args:
      input_tensor: complex, rank n.
      fft_length, axes, norm: as in `fftnd`; the last length is 2 * (N - 1) by default.
    Returns: float32 or float64, `fft_length` along the axes.
    Raises: InvalidArgumentError: the rank or the axes are not statically known.

    Examples:
      >>> wf.Session().run(wf.signal.irfftnd([[10 + 0j, -2.0], [-4.0, 0.0]]))
      array([[1., 2.],
             [3., 4.]], dtype=float32)
    """
    return _transform_axes("IRFFTND", input_tensor, fft_length, axes, norm, name or "irfftnd")


def _transform_axes(
    op: str, value: Any, fft_length: Any, axes: Any, norm: Any, name: str
) -> Output:
    if norm not in (None, "backward", "forward", "ortho"):
        raise errors.InvalidArgumentError(
            f"norm must be 'backward', 'forward' or 'ortho', got {norm!r}"
        )
    with name_scope(name) as scope:
        x = _convert_input(value, op in ("FFTND", "IFFTND", "IRFFTND"))
        static_axes = _static_axes(x, axes)
        inverse = op in _REAL_INVERSES
        if fft_length is None:
            fft_length = _full_lengths(x, static_axes, inverse)
        lengths = convert_to_tensor(fft_length, dtypes.int32)
        x = _pad_to_lengths(x, lengths, static_axes, inverse)
        divided = op[0] == "I"
        if norm in (None, "backward"):
            return out(op, [x, lengths, static_axes], _result_type(x, op), scope)
        result = out(op, [x, lengths, static_axes], _result_type(x, op))
        power = (1 if divided else -1) * (0.5 if norm == "ortho" else 1)
        count = cast(out("Prod", [lengths, [0]]), result.dtype.real_dtype)
        factor = cast(out("Pow", [count, power]), result.dtype)
        return out("Mul", [result, factor], name=scope)


def _static_axes(x: Output, axes: Any) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Return the static axes as nonnegative integers."""
    static_axes = (
        constant_value(convert_to_tensor(axes, dtypes.int32)) if axes is not None else None
    )
    if x.dims is None or (axes is not None and static_axes is None):
        raise errors.InvalidArgumentError(
            "transforms over given axes require an input of known rank and constant axes, got "
            f"{x!r} and {axes!r}"
        )
    interval = range(len(x.dims)) if static_axes is None else static_axes.reshape(-1).tolist()
    return np.array(shape_rules.normal_axes(interval, len(x.dims)), np.int32)


# ------------------------------------------------------------------------------- shifts


def fftshift(x: Any, axes: Any = None, name: str | None = None) -> Output:
    """Swap the halves of axes, so that frequency 0 is in the middle.

    Args:
      x: any type, rank n.
      axes: an integer or several; all axes by default.
    Returns: shape and dtype of `x`.

    Examples:
      >>> wf.Session().run(wf.signal.fftshift([0, 1, 2, -2, -1]))
      array([-2, -1,  0,  1,  2], dtype=int32)
    """
    return _shift_axes(x, axes, name or "fftshift", lambda size: out("FloorDiv", [size, 2]))


def ifftshift(x: Any, axes: Any = None, name: str | None = None) -> Output:
    """Return the inverse of `fftshift`, which differs from it for odd sizes.

    Args:
      x: any type, rank n.
      axes: an integer or several; all axes by default.
    Returns: shape and dtype of `x`.

    Examples:
      >>> wf.Session().run(wf.signal.ifftshift([-2, -1, 0, 1, 2]))
      array([ 0,  1,  2, -2, -1], dtype=int32)
    """
    half_back = lambda size: out("Neg", [out("FloorDiv", [size, 2])])  # noqa: E731
    return _shift_axes(x, axes, name or "ifftshift", half_back)


def _shift_axes(x: Any, axes: Any, name: str, shift: Callable[[Any], Output]) -> Output:
    with name_scope(name) as scope:
        value = convert_to_tensor(x)
        rank = out("Rank", [value]) if value.dims is None else len(value.dims)
        positions = (
            out("Range", [0, rank, 1]) if axes is None else convert_to_tensor(axes, dtypes.int32)
        )
        if axes is not None:
            positions = out("FloorMod", [positions, rank])
        sizes = out("GatherV2", [out("Shape", [value]), positions, 0])
        return roll(value, shift(sizes), positions, scope)

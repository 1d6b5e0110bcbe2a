"""Casts, and the parts of complex numbers."""

from __future__ import annotations

__all__ = [
    "angle",
    "bitcast",
    "cast",
    "complex",
    "conj",
    "imag",
    "real",
    "saturate_cast",
    "to_bfloat16",
    "to_complex64",
    "to_complex128",
    "to_double",
    "to_float",
    "to_int32",
    "to_int64",
]

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft_graph.ir import scalar
from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.indexed_slices import IndexedSlices, SparseTensor
from weft_graph.ir.node import Node, Output
from weft_graph.ir.op_def import Array, NodeSpec, Values, register_op
from weft_graph.ir.traits import Traits, elementwise
from weft_graph.ir.value_rules import arrays, has_unknown, value_rule
from weft_graph.ops import shape_rules
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType
from weft_tensor.shape import Dims, format_dims

_CASTABLE = "{inexact, integral, bool, small, qint8, quint8, qint16, quint16, qint32}"
_REAL_PART = "{float32, float64} = float32"
_COMPLEX = "{complex64, complex128} = complex64"


def _bitcast_shape(node: NodeSpec) -> Sequence[Dims]:
    dims = node.inputs[0].dims
    source, target = node.attrs["T"].size, node.attrs["type"].size
    if dims is None or source == target:
        return (dims,)
    if source > target:
        return ((*dims, source // target),)
    if not dims or dims[-1] not in (None, target // source):
        raise errors.InvalidArgumentError(
            f"a bitcast from {node.attrs['T'].name} to {node.attrs['type'].name} requires a last "
            f"axis of size {target // source}, got shape {format_dims(dims)}"
        )
    return (dims[:-1],)


@value_rule(partial=True)
def _cast_value(node: Node, index: int, values: Values) -> Array | None:
    value = arrays(values)[0]
    target = node.outputs[0].dtype
    if has_unknown(node.inputs[0], value):
        return value if target.is_integer else None
    with np.errstate(all="ignore"):
        return value.astype(target.numpy)


def _declare() -> None:
    register_op(
        "Cast",
        ("x: SrcT",),
        ("y: DstT",),
        {"SrcT": _CASTABLE, "DstT": _CASTABLE, "Truncate": "bool = false"},
        shape_rules.same_shape,
        value=_cast_value,
        traits=elementwise(scalar.identity, casts=True, cheap=True),
        doc="x cast to another element type; conversion from floats to integers truncates.",
    )
    register_op(
        "Bitcast",
        ("input: T",),
        ("output: type",),
        {
            "T": "{inexact, integral, small, qint8, quint8, qint16, quint16, qint32}",
            "type": "{inexact, integral, small, qint8, quint8, qint16, quint16, qint32}",
        },
        _bitcast_shape,
        traits=Traits(view=0, by_element=True, differentiable=False),
        doc="The bytes of the input as another element type.",
    )
    register_op(
        "Complex",
        ("real: T", "imag: T"),
        ("out: Tout",),
        {"T": _REAL_PART, "Tout": _COMPLEX},
        shape_rules.broadcast,
        traits=elementwise(scalar.complex_of),
        doc="real + 1j * imag.",
    )
    for op, function, doc in (
        ("Real", scalar.real, "The real part."),
        ("Imag", scalar.imag, "The imaginary part."),
        ("Angle", scalar.angle, "The argument, in (-pi, pi]."),
    ):
        register_op(
            op,
            ("input: T",),
            ("output: Tout",),
            {"T": _COMPLEX, "Tout": _REAL_PART},
            shape_rules.same_shape,
            traits=elementwise(function),
            doc=doc,
        )
    register_op(
        "ComplexAbs",
        ("x: T",),
        ("y: Tout",),
        {"T": _COMPLEX, "Tout": _REAL_PART},
        shape_rules.same_shape,
        traits=elementwise(scalar.absolute),
        doc="The magnitude of a complex number.",
    )
    register_op(
        "Conj",
        ("input: T",),
        ("output: T",),
        {"T": "{complex64, complex128, variant} = complex64"},
        shape_rules.same_shape,
        traits=elementwise(scalar.conj, involution=True),
        doc="The complex conjugate.",
    )


_declare()


def cast(x: Any, dtype: Any, name: str | None = None) -> Any:
    """Cast x to the element type `dtype`.

    Args:
      x: numeric or bool, any shape; or indexed slices, or a sparse tensor, whose values are cast.
      dtype: numeric or bool. Casts to integers drop the fraction, casts from complex the imaginary
        part.
    Returns: x itself if it has the type already.
    Raises: InvalidTypeError: one of the types is neither numeric nor bool.

    Examples:
      >>> wf.Session().run(wf.cast([1.5, -1.5], wf.int32))
      array([ 1, -1], dtype=int32)
    """
    target = dtypes.as_dtype(dtype).base_dtype
    if isinstance(x, Output) and x.dtype is target:
        return x
    if isinstance(x, SparseTensor):
        return SparseTensor(x.indices, cast(x.values, target, name), x.dense_shape)
    if isinstance(x, IndexedSlices):
        return IndexedSlices(cast(x.values, target, name), x.indices, x.dense_shape)
    value = convert_to_tensor(x)
    if value.dtype.base_dtype is target:
        return value
    return out("Cast", [value], {"DstT": target}, name)


def _cast_to(dtype: DType, default: str, public: str) -> Any:
    def convert(x: Any, name: str = default) -> Any:
        return cast(x, dtype, name)

    convert.__name__ = convert.__qualname__ = f"to_{dtype.name}"
    convert.__doc__ = f"""`cast` to {dtype.name}; deprecated in favor of it.

    Args:
      x: as for `cast`.
    Returns: as `cast`.

    Examples:
      >>> wf.to_{public}([1.0, 2.0]).dtype == wf.{dtype.name}
      True
    """
    return convert


to_float = _cast_to(dtypes.float32, "ToFloat", "float")
"""Cast to float32: `to_float(x, name)`; deprecated in favor of `cast`."""
to_double = _cast_to(dtypes.float64, "ToDouble", "double")
"""Cast to float64: `to_double(x, name)`; deprecated in favor of `cast`."""
to_int32 = _cast_to(dtypes.int32, "ToInt32", "int32")
"""Cast to int32: `to_int32(x, name)`; deprecated in favor of `cast`."""
to_int64 = _cast_to(dtypes.int64, "ToInt64", "int64")
"""Cast to int64: `to_int64(x, name)`; deprecated in favor of `cast`."""
to_bfloat16 = _cast_to(dtypes.bfloat16, "ToBFloat16", "bfloat16")
"""Cast to bfloat16: `to_bfloat16(x, name)`; deprecated in favor of `cast`."""
to_complex64 = _cast_to(dtypes.complex64, "ToComplex64", "complex64")
"""Cast to complex64: `to_complex64(x, name)`; deprecated in favor of `cast`."""
to_complex128 = _cast_to(dtypes.complex128, "ToComplex128", "complex128")
"""Cast to complex128: `to_complex128(x, name)`; deprecated in favor of `cast`."""


def saturate_cast(value: Any, dtype: Any, name: str | None = None) -> Output:
    """Cast, clipping values to the range of `dtype`.

    Args:
      value: real, any shape.
      dtype: real.

    Examples:
      >>> wf.Session().run(wf.saturate_cast([300, -5], wf.uint8))
      array([255,   0], dtype=uint8)
    """
    source = convert_to_tensor(value)
    target = dtypes.as_dtype(dtype).base_dtype
    base_dtype = source.dtype.base_dtype
    low, high = _range_within(target, base_dtype)
    if _to_number(base_dtype.min) < low:
        source = out("Maximum", [source, np.array(low, base_dtype.numpy)])
    if _to_number(base_dtype.max) > high:
        source = out("Minimum", [source, np.array(high, base_dtype.numpy)])
    result: Output = cast(source, target, name or "saturate_cast")
    return result


def _range_within(target: DType, dtype: DType) -> tuple[Any, Any]:
    """Return the limits of `target`, rounded inward to values that `dtype` represents."""
    low, high = _to_number(target.min), _to_number(target.max)
    if not (dtype.is_floating and target.is_integer):
        return low, high
    with np.errstate(over="ignore"):
        top = np.array(high).astype(dtype.numpy)
    if _to_number(top) > high:
        bits = {2: np.uint16, 4: np.uint32, 8: np.uint64}[dtype.size]
        top = (top.view(bits) - np.array(1, bits)).view(dtype.numpy)
    if dtype is dtypes.float16 and not np.isfinite(top):
        return max(low, _to_number(dtype.min)), _to_number(dtype.max)
    return low, _to_number(top)


def _to_number(value: Any) -> Any:
    return value if isinstance(value, int) else float(value)


def bitcast(input: Any, type: Any, name: str | None = None) -> Output:
    """Return the bytes of a tensor as another element type.

    Args:
      input: numeric, shape (...), or (..., R) if `type` is R times as wide.
      type: numeric.
    Returns: shape (...), or (..., R) if `type` is R times narrower.
    Raises: InvalidArgumentError: the last axis does not match the ratio of the sizes.

    Examples:
      >>> wf.Session().run(wf.bitcast(1.0, wf.int32))
      np.int32(1065353216)
    """
    return out("Bitcast", [input], {"type": dtypes.as_dtype(type)}, name)


def complex(real: Any, imag: Any, name: str | None = None) -> Output:
    """Return real + 1j * imag.

    Args:
      real: float32 or float64.
      imag: same dtype; the shapes broadcast.
    Returns: complex64 or complex128.

    Examples:
      >>> wf.Session().run(wf.complex([1.0], [2.0]))
      array([1.+2.j], dtype=complex64)
    """
    a = convert_to_tensor(real)
    b = convert_to_tensor(imag, a.dtype.base_dtype)
    wide = a.dtype.base_dtype is dtypes.float64
    return out("Complex", [a, b], {"Tout": dtypes.complex128 if wide else dtypes.complex64}, name)


def _part(op: str, value: Output, name: str | None) -> Output:
    return out(op, [value], {"Tout": value.dtype.real_dtype}, name)


def real(input: Any, name: str | None = None) -> Output:
    """Return the real part; numeric, any shape; real inputs unchanged.

    Args:
      input: numeric, any shape.
    Returns: shape of `input`; the real dtype of its parts.

    Examples:
      >>> wf.Session().run(wf.real([1 + 2j]))
      array([1.])
    """
    value = convert_to_tensor(input)
    return _part("Real", value, name) if value.dtype.is_complex else value


def imag(input: Any, name: str | None = None) -> Output:
    """Return the imaginary part; numeric, any shape; zeros for a real input.

    Args:
      input: numeric, any shape.
    Returns: shape of `input`; the real dtype of its parts.

    Examples:
      >>> wf.Session().run(wf.imag([1 + 2j]))
      array([2.])
    """
    value = convert_to_tensor(input)
    if value.dtype.is_complex:
        return _part("Imag", value, name)
    return out("ZerosLike", [value], name=name)


def angle(input: Any, name: str | None = None) -> Output:
    """Return the argument of a complex number in (-pi, pi]; for a real one 0, or pi if negative.

    Args:
      input: numeric, any shape.
    Returns: shape of `input`; the real dtype of its parts.

    Examples:
      >>> np.round(wf.Session().run(wf.angle([1j, -1.0 + 0j])), 3)
      array([1.571, 3.142])
    """
    value = convert_to_tensor(input)
    if value.dtype.is_complex:
        return _part("Angle", value, name)
    if not value.dtype.is_floating:
        raise errors.InvalidTypeError(f"angle requires a floating or complex tensor, got {value!r}")
    zeros = out("ZerosLike", [value])
    pi = np.array(np.pi, value.dtype.base_dtype.numpy)
    return out("SelectV2", [out("Less", [value, zeros]), pi, zeros], name=name)


def conj(x: Any, name: str | None = None) -> Output:
    """Return the complex conjugate; numeric, any shape; real inputs unchanged.

    Args:
      x: numeric, any shape.
    Returns: shape and dtype of `x`.

    Examples:
      >>> wf.Session().run(wf.conj([1 + 2j]))
      array([1.-2.j])
    """
    value = convert_to_tensor(x)
    if value.dtype.is_complex or value.dtype is dtypes.variant:
        return out("Conj", [value], name=name)
    if value.dtype.is_floating or value.dtype.is_integer:
        return value
    raise errors.InvalidTypeError(f"conj requires a numeric tensor, got {value!r}")

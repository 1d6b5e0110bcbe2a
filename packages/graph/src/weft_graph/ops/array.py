"""Constants, placeholders, and tensors filled with one value.

The other array functions are in `shapes`, `broadcasting`, `identity`, `join`, `padding`,
`permutation`, `space_to_batch`, `gather`, `search`, `slicing`.
"""

from __future__ import annotations

__all__ = [
    "fill",
    "ones",
    "ones_like",
    "placeholder",
    "placeholder_with_default",
    "zeros",
    "zeros_like",
]
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft_graph.ir.builder import (
    constant_of,
    convert_to_tensor,
    out,
)
from weft_graph.ir.composite import AppliesOps
from weft_graph.ir.constant_value import constant_value_as_dims, partial_value
from weft_graph.ir.costs import free
from weft_graph.ir.node import Output
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.traits import Role, Traits
from weft_graph.ops import array_values, cost_rules
from weft_graph.ops.shape_rules import same_shape, with_rank
from weft_graph.ops.shapes import shape_internal, shape_vector
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType
from weft_tensor.memory import new_array
from weft_tensor.nesting import format_value
from weft_tensor.shape import (
    Dimension,
    Dims,
    as_dims,
    compatible_dims,
    format_dims,
    is_fully_defined,
    num_elements,
)

SMALL_CONSTANT = 1000
"""Largest number of elements for which zeros of a static shape are a constant instead of a Fill."""

# ------------------------------------------------------------------------------ shape rules


def _const_shape(node: NodeSpec) -> Sequence[Dims]:
    value: np.ndarray[Any, Any] = node.attrs["value"]
    dtype: DType = node.attrs["dtype"]
    if value.dtype != dtype.numpy:
        raise errors.InvalidTypeError(f"value must be of {dtype.name}, got {value.dtype}")
    if value.dtype.hasobject:
        _check_objects(value, dtype)
    return (value.shape,)


def _check_objects(value: np.ndarray[Any, Any], dtype: DType) -> None:
    """Check the Python objects of a string constant or a variant constant.

    Raises: InvalidTypeError: an element has the wrong kind.
    """
    is_text = dtype is dtypes.string
    for item in value.flat:
        if isinstance(item, bytes) is not is_text:
            raise errors.InvalidTypeError(
                f"value must be of {dtype.name}, got an element {format_value(item)} of type "
                f"{type(item).__name__}"
            )


def _placeholder_shape(node: NodeSpec) -> Sequence[Dims]:
    return (node.attrs["shape"],)


def _with_default_shape(node: NodeSpec) -> Sequence[Dims]:
    declared, default = node.attrs["shape"], node.inputs[0].dims
    if not compatible_dims(declared, default):
        raise errors.InvalidArgumentError(
            f"the default must fit shape {format_dims(declared)}, got shape {format_dims(default)}"
        )
    return (declared,)


def _fill_shape(node: NodeSpec) -> Sequence[Dims]:
    dims, value = node.inputs
    if dims.dims is not None and len(dims.dims) != 1:
        raise errors.InvalidArgumentError(
            f"the shape must be a vector, got shape {format_dims(dims.dims)}"
        )
    static = partial_value(dims)
    if static is not None and any(size is not None and size < 0 for size in static.tolist()):
        raise errors.InvalidArgumentError(f"sizes must be at least 0, got {static.tolist()}")
    with_rank(value.dims, 0, "the value")
    return (constant_value_as_dims(dims),)


# ------------------------------------------------------------------------------ declarations

register_op(
    "Const",
    (),
    ("output: dtype",),
    {"value": "tensor", "dtype": "type"},
    _const_shape,
    value=array_values.const_value,
    traits=Traits(role=Role.CONSTANT, differentiable=False, cost=free),
    doc="The attribute `value`.",
)
for _name, _shape in (("Placeholder", "shape = unknown"), ("PlaceholderV2", "shape")):
    register_op(
        _name,
        (),
        ("output: dtype",),
        {"dtype": "type", "shape": _shape},
        _placeholder_shape,
        traits=Traits(role=Role.PLACEHOLDER, differentiable=False, cost=free),
        doc="A value that must be fed; running it without a feed is an error.",
    )
register_op(
    "PlaceholderWithDefault",
    ("input: dtype",),
    ("output: dtype",),
    {"dtype": "type", "shape": "shape"},
    _with_default_shape,
    traits=Traits(view=0, role=Role.PLACEHOLDER),
    doc="The fed value, or the input if it is not fed.",
)
register_op(
    "Fill",
    ("dims: index_type", "value: T"),
    ("output: T",),
    {"T": "type", "index_type": "{int32, int64} = int32"},
    _fill_shape,
    value=array_values.fill_value,
    traits=Traits(cheap=True),
)
register_op(
    "ZerosLike",
    ("x: T",),
    ("y: T",),
    {"T": "type"},
    same_shape,
    value=array_values.full_value(np.zeros),
    traits=Traits(
        by_element=True,
        cheap=True,
        differentiable=False,
        cost=cost_rules.written,
        shape_only=frozenset({0}),
    ),
)
register_op(
    "OnesLike",
    ("x: T",),
    ("y: T",),
    {"T": "{numbertype, bool}"},
    same_shape,
    value=array_values.full_value(np.ones),
    traits=Traits(
        by_element=True,
        cheap=True,
        differentiable=False,
        cost=cost_rules.written,
        shape_only=frozenset({0}),
    ),
)

# ----------------------------------------------------------------------- placeholders


def placeholder(dtype: Any = dtypes.float32, shape: Any = None, name: str | None = None) -> Output:
    """Return a tensor that must be fed.

    Args:
      dtype: element type; float32 by default, so that the white paper's Figure 1 works.
      shape: static shape; None if it is unknown.
    Returns: shape `shape`, dtype `dtype`.
    Raises (at run time): InvalidArgumentError: it is not fed, or the feed has a wrong shape or
      type.

    Examples:
      >>> x = wf.placeholder(wf.float32, [None, 2])
      >>> x.shape
      TensorShape([Dimension(None), Dimension(2)])
      >>> wf.Session().run(wf.reduce_sum(x, axis=1), {x: [[1.0, 2.0], [3.0, 4.0]]})
      array([3., 7.], dtype=float32)
    """
    return out("Placeholder", (), {"dtype": dtype, "shape": shape}, name)


def placeholder_with_default(input: Any, shape: Any, name: str | None = None) -> Output:
    """Return a tensor that may be fed; its default value is `input`.

    Args:
      input: the default value.
      shape: static shape; None if it is unknown.
    Raises: InvalidArgumentError: the shape of the default is incompatible with `shape`.

    Examples:
      >>> rate = wf.placeholder_with_default(0.5, [])
      >>> session = wf.Session()
      >>> session.run(rate), session.run(rate, {rate: 0.1})
      (np.float32(0.5), np.float32(0.1))
    """
    return out("PlaceholderWithDefault", [input], {"shape": shape}, name)


# ------------------------------------------------------------------- tensors of one value


def fill(dims: Any, value: Any, name: str | None = None) -> Output:
    """Return a tensor whose elements are all `value`.

    Args:
      dims: the shape, sizes at least 0.
      value: rank 0, any type.

    Examples:
      >>> wf.Session().run(wf.fill([2, 2], 7))
      array([[7, 7],
             [7, 7]], dtype=int32)
    """
    return out("Fill", [shape_vector(dims), value], name=name)


def zeros(shape: Any, dtype: Any = dtypes.float32, name: str | None = None) -> Output:
    """Return a tensor of zeros (False, or empty strings).

    Args:
      shape: list of ints, TensorShape, or a vector of integers.
      dtype: element type; float32 by default.
    Returns: shape `shape`.
    Raises: InvalidArgumentError: a static shape is not fully known.

    Examples:
      >>> wf.Session().run(wf.zeros([2, 3]))
      array([[0., 0., 0.],
             [0., 0., 0.]], dtype=float32)
    """
    return _fill(shape, dtypes.as_dtype(dtype).base_dtype, 0, name or "zeros")


def ones(shape: Any, dtype: Any = dtypes.float32, name: str | None = None) -> Output:
    """Return a tensor of ones (True).

    Args:
      shape: int32 or int64, shape (rank,); a list of ints.
      dtype: numeric or bool.
    Returns: shape `shape`, dtype `dtype`.
    Examples:
      >>> wf.Session().run(wf.ones([2, 3], wf.int32))
      array([[1, 1, 1],
             [1, 1, 1]], dtype=int32)
    """
    return _fill(shape, dtypes.as_dtype(dtype).base_dtype, 1, name or "ones")


def _fill(shape: Any, dtype: DType, number: int, name: str) -> Output:
    value = _value_of(dtype, number)
    vector: Output | None = None
    if isinstance(shape, Output):
        vector = shape
    elif isinstance(shape, tuple | list) and not all(
        isinstance(item, int | np.integer | Dimension) for item in shape
    ):
        vector = shape_vector(shape)
    if vector is None:
        dims = as_dims(shape.tolist() if isinstance(shape, np.ndarray) else shape)
        count = num_elements(dims)
        if count is None:
            raise errors.InvalidArgumentError(f"the shape must be fully defined, got {shape}")
        if count < SMALL_CONSTANT:
            return constant_of(_full(dims, dtype, number), dtype, name)
        vector = shape_vector(dims)
    if vector.dims is not None and len(vector.dims) == 0:
        vector = out("Reshape", [vector, constant_of(np.array([-1], np.int32))])
    return out("Fill", [vector, constant_of(np.array(value, dtype.numpy), dtype)], name=name)


def _full(dims: Dims, dtype: DType, number: int) -> np.ndarray[Any, Any]:
    sizes: Any = dims
    result = new_array(sizes, dtype.numpy)
    result[...] = _value_of(dtype, number)
    return result


def _value_of(dtype: DType, number: int) -> Any:
    if dtype is dtypes.string:
        if number:
            raise errors.InvalidTypeError("ones requires a numeric or bool type, got string")
        return b""
    return number


def zeros_like(
    tensor: Any, dtype: Any = None, name: str | None = None, optimize: bool = True
) -> Output:
    """Return zeros of the shape of `tensor`.

    Args:
      dtype: element type; defaults to that of `tensor`.
      optimize: return a constant if the shape is static and small.
    Returns: shape and dtype of `tensor`.

    Examples:
      >>> wf.Session().run(wf.zeros_like([[1.0, 2.0]]))
      array([[0., 0.]], dtype=float32)
    """
    return _fill_like(tensor, dtype, name or "zeros_like", optimize, 0)


def ones_like(
    tensor: Any, dtype: Any = None, name: str | None = None, optimize: bool = True
) -> Output:
    """Return ones of the shape of `tensor`; see `zeros_like`.

    Args:
      tensor: floating or complex, any shape.
    Returns: shape and dtype of `tensor`.

    Examples:
      >>> wf.Session().run(wf.ones_like([[1.0, 2.0]]))
      array([[1., 1.]], dtype=float32)
    """
    return _fill_like(tensor, dtype, name or "ones_like", optimize, 1)


def _fill_like(tensor: Any, dtype: Any, name: str, optimize: bool, number: int) -> Output:
    value = convert_to_tensor(tensor)
    if isinstance(value, AppliesOps):
        filled: Output = value.map_elements(
            lambda flat: _fill_like(flat, dtype, name, False, number)
        )
        return filled
    base_dtype = value.dtype.base_dtype
    element_type = base_dtype if dtype is None else dtypes.as_dtype(dtype).base_dtype
    count = num_elements(value.dims) if is_fully_defined(value.dims) else None
    if (
        optimize
        and count is not None
        and count < SMALL_CONSTANT
        and element_type.is_numpy_compatible
    ):
        return constant_of(_full(value.dims, element_type, number), element_type, name)
    if element_type is base_dtype:
        return out("OnesLike" if number else "ZerosLike", [value], name=name)
    return _fill(shape_internal(value, optimize=optimize), element_type, number, name)

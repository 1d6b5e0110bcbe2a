"""Slots: variables that accompany another variable, named and placed after it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from weft_graph.ir import builder
from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ir.node import Output
from weft_graph.variables.base import SaveSliceInfo, Variable
from weft_graph.variables.resource import is_resource_variable
from weft_graph.variables.scope import (
    AUTO_REUSE,
    get_variable,
    get_variable_scope,
    variable_scope,
)
from weft_tensor import dtypes
from weft_tensor.shape import TensorShape, is_fully_defined

Initializer = Callable[..., Output]

_SMALL = 1000
"""Initial values with fewer elements are constants; larger ones are filled at run time."""


def create_slot(primary: Any, val: Any, name: str, colocate_with_primary: bool = True) -> Any:
    """Create a slot for `primary` with the initial value `val`.

    Args:
      primary: a variable or an output.
      val: value that converts to a tensor of known shape.
      name: name of the slot; the variable is called "<primary>/<name>".
      colocate_with_primary: request the device of `primary`.
    Returns: a variable, not trainable, of the same kind as `primary`.
    """
    initial = builder.convert_to_tensor(val)
    with _enter_slot_scope(primary, name, colocate_with_primary):
        has_static_shape = is_fully_defined(initial.dims)
        return _variable(primary, initial, None, None, validate_shape=has_static_shape)


def create_slot_with_initializer(
    primary: Any,
    initializer: Initializer,
    shape: Any,
    dtype: Any,
    name: str,
    colocate_with_primary: bool = True,
) -> Any:
    """Create a slot for `primary` with the initial value `initializer(shape, dtype=dtype)`.

    Args:
      shape: fully known.
      dtype: element type of the slot.
      primary, name, colocate_with_primary: as `create_slot`.
    Returns: a variable, not trainable, of the same kind as `primary`.
    """
    with _enter_slot_scope(primary, name, colocate_with_primary):
        return _variable(primary, initializer, TensorShape(shape), dtype, validate_shape=True)


def create_zeros_slot(
    primary: Any, name: str, dtype: Any = None, colocate_with_primary: bool = True
) -> Any:
    """Create a slot for `primary` of its shape that starts at zero.

    Args:
      dtype: that of `primary` by default.
      primary, name, colocate_with_primary: as `create_slot`.
    """
    return create_constant_slot(primary, 0.0, name, dtype, colocate_with_primary)


def create_constant_slot(
    primary: Any, value: float, name: str, dtype: Any = None, colocate_with_primary: bool = True
) -> Any:
    """Return a slot for `primary` of its shape that starts with `value` everywhere.

    Args: as `create_zeros_slot`.
    """
    element = dtypes.as_dtype(dtype or primary.dtype).base_dtype
    shape = primary.get_shape()
    if shape.is_fully_defined():
        initializer = constant_initializer(value)
        return create_slot_with_initializer(
            primary, initializer, shape, element, name, colocate_with_primary
        )
    initialized_value = getattr(primary, "initialized_value", None)
    current = (
        builder.convert_to_tensor(primary) if initialized_value is None else initialized_value()
    )
    fill = builder.convert_to_tensor(value, element)
    val = builder.out("Fill", [builder.out("Shape", [current]), fill])
    return create_slot(primary, val, name, colocate_with_primary)


def constant_initializer(value: float) -> Initializer:
    """Return an initializer that fills the shape with `value`."""

    def initialize(shape: Any, dtype: Any = dtypes.float32, partition_info: Any = None) -> Output:
        sizes = [int(size) for size in TensorShape(shape)]
        if math.prod(sizes) < _SMALL:
            return builder.constant_of(np.full(sizes, value, dtypes.as_dtype(dtype).numpy))
        fill = builder.convert_to_tensor(value, dtype)
        return builder.out("Fill", [builder.convert_to_tensor(sizes, dtypes.int32), fill])

    return initialize


@contextmanager
def _enter_slot_scope(primary: Any, name: str, colocate: bool) -> Iterator[None]:
    """Enter the variable scope and the colocation of a slot."""
    placement = primary.op.graph.colocate_with(primary.op) if colocate else nullcontext()
    with variable_scope(None, f"{primary.op.name}/{name}"), placement:
        yield


def _variable(primary: Any, initial: Any, shape: Any, dtype: Any, *, validate_shape: bool) -> Any:
    """Create the slot variable under the name of the current scope."""
    scope = get_variable_scope()
    # Settings for the program's variables do not apply to slots.
    scope.set_partitioner(None)
    scope.set_regularizer(None)
    if scope.reuse is True:
        scope.reuse = AUTO_REUSE
    slot = get_variable(
        "",
        shape=shape,
        dtype=dtype,
        initializer=initial,
        trainable=False,
        collections=[GraphKeys.GLOBAL_VARIABLES],
        use_resource=is_resource_variable(primary),
        validate_shape=validate_shape,
    )
    if isinstance(primary, Variable):
        slot._set_save_slice_info(_slot_slice(primary, slot))
    return slot


def _slot_slice(primary: Variable, slot: Variable) -> SaveSliceInfo | None:
    """Return the save slice of `slot` if its variable is part of a partitioned one, else None.

    The slot of `w/part_0` is saved as a part of `w/<slot>`, so that a checkpoint can be restored
    into another number of parts. A slot of lower rank than its variable is partitioned along the
    leading axes.
    """
    part = primary._get_save_slice_info()
    rank = slot.shape.ndims
    if part is None or rank == 0:
        return None
    scope, _, name = slot.op.name.rpartition(f"{primary.op.name}/")
    return SaveSliceInfo(
        f"{scope}{part.full_name}/{name}",
        part.full_shape[:rank],
        part.var_offset[:rank],
        part.var_shape[:rank],
    )

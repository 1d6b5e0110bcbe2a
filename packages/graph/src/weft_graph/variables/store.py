"""The variables of get_variable by full name: creation, checks and reuse."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.node import Output
from weft_graph.variables import initializers
from weft_graph.variables.base import (
    SaveSliceInfo,
    Variable,
    VariableAggregation,
    VariableSynchronization,
)
from weft_graph.variables.partitioned import PartitionedVariable, PartitionInfo
from weft_graph.variables.partitioning import (
    Partitioner,
    check_partitions,
    element_type_of,
    full_shape_of,
    part_arguments,
    part_slices,
)
from weft_tensor import dtypes, errors
from weft_tensor.arguments import check_optional_function
from weft_tensor.shape import TensorShape, as_dims, compatible_dims, format_dims, is_fully_defined


class VariableStore:
    """The variables of get_variable in one graph.

    Attributes:
      variables: variables by full name; parts of partitioned variables have separate names.
      partitioned: partitioned variables by full name.
    """

    def __init__(self) -> None:
        self.variables: dict[str, Any] = {}
        self.partitioned: dict[str, Any] = {}

    def get_variable(
        self,
        name: str,
        shape: Any,
        dtype: Any,
        initializer: Any = None,
        regularizer: Any = None,
        reuse: Any = None,
        custom_getter: Callable[..., Any] | None = None,
        **settings: Any,
    ) -> Any:
        """Return the variable with a full name, through `custom_getter` if there is one."""
        check_optional_function(regularizer, "regularizer")
        if check_optional_function(custom_getter, "custom_getter") is None:
            return self._true_getter(
                name, shape, dtype, initializer, regularizer, reuse=reuse, **settings
            )
        getter: Any = custom_getter
        settings["synchronization"] = (
            settings.get("synchronization") or VariableSynchronization.AUTO
        )
        settings["aggregation"] = settings.get("aggregation") or VariableAggregation.NONE
        return getter(
            self._true_getter,
            name=name,
            shape=shape,
            dtype=dtype,
            initializer=initializer,
            regularizer=regularizer,
            reuse=reuse,
            **settings,
        )

    def _true_getter(
        self,
        name: str,
        shape: Any = None,
        dtype: Any = dtypes.float32,
        initializer: Any = None,
        regularizer: Any = None,
        reuse: Any = None,
        partitioner: Any = None,
        **settings: Any,
    ) -> Any:
        if check_optional_function(partitioner, "partitioner") is not None and shape != ():
            return self.get_partitioned(
                name, shape, dtype, initializer, regularizer, reuse, partitioner, **settings
            )
        if name in self.partitioned or f"{name}/part_0" in self.variables:
            existing = self.partitioned.get(name)
            if reuse is not True or existing is None:
                raise errors.InvalidArgumentError(
                    f"variable {name} is partitioned; call get_variable with a partitioner, or "
                    "with reuse=True"
                )
            _check_reuse(name, existing, shape, dtype, reuse)
            return existing
        return self.single(name, shape, dtype, initializer, regularizer, reuse, **settings)

    def single(
        self,
        name: str,
        shape: Any = None,
        dtype: Any = dtypes.float32,
        initializer: Any = None,
        regularizer: Any = None,
        reuse: Any = None,
        partition_info: Any = None,
        **settings: Any,
    ) -> Any:
        """Create or reuse the unpartitioned variable with a full name.

        Raises:
          InvalidArgumentError: it exists but may not be reused, or vice versa; or `shape` differs.
          InvalidTypeError: `dtype` differs.
        """
        existing = self.variables.get(name)
        if existing is not None:
            _check_reuse(name, existing, shape, dtype, reuse)
            return existing
        if reuse is True:
            raise errors.InvalidArgumentError(_missing_variable_message(name, self.variables))
        value, dtype = _initial_value(name, shape, dtype, initializer, partition_info)
        variable = Variable(initial_value=value, name=name, dtype=dtype, **_drop_none(settings))
        self.variables[name] = variable
        if regularizer is not None:
            _regularize(name, variable, regularizer)
        return variable

    def get_partitioned(
        self,
        name: str,
        shape: Any,
        dtype: Any,
        initializer: Any,
        regularizer: Any,
        reuse: Any,
        partitioner: Partitioner,
        **settings: Any,
    ) -> Any:
        """Create or reuse the partitioned variable with a full name.

        Raises: InvalidArgumentError: the shape is unknown, or as `VariableStore.single`.
        """
        name = name.removesuffix("/")  # of a variable that has the name of its scope
        full_shape = full_shape_of(name, shape, initializer)
        if not full_shape:
            return self.single(name, shape, dtype, initializer, regularizer, reuse, **settings)
        if name in self.variables:
            raise errors.InvalidArgumentError(
                f"variable {name} is not partitioned; call get_variable without a partitioner"
            )
        base = element_type_of(dtype, initializer)
        partitions = list(partitioner(shape=TensorShape(full_shape), dtype=base))
        check_partitions(name, partitions, full_shape)
        existing = self.partitioned.get(name)
        if existing is not None:
            _check_same_partitions(name, existing, reuse, partitions, full_shape)
            return existing
        parts = []
        for i, (offset, sizes) in enumerate(part_slices(full_shape, partitions)):
            part = self.single(
                f"{name}/part_{i}",
                *part_arguments(sizes, offset, base, initializer),
                regularizer,
                reuse,
                partition_info=PartitionInfo(full_shape, offset),
                **settings,
            )
            part._set_save_slice_info(SaveSliceInfo(name, full_shape, offset, sizes))
            parts.append(part)
        result = PartitionedVariable(name, full_shape, base, parts, partitions)
        self.partitioned[name] = result
        return result


def _drop_none(settings: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if value is not None}


def _missing_variable_message(name: str, variables: dict[str, Any]) -> str:
    import difflib

    close_matches = difflib.get_close_matches(name, variables, n=3)
    hint = f" Near misses: {', '.join(close_matches)}." if close_matches else ""
    return (
        f"Variable {name} does not exist, or was not created with get_variable(), so it cannot be "
        f"reused. Did you mean to set reuse=AUTO_REUSE in variable_scope?{hint}"
    )


def _check_reuse(name: str, existing: Any, shape: Any, dtype: Any, reuse: Any) -> None:
    parts = getattr(existing, "_get_variable_list", None)
    location = (existing if parts is None else parts()[0]).op.line
    if not reuse:
        raise errors.InvalidArgumentError(
            f"Variable {name} already exists, disallowed. Did you mean to set reuse=True or "
            f"reuse=AUTO_REUSE in variable_scope? Originally defined at {location}"
        )
    dims = as_dims(shape)
    if not compatible_dims(
        dims, existing.shape.as_list() if existing.shape.ndims is not None else None
    ):
        raise errors.InvalidArgumentError(
            f"Trying to share variable {name}, but specified shape {format_dims(dims)} and found "
            f"shape {existing.shape}, originally defined at {location}"
        )
    if dtype is not None and dtypes.as_dtype(dtype).base_dtype is not existing.dtype.base_dtype:
        raise errors.InvalidTypeError(
            f"Trying to share variable {name}, but specified dtype "
            f"{dtypes.as_dtype(dtype).base_dtype.name} and found dtype "
            f"{existing.dtype.base_dtype.name}, originally defined at {location}"
        )


def _check_same_partitions(
    name: str,
    existing: PartitionedVariable,
    reuse: Any,
    partitions: list[int],
    full_shape: list[int],
) -> None:
    if not reuse:
        raise errors.InvalidArgumentError(
            f"Partitioned variable {name} already exists, disallowed. Did you mean to set "
            "reuse=True or reuse=AUTO_REUSE in variable_scope? Originally defined at "
            f"{existing._get_variable_list()[0].op.line}"
        )
    if existing._get_partitions() != partitions or existing.shape.as_list() != full_shape:
        raise errors.InvalidArgumentError(
            f"Trying to share partitioned variable {name}, but specified shape {full_shape} in "
            f"{partitions} parts and found shape {existing.shape.as_list()} in "
            f"{existing._get_partitions()} parts"
        )


def _initial_value(
    name: str, shape: Any, dtype: Any, initializer: Any, partition_info: Any
) -> tuple[Any, Any]:
    """Return the initial value and the dtype to pass to Variable."""
    dims = as_dims(shape)
    if initializer is None:
        initializer = _default_initializer(name, dtype)
    elif not callable(initializer):
        if shape is not None:
            raise errors.InvalidArgumentError(
                f"Variable {name}: if initializer is a constant, do not specify shape; got "
                f"shape {format_dims(dims)} and initializer {initializer!r}"
            )
        return initializer, dtype
    if isinstance(initializer, type):
        initializer = initializer()
    if dims is not None and is_fully_defined(dims):
        base = dtypes.as_dtype(dtype).base_dtype
        sizes = [size for size in dims if size is not None]
        return lambda: _make_initial_value(name, initializer, sizes, base, partition_info), base
    if shape is None and _has_no_parameters(initializer):
        return initializer, None
    raise errors.InvalidArgumentError(
        f"Variable {name}: shape must be fully defined for an initializer that takes a shape, got "
        f"{format_dims(dims) if shape is not None else None}; or pass as initializer a function "
        "without arguments, and no shape"
    )


def _make_initial_value(
    name: str, initializer: Callable[..., Any], sizes: list[int], dtype: Any, partition_info: Any
) -> Any:
    try:
        value = initializers.call_initializer(initializer, sizes, dtype, partition_info)
    except TypeError as cause:
        if _has_no_parameters(initializer):
            raise errors.InvalidTypeError(
                f"Variable {name}: an initializer is called with the shape and dtype=, got "
                f"{initializer!r}, which takes no arguments; give no shape with such a function"
            ) from cause
        raise
    declared_dims = tuple(sizes)
    value_dims = value.dims if isinstance(value, Output) else np.shape(value)
    if not compatible_dims(value_dims, declared_dims):
        raise errors.InvalidArgumentError(
            f"Variable {name}: the initializer must give a value of shape "
            f"{format_dims(declared_dims)}, "
            f"got {format_dims(value_dims)}"
        )
    return value


def _default_initializer(name: str, dtype: Any) -> Any:
    base = dtypes.as_dtype(dtype).base_dtype
    if base.is_floating:
        return initializers.glorot_uniform_initializer()
    if base.is_integer or base.is_bool or base is dtypes.string:
        return initializers.zeros_initializer()
    raise errors.InvalidArgumentError(f"Variable {name} of {base.name} needs an initializer")


def _has_no_parameters(function: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    return all(
        p.default is not p.empty or p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters
    )


def _regularize(name: str, variable: Any, regularizer: Callable[[Any], Any]) -> None:
    graph = get_default_graph()
    with (
        graph.colocate_with(variable.op),
        graph.control_dependencies(None),
        graph.name_scope(name + "/Regularizer/"),
    ):
        loss = regularizer(variable)
    if loss is not None:
        graph.add_to_collection(GraphKeys.REGULARIZATION_LOSSES, loss)

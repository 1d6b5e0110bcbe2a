"""`tf.contrib.framework`: variables by name and scope, and assignment of their values."""

from __future__ import annotations

__all__ = [
    "add_arg_scope",
    "add_model_variable",
    "arg_scope",
    "arg_scoped_arguments",
    "assert_global_step",
    "assert_or_get_global_step",
    "assign_from_checkpoint",
    "assign_from_checkpoint_fn",
    "assign_from_values",
    "assign_from_values_fn",
    "create_global_step",
    "current_arg_scope",
    "filter_variables",
    "get_global_step",
    "get_local_variables",
    "get_model_variables",
    "get_or_create_global_step",
    "get_trainable_variables",
    "get_unique_variable",
    "get_variable_full_name",
    "get_variables",
    "get_variables_by_name",
    "get_variables_by_suffix",
    "get_variables_to_restore",
    "global_variable",
    "has_arg_scope",
    "init_from_checkpoint",
    "is_tensor",
    "list_variables",
    "load_checkpoint",
    "load_variable",
    "local_variable",
    "model_variable",
    "nest",
    "variable",
]

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from weft_autodiff.optimizers.training_util import (
    assert_global_step,
    create_global_step,
    get_global_step,
    get_or_create_global_step,
)
from weft_contrib.arg_scope import (
    add_arg_scope,
    arg_scope,
    arg_scoped_arguments,
    current_arg_scope,
    has_arg_scope,
)
from weft_graph.ir import nest
from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ir.default_graph import add_to_collection, device as device_scope, get_collection
from weft_graph.ir.node import Output
from weft_graph.ops import array, control, state
from weft_graph.variables.base import Variable
from weft_graph.variables.partitioned import PartitionedVariable, checkpoint_name, group_parts
from weft_graph.variables.scope import get_variable
from weft_io.checkpoint.state import list_variables, load_checkpoint, load_variable
from weft_io.saving.saver import Saver
from weft_io.saving.warm_start import init_from_checkpoint
from weft_tensor import errors

_log = logging.getLogger("weft")


def is_tensor(x: Any) -> bool:
    """Return True if `x` is a tensor or a variable.

    Args:
      x: anything.
    """
    return isinstance(x, Output | Variable | PartitionedVariable)


def assert_or_get_global_step(graph: Any = None, global_step_tensor: Any = None) -> Any:
    """Return the global step after checking it; look it up if it is None.

    Args:
      graph: the graph to search; the default graph by default.
      global_step_tensor: the step, if it is known.
    """
    if global_step_tensor is None:
        return get_global_step(graph)
    assert_global_step(global_step_tensor)
    return global_step_tensor


# ------------------------------------------------------------------------------ making them


@add_arg_scope
def variable(
    name: str,
    shape: Any = None,
    dtype: Any = None,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool = True,
    collections: Sequence[str] | None = None,
    caching_device: Any = None,
    device: Any = None,
    partitioner: Any = None,
    custom_getter: Any = None,
    use_resource: bool | None = None,
    synchronization: Any = None,
    aggregation: Any = None,
) -> Any:
    """Return the variable of that name in the current scope, and add it to GLOBAL_VARIABLES.

    Args:
      device: device of the variable; a string or a function of a node.
      name, shape, dtype, initializer, regularizer, trainable, collections, caching_device,
        partitioner, custom_getter, use_resource, synchronization, aggregation: as for
        `get_variable`.
    """
    collections = list(dict.fromkeys(collections or [GraphKeys.GLOBAL_VARIABLES]))
    getter = get_variable
    if custom_getter is not None:

        def getter(*args: Any, **kwargs: Any) -> Any:
            return custom_getter(get_variable, *args, **kwargs)

    with device_scope(device or ""):
        return getter(
            name,
            shape=shape,
            dtype=dtype,
            initializer=initializer,
            regularizer=regularizer,
            trainable=trainable,
            collections=collections,
            caching_device=caching_device,
            partitioner=partitioner,
            use_resource=use_resource,
            synchronization=synchronization,
            aggregation=aggregation,
        )


@add_arg_scope
def model_variable(
    name: str,
    shape: Any = None,
    dtype: Any = None,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool = True,
    collections: Sequence[str] | None = None,
    caching_device: Any = None,
    device: Any = None,
    partitioner: Any = None,
    custom_getter: Any = None,
    use_resource: bool | None = None,
    synchronization: Any = None,
    aggregation: Any = None,
) -> Any:
    """Return a `variable` that is also in MODEL_VARIABLES.

    Args:
      name, shape, dtype, initializer, regularizer, trainable, collections, caching_device, device,
        partitioner, custom_getter, use_resource, synchronization, aggregation: as for `variable`.
    """
    all_collections = [*(collections or ()), GraphKeys.GLOBAL_VARIABLES, GraphKeys.MODEL_VARIABLES]
    return variable(
        name,
        shape,
        dtype,
        initializer,
        regularizer,
        trainable,
        all_collections,
        caching_device,
        device,
        partitioner,
        custom_getter,
        use_resource,
        synchronization,
        aggregation,
    )


def local_variable(
    initial_value: Any, validate_shape: bool = True, name: Any = None, use_resource: Any = None
) -> Any:
    """Create a variable in LOCAL_VARIABLES that is not trained.

    Args:
      initial_value, validate_shape, name, use_resource: as for `Variable`.
    """
    return _make_listed_variable(
        GraphKeys.LOCAL_VARIABLES, initial_value, validate_shape, name, use_resource
    )


def global_variable(
    initial_value: Any, validate_shape: bool = True, name: Any = None, use_resource: Any = None
) -> Any:
    """Create a variable in GLOBAL_VARIABLES that is not trained.

    Args:
      initial_value, validate_shape, name, use_resource: as for `Variable`.
    """
    return _make_listed_variable(
        GraphKeys.GLOBAL_VARIABLES, initial_value, validate_shape, name, use_resource
    )


def _make_listed_variable(
    key: str, value: Any, validate_shape: bool, name: Any, use_resource: Any
) -> Any:
    return Variable(
        value,
        trainable=False,
        collections=[key],
        validate_shape=validate_shape,
        name=name,
        use_resource=use_resource,
    )


# ----------------------------------------------------------------------------- finding them


def add_model_variable(var: Any) -> None:
    """Add a variable to MODEL_VARIABLES.

    Args:
      var: the variable.
    """
    if var not in get_collection(GraphKeys.MODEL_VARIABLES):
        add_to_collection(GraphKeys.MODEL_VARIABLES, var)


def get_variables(
    scope: Any = None, suffix: str | None = None, collection: str = GraphKeys.GLOBAL_VARIABLES
) -> list[Any]:
    """Return the variables of a collection.

    Args:
      scope: pattern for the beginning of names, or a variable scope.
      suffix: end of the names, without ":0".
      collection: key of the collection.
    """
    if scope is not None and not isinstance(scope, str):
        scope = scope.name
    if suffix is None:
        return get_collection(collection, scope)
    suffix = suffix if ":" in suffix else suffix + ":0"
    pattern = (scope or "") + ".*" + suffix
    return get_collection(collection, pattern)


def get_model_variables(scope: Any = None, suffix: str | None = None) -> list[Any]:
    """Return the variables in MODEL_VARIABLES.

    Args:
      scope, suffix: as for `get_variables`.
    """
    return get_variables(scope, suffix, GraphKeys.MODEL_VARIABLES)


def get_local_variables(scope: Any = None, suffix: str | None = None) -> list[Any]:
    """Return the variables in LOCAL_VARIABLES.

    Args:
      scope, suffix: as for `get_variables`.
    """
    return get_variables(scope, suffix, GraphKeys.LOCAL_VARIABLES)


def get_trainable_variables(scope: Any = None, suffix: str | None = None) -> list[Any]:
    """Return the variables in TRAINABLE_VARIABLES.

    Args:
      scope, suffix: as for `get_variables`.
    """
    return get_variables(scope, suffix, GraphKeys.TRAINABLE_VARIABLES)


def get_variables_by_suffix(suffix: str, scope: Any = None) -> list[Any]:
    """Return the variables whose names end in a suffix.

    Args:
      suffix, scope: as for `get_variables`.
    """
    return get_variables(scope=scope, suffix=suffix)


def get_variables_by_name(given_name: str, scope: Any = None) -> list[Any]:
    """Return the variables with a name, in any scope.

    Args:
      given_name: the last part of their names.
      scope: as for `get_variables`.
    """
    return get_variables(scope=scope, suffix="/" + given_name + ":|^" + given_name + ":")


def get_unique_variable(var_op_name: str) -> Any:
    """Return the variable with a full name.

    Args:
      var_op_name: its name without ":0".
    Raises: InvalidArgumentError: there is not exactly one such variable.
    """
    matches = [v for v in get_variables(scope=var_op_name) if v.op.name == var_op_name]
    if len(matches) != 1:
        raise errors.InvalidArgumentError(
            f"expected exactly one variable named {var_op_name!r}, got {[v.name for v in matches]}"
        )
    return matches[0]


def get_variable_full_name(var: Any) -> str:
    """Return a variable's name in checkpoints; for a part, the name of the partitioned variable.

    Args:
      var: the variable.
    """
    return checkpoint_name(var)


def filter_variables(
    var_list: Any,
    include_patterns: Any = None,
    exclude_patterns: Any = None,
    reg_search: bool = True,
) -> list[Any]:
    """Return the variables whose names match an include pattern and no exclude pattern.

    Args:
      var_list: variables.
      include_patterns: patterns; one of them must match; all names match by default.
      exclude_patterns: patterns that must not match.
      reg_search: search patterns anywhere in the name instead of only at its beginning.
    """
    find = re.search if reg_search else re.match

    def fits(patterns: Any, variable: Any) -> bool:
        return any(find(pattern, variable.op.name) for pattern in patterns)

    selected = list(var_list)
    if include_patterns:
        selected = [v for v in selected if fits(include_patterns, v)]
    return [v for v in selected if not fits(exclude_patterns or (), v)]


def get_variables_to_restore(
    include: Sequence[str] | None = None, exclude: Sequence[str] | None = None
) -> list[Any]:
    """Return the variables in some scopes, without the variables in other scopes.

    Args:
      include: scopes to include; all by default.
      exclude: scopes to exclude.
    Raises:
      InvalidTypeError: an argument is not a list.
    """
    for scopes, argument in ((include, "include"), (exclude, "exclude")):
        if scopes is not None and not isinstance(scopes, list | tuple):
            raise errors.InvalidTypeError(f"{argument} must be a list of scopes, got {scopes!r}")
    selected = (
        get_variables() if include is None else [v for s in include for v in get_variables(s)]
    )
    left_out = {v for scope in exclude or () for v in get_variables(scope)}
    return [v for v in selected if v not in left_out]


# ---------------------------------------------------------------------- values from elsewhere


def assign_from_values(var_names_to_values: Mapping[str, Any]) -> tuple[Any, dict[Any, Any]]:
    """Create a node that assigns values to variables; return it with the values to feed.

    Args:
      var_names_to_values: arrays by full names of variables.
    Raises: InvalidArgumentError: a variable does not exist, or its shape differs.
    """
    assignments, feeds = [], {}
    for name, value in var_names_to_values.items():
        target = get_unique_variable(name)
        value = np.asarray(value)
        if not target.shape.is_compatible_with(value.shape):
            raise errors.InvalidArgumentError(
                f"{name} has the shape {target.shape}, and the value {list(value.shape)}"
            )
        placeholder = array.placeholder(target.dtype.base_dtype, value.shape, "placeholder/" + name)
        assignments.append(state.assign(target, placeholder))
        feeds[placeholder] = value
    return control.group(*assignments), feeds


def assign_from_values_fn(var_names_to_values: Mapping[str, Any]) -> Callable[[Any], None]:
    """Return a function of a session that assigns values to variables.

    Args:
      var_names_to_values: as for `assign_from_values`.
    """
    assign, feeds = assign_from_values(var_names_to_values)

    def callback(session: Any) -> None:
        session.run(assign, feeds)

    return callback


def assign_from_checkpoint(
    model_path: str, var_list: Any, ignore_missing_vars: bool = False
) -> tuple[Any, dict[Any, Any]]:
    """Create a node that restores variables from a checkpoint; return it with the values to feed.

    Args:
      model_path: path of the checkpoint.
      var_list: variables, or variables by their names in the checkpoint.
      ignore_missing_vars: skip variables that the checkpoint lacks.
    Raises: NotFoundError: the checkpoint lacks a variable; InvalidArgumentError: a shape differs.
    """
    reader = load_checkpoint(model_path)
    values = {}
    for name, target in _variables_by_name(var_list).items():
        if not reader.has_tensor(name):
            if ignore_missing_vars:
                _log.warning("Variable %s missing in checkpoint %s", name, model_path)
                continue
            raise errors.NotFoundError(f"the checkpoint {model_path} has no variable {name!r}")
        for variable in target if isinstance(target, list) else [target]:
            values[variable.op.name] = _part(reader.get_tensor(name), variable)
    return assign_from_values(values)


def _part(value: Any, target: Any) -> Any:
    info = getattr(target, "_save_slice_info", None)
    if not info:
        return value
    slices = zip(info.var_offset, info.var_shape, strict=True)
    return value[tuple([slice(start, start + size) for start, size in slices])]


def _variables_by_name(var_list: Any) -> dict[str, Any]:
    return dict(var_list) if isinstance(var_list, Mapping) else group_parts(var_list)


def assign_from_checkpoint_fn(
    model_path: str,
    var_list: Any,
    ignore_missing_vars: bool = False,
    reshape_variables: bool = False,
) -> Callable[[Any], None] | None:
    """Return a function of a session that restores variables from a checkpoint.

    Args:
      model_path: path of the checkpoint.
      var_list: variables, or variables by their names in the checkpoint; not empty.
      ignore_missing_vars: skip variables that the checkpoint lacks.
      reshape_variables: accept values of other shapes with the same number of elements.
    Returns: the function; None if the checkpoint has none of the variables.
    Raises: InvalidArgumentError: there are no variables.
    """
    if not var_list:
        raise errors.InvalidArgumentError("var_list cannot be empty")
    if ignore_missing_vars:
        reader = load_checkpoint(model_path)
        by_name = _variables_by_name(var_list)
        var_list = {name: v for name, v in by_name.items() if reader.has_tensor(name)}
        for name in by_name.keys() - var_list.keys():
            _log.warning("Variable %s missing in checkpoint %s", name, model_path)
        if not var_list:
            _log.warning("No Variables to restore")
            return None
    saver = Saver(var_list, reshape=reshape_variables)

    def callback(session: Any) -> None:
        saver.restore(session, model_path)

    return callback

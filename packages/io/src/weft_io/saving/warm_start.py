"""Initialization of variables from a checkpoint."""

from __future__ import annotations

__all__ = ["init_from_checkpoint"]

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from weft_graph.ir.node import Output
from weft_graph.variables.base import Variable
from weft_graph.variables.partitioned import PartitionedVariable, group_parts
from weft_graph.variables.scope import variable_scope_store
from weft_io.checkpoint.reader import CheckpointReader
from weft_io.checkpoint.state import latest_checkpoint, load_checkpoint
from weft_io.files import paths
from weft_io.ops.checkpoint import restore_v2
from weft_io.saving.saveables import saveables_for
from weft_tensor import errors
from weft_tensor.shape import as_dims, compatible_dims, format_dims

_log = logging.getLogger("weft")


def init_from_checkpoint(ckpt_dir_or_file: Any, assignment_map: Any) -> None:
    """Initialize variables of the default graph from a checkpoint.

    Their initializers read the checkpoint when they run, so call this before
    `global_variables_initializer`. The checkpoint may be weft's or TensorFlow's.

    Args:
      ckpt_dir_or_file: a checkpoint, or a directory with a latest one.
      assignment_map: a dict, or a list of pairs, of two kinds: from the name of a tensor in the
        checkpoint to a variable, the list of its parts, or its name; or from "scope/" in the
        checkpoint to "other_scope/" in the graph, for all variables that `get_variable` created
        there. "/" is the root of either.
    Raises:
      NotFoundError: the checkpoint does not exist, or lacks a tensor.
      InvalidArgumentError: a shape or a type differs, or the map is malformed.

    Examples:
      >>> step = wf.Variable(7, name="step")
      >>> with wf.Session() as session:
      ...     session.run(step.initializer)
      ...     prefix = wf.train.Saver().save(session, "./first")
      >>> with wf.Graph().as_default(), wf.Session() as session:
      ...     step = wf.get_variable("step", [], wf.int32)
      ...     wf.train.init_from_checkpoint(prefix, {"step": step})
      ...     session.run(step.initializer)
      ...     session.run(step)
      np.int32(7)
    """
    reader = load_checkpoint(ckpt_dir_or_file)
    path = _prefix(ckpt_dir_or_file)
    pairs = assignment_map.items() if isinstance(assignment_map, Mapping) else assignment_map
    expected: list[tuple[str, Any]] = []
    for name, target in sorted(pairs, key=lambda pair: str(pair[0])):
        result = _variable(target)
        expected += _scope(name, target) if result is None else [(name, result)]
    for name, variable in expected:
        _check(reader, name, variable)
    for name, variable in expected:
        for part in _parts(variable):
            read_initially(path, name, part)
        _log.info("Initialize variable %s from checkpoint %s with %s", variable, path, name)


def _prefix(path: Any) -> str:
    name = paths.as_path(path)
    return latest_checkpoint(name) or name


def _variable(target: Any) -> Any:
    """Return the variable, or list of parts, that a value of the map denotes; None for a scope."""
    if isinstance(target, Variable | PartitionedVariable):
        return target
    if isinstance(target, list | tuple) and all(isinstance(part, Variable) for part in target):
        return list(target)
    if not isinstance(target, str):
        raise errors.InvalidTypeError(
            f"a variable, a list of its parts or a name is required, got {target!r}"
        )
    return _store().get(target)


def _store() -> dict[str, Any]:
    """Return the variables of get_variable by name, with parts joined to partitioned variables."""
    store = variable_scope_store()
    return group_parts(store.variables.values()) | store.partitioned


def _scope(name: str, target: str) -> list[tuple[str, Any]]:
    """Return the variables of a name scope, with their names in the checkpoint."""
    if not name.endswith("/") or not (target.endswith("/") or not target):
        raise errors.InvalidArgumentError(
            f"there is no variable {target!r}; to load a scope, map 'scope/' to 'other_scope/', "
            f"got {name!r}: {target!r}"
        )
    root = "" if target == "/" else target
    prefix = "" if name == "/" else name
    return [
        (prefix + key.removeprefix(root), variable)
        for key, variable in sorted(_store().items())
        if key.startswith(root)
    ]


class TensorNotFoundError(errors.NotFoundError, ValueError):
    """Error for a tensor that a checkpoint lacks; also a ValueError, as in TensorFlow."""


def _parts(variable: Any) -> Sequence[Variable]:
    if isinstance(variable, Variable):
        return [variable]
    return list(variable)


def _check(reader: CheckpointReader, name: str, variable: Any) -> None:
    path = reader.prefix
    if not reader.has_tensor(name):
        import difflib

        similar = difflib.get_close_matches(name, reader.get_variable_to_shape_map(), n=3)
        hint = f" (near names: {', '.join(similar)})" if similar else ""
        raise TensorNotFoundError(f"{path} has no tensor {name!r}{hint}")
    actual, dtype = reader.shape(name), reader.dtype(name)
    for part in _parts(variable):
        info = part._get_save_slice_info()
        dims = as_dims(part.shape) if info is None else tuple(info.full_shape)
        if not compatible_dims(dims, actual):
            raise errors.InvalidArgumentError(
                f"tensor {name!r} of {path} must have shape {format_dims(dims)} for "
                f"{part.name}, got {format_dims(actual)}"
            )
        if part.dtype.base_dtype is not dtype:
            raise errors.InvalidArgumentError(
                f"tensor {name!r} of {path} must be {part.dtype.base_dtype.name} for "
                f"{part.name}, got {dtype.name}"
            )


def read_initially(path: str, name: str, variable: Variable) -> None:
    """Make the variable's initializer read the checkpoint."""
    graph = variable.graph
    info = variable._get_save_slice_info()
    (saveable,) = saveables_for([variable])
    with graph.as_default(), graph.control_dependencies(None), graph.device(variable.device):
        (value,) = restore_v2(
            path,
            [name],
            ["" if info is None else info.spec],
            [variable.dtype],
            name="checkpoint_initializer",
        )
        value.set_shape(variable.shape)
        restore = saveable.restore([value], None)
    variable.replace_initializer(restore.node if isinstance(restore, Output) else restore, value)

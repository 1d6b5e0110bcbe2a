"""Switches of later TensorFlow versions: weft behaves like TensorFlow 1."""

from __future__ import annotations

__all__ = [
    "control_flow_v2_enabled",
    "disable_control_flow_v2",
    "disable_eager_execution",
    "disable_tensor_equality",
    "disable_v2_behavior",
    "disable_v2_tensorshape",
    "enable_control_flow_v2",
    "enable_eager_execution",
    "enable_tensor_equality",
    "enable_v2_behavior",
    "enable_v2_tensorshape",
    "executing_eagerly",
    "executing_eagerly_outside_functions",
]

from collections.abc import Callable
from typing import Any

from weft_tensor import errors


def executing_eagerly() -> bool:
    """Return False: weft always builds graphs.

    Examples:
      >>> wf.executing_eagerly()
      False
    """
    return False


def executing_eagerly_outside_functions() -> bool:
    """Return False: weft always builds graphs.

    Examples:
      >>> wf.executing_eagerly_outside_functions()
      False
    """
    return False


class _Functions:
    run_eagerly = False


_functions = _Functions()


def functions_run_eagerly() -> bool:
    """Return True if bodies of `wf.function` are built into the calling graph.

    Examples:
      >>> wf.config.functions_run_eagerly()
      False
    """
    return _functions.run_eagerly


def run_functions_eagerly(run_eagerly: bool) -> None:
    """Build function bodies at every call, in the caller's graph, for debugging.

    Results are the same; nodes have the names that they would have outside of a function.

    Args:
      run_eagerly: True to build bodies at every call from now on.

    Examples:
      >>> @wf.function
      ... def double(x):
      ...     return x + x
      >>> wf.config.run_functions_eagerly(True)
      >>> double(wf.constant(2.0)).op.type
      'AddV2'
      >>> wf.config.run_functions_eagerly(False)
    """
    _functions.run_eagerly = bool(run_eagerly)


def control_flow_v2_enabled() -> bool:
    """Return False: loops and conditionals are nodes of the graph that they are built in.

    Examples:
      >>> wf.control_flow_v2_enabled()
      False
    """
    return False


def _already_so() -> None:
    """Do nothing: weft always behaves this way.

    Examples:
      >>> wf.disable_v2_behavior()
    """


disable_eager_execution: Callable[[], None] = _already_so
disable_v2_behavior: Callable[[], None] = _already_so
disable_v2_tensorshape: Callable[[], None] = _already_so
disable_tensor_equality: Callable[[], None] = _already_so
disable_control_flow_v2: Callable[[], None] = _already_so


def enable_control_flow_v2() -> None:
    """Do nothing: results do not depend on the representation of conditionals and loops.

    Examples:
      >>> wf.enable_control_flow_v2()
      >>> wf.control_flow_v2_enabled()
      False
    """


def enable_eager_execution(*_: Any, **__: Any) -> None:
    """Raise UnimplementedError.

    Args:
      *_, **__: accepted, so that the message does not depend on the arguments.
    Raises: UnimplementedError: weft builds graphs only.

    Examples:
      >>> wf.enable_eager_execution()
      Traceback (most recent call last):
        ...
      weft_tensor.errors.UnimplementedError: ...
    """
    raise errors.UnimplementedError("weft supports only graphs and sessions, not eager execution")


def _refuse_tf2() -> None:
    """Raise UnimplementedError.

    Raises: UnimplementedError: weft behaves as TensorFlow 1 does.

    Examples:
      >>> wf.enable_v2_behavior()
      Traceback (most recent call last):
        ...
      weft_tensor.errors.UnimplementedError: ...
    """
    raise errors.UnimplementedError(
        "weft behaves like TensorFlow 1; TensorFlow 2 behavior is not supported"
    )


enable_v2_behavior: Callable[[], None] = _refuse_tf2
enable_v2_tensorshape: Callable[[], None] = _refuse_tf2
enable_tensor_equality: Callable[[], None] = _refuse_tf2

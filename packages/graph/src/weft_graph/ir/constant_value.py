"""Static values: values that are fully or partly known while the graph is built.

Shape rules use them for shapes, axes and paddings. No kernel runs: ops that are used to compute
shapes have value rules (`value_rules.py`). The walk is iterative, final values are cached per
output, and a query visits at most a few thousand nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from threading import local
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from weft_graph.ir.node import Output, refinements
from weft_graph.ir.op_def import Array, ValueRule, Values
from weft_graph.ir.traits import Role
from weft_graph.ir.value_rules import MAX_ELEMENTS, has_unknown
from weft_tensor.shape import Dims, num_elements

MAX_NODES = 4096
"""Largest number of nodes that a query visits."""

_cache: WeakKeyDictionary[Output, Array | None] = WeakKeyDictionary()


class _StaticValues:
    """Static values found by one query, or by all while `cache_values` is open.

    Attributes:
      values: the known values by output.
      final: outputs whose values cannot change.
    """

    def __init__(self) -> None:
        self.values: dict[Output, Array | None] = {}
        self.final: set[Output] = set()
        self.refinements = refinements.count


class _ThreadCache(local):
    """Cache of static values in this thread; None if no `cache_values` is open."""

    known: _StaticValues | None = None

    def current(self) -> _StaticValues:
        """Return the cache of a query, which the query extends."""
        if self.known is None:
            return _StaticValues()
        if self.known.refinements != refinements.count:
            self.known = _StaticValues()
        return self.known


_remembered = _ThreadCache()


@contextmanager
def cache_values() -> Iterator[None]:
    """Cache static values inside the block, in which the graph only grows.

    Without the cache, each query with an unknown size walks through the whole computation of a
    shape. Refining a shape clears the cache.
    """
    saved_values, _remembered.known = _remembered.known, _StaticValues()
    try:
        yield
    finally:
        _remembered.known = saved_values


# -------------------------------------------------------------------------------- questions


def forget_values(outputs: Iterable[Output]) -> None:
    """Forget values cached as unknown, after an edit that made more values known."""
    for output in outputs:
        _cache.pop(output, None)


def get_static_value(tensor: Any, partial: bool = False) -> Any:
    """Return the static value of a tensor, or None if it is unknown.

    A tensor whose value was used this way cannot be fed afterwards.

    Args:
      tensor: a tensor; other values except variables count as known.
      partial: return a partly known integer value as an object array with None for unknown
        elements.
    Returns: an array that must not be written to; None; or the argument, if it is not a tensor.

    Examples:
      >>> wf.get_static_value(wf.constant([1, 2]) + 1)
      array([2, 3], dtype=int32)
    """
    if isinstance(tensor, Output):
        return constant_value(tensor, partial)
    return None if hasattr(tensor, "graph") else tensor


def constant_value(tensor: Output, partial: bool = False) -> Array | None:
    """Return the static value of an output like `get_static_value`."""
    value = partial_value(tensor)
    if value is None or partial or not has_unknown(tensor, value):
        return value
    return None


def constant_value_as_dims(tensor: Output) -> Dims:
    """Return the sizes in a shape vector, with None for sizes that are unknown or -1.

    Returns: None if the length is unknown or the tensor is not a vector.
    """
    value = partial_value(tensor)
    if value is None:
        dims = tensor.dims
        if dims is None or len(dims) != 1 or dims[0] is None:
            return None
        return (None,) * dims[0]
    if value.ndim != 1:
        return None
    return tuple([None if n is None or n < 0 else int(n) for n in value.tolist()])


def partial_value(tensor: Output) -> Array | None:
    """Return the static value of an output, as an object array with None for unknown integers."""
    if tensor.node.role is Role.CONSTANT:
        value: Array = tensor.node.attrs["value"]
        _guard(tensor)
        return value
    value_or_none = _walk(tensor)
    if value_or_none is not None and _has_known_element(value_or_none):
        _guard(tensor)
    return value_or_none


def _has_known_element(value: Array) -> bool:
    """Return True if some element is known, so that a feed could contradict it."""
    if value.dtype != object:
        return value.size > 0
    return any(item is not None for item in value.reshape(-1).tolist())


def _guard(tensor: Output) -> None:
    """Forbid feeding an output whose static value the graph depends on."""
    tensor.graph.prevent_feeding(tensor)


# ------------------------------------------------------------------------------------ walk


def _walk(root: Output) -> Array | None:
    remembered = _remembered.current()
    static, final = remembered.values, remembered.final
    stack = [root]
    budget = MAX_NODES
    while stack:
        top = stack[-1]
        if top in static:
            stack.pop()
            continue
        if top in _cache:
            static[top] = _cache[top]
            final.add(top)
            stack.pop()
            continue
        rule = top.node.op_def.value_rule
        required = _required_inputs(top, rule)
        missing = [source for source in required if source not in static]
        if missing and not _is_hopeless(top):
            budget -= 1
            if budget < 0:
                return _unknown(root)
            stack.append(missing[0])
            continue
        stack.pop()
        value = None if rule is None or missing else _evaluate(top, rule, static)
        lasting = all(source in final for source in required) and not missing
        if rule is None or missing:
            lasting = top.dims is not None and None not in top.dims
        elif rule.uses_shape:
            lasting = lasting and value is not None and not has_unknown(top, value)
        static[top] = value = _unknown(top) if value is None else value
        if lasting:
            final.add(top)
            if top.node.role is not Role.CONSTANT:
                _cache[top] = value
            if value is not None and _has_known_element(value):
                _guard(top)
    return static[root]


def _required_inputs(output: Output, rule: ValueRule | None) -> Sequence[Output]:
    if rule is None:
        return ()
    inputs = output.node.inputs
    if rule.needs is None:
        return inputs
    return [inputs[i] for i in rule.needs]


def _is_hopeless(output: Output) -> bool:
    """Return True if the value is too large to be worth computing."""
    count = num_elements(output.dims)
    return count is not None and count > MAX_ELEMENTS


def _evaluate(output: Output, rule: ValueRule, static: dict[Output, Array | None]) -> Array | None:
    node = output.node
    values: Values = [None] * len(node.inputs)
    positions = range(len(node.inputs)) if rule.needs is None else rule.needs
    for i in positions:
        source = node.inputs[i]
        value = static[source]
        if value is None or (not rule.partial and has_unknown(source, value)):
            return None
        values[i] = value
    try:
        result = rule.evaluate(node, output.index, values)
    except (ValueError, TypeError, IndexError, ZeroDivisionError, OverflowError):
        return None  # the kernel reports bad values, with the step's context
    if result is None or np.size(result) > MAX_ELEMENTS:
        return None
    return _normal(output, np.asarray(result))


def _normal(output: Output, value: Array) -> Array:
    element_type = output.dtype.base_dtype.numpy
    if value.dtype != element_type and not has_unknown(output, value):
        value = value.astype(element_type)
    if value.flags.owndata:
        value.flags.writeable = False
    return value


def _unknown(output: Output) -> Array | None:
    """Return an array of None for a small integer tensor of static shape."""
    dims = output.dims
    if dims is None or not output.dtype.base_dtype.is_integer or len(dims) > 1:
        return None
    count = num_elements(dims)
    if count is None or count > MAX_ELEMENTS:
        return None
    return _normal(output, np.full(dims, None, object))

"""Values that are known while the graph is built, in whole or in part.

Shape rules ask here for the value of shapes, axes and paddings.  No kernel runs: a small table of
evaluators covers the ops that programs compute shapes with.  Within the module a value is an
array; an integer whose value is not known is a None in an array of objects, so that
`[tf.shape(x)[0], 5]` is `[None, 5]`.

The walk is iterative, what cannot change any more is cached per output, and one question looks at
no more than a few thousand nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from weft_graph.ir.node import Node, Output
from weft_tensor.shape import Dims, broadcast_dims, num_elements

Array = np.ndarray[Any, Any]
Values = list["Array | None"]
Evaluate = Callable[[Node, int, Values], "Array | None"]

MAX_ELEMENTS = 1024
"""Larger values are not computed; a constant is returned whatever its size."""

MAX_NODES = 4096
"""The number of nodes that one question visits at most."""

_ALL: tuple[int, ...] = (-1,)


class _Evaluator:
    """How one op type is evaluated: from which inputs' values, and by which function."""

    __slots__ = ("evaluate", "needs", "partial", "uses_shape")

    def __init__(
        self, evaluate: Evaluate, needs: tuple[int, ...], partial: bool, uses_shape: bool
    ) -> None:
        self.evaluate = evaluate
        self.needs = needs
        self.partial = partial
        self.uses_shape = uses_shape


_EVALUATORS: dict[str, _Evaluator] = {}


def evaluator(
    *ops: str, needs: tuple[int, ...] = _ALL, partial: bool = False, uses_shape: bool = False
) -> Callable[[Evaluate], Evaluate]:
    """Decorator that registers `fn(node, output index, values) -> array or None`.

    Args:
      ops: op types; they must be stateless.
      needs: positions of the inputs whose values it needs, all by default.
      partial: it takes values with unknown entries; else it is not asked when there are some.
      uses_shape: it looks at the static shapes of inputs, which may be refined later.
    """

    def register(evaluate: Evaluate) -> Evaluate:
        for op in ops:
            _EVALUATORS[op] = _Evaluator(evaluate, needs, partial, uses_shape)
        return evaluate

    return register


_cache: WeakKeyDictionary[Output, Array | None] = WeakKeyDictionary()

# -------------------------------------------------------------------------------- questions


def constant_value(tensor: Output, partial: bool = False) -> Array | None:
    """The value of an output where it is known while the graph is built, else None.

    An output whose value was used this way can no longer be fed.

    Args:
      partial: return a value with unknown integers as an array of objects, with None for them.
    Returns: an array that must not be written to.
    """
    value = partial_value(tensor)
    if value is None or partial or not _has_unknown(tensor, value):
        return value
    return None


def constant_value_as_dims(tensor: Output) -> Dims:
    """The sizes in a shape vector, None where one is not known or -1.

    Returns: None where even the length of the vector is not known.
    """
    value = partial_value(tensor)
    if value is None:
        dims = tensor.dims
        if dims is None or len(dims) != 1 or dims[0] is None:
            return None
        return (None,) * dims[0]
    if value.ndim == 0:
        return None
    return tuple([None if n is None or n < 0 else int(n) for n in value.tolist()])


def constant_value_as_shape(tensor: Output) -> Any:
    """`constant_value_as_dims` as a TensorShape."""
    from weft_tensor.shape import TensorShape

    return TensorShape(constant_value_as_dims(tensor))


def partial_value(tensor: Output) -> Array | None:
    """What is known of a value: an array, of objects with None where an integer is not known."""
    if tensor.node.type == "Const":
        value: Array = tensor.node.attrs["value"]
        _guard(tensor)
        return value
    found = _walk(tensor)
    if found is not None and not _is_all_unknown(found):
        _guard(tensor)
    return found


def _is_all_unknown(value: Array) -> bool:
    return value.dtype == object and all(item is None for item in value.reshape(-1).tolist())


def _guard(tensor: Output) -> None:
    """Refuse feeds of an output whose value the rest of the graph was built upon."""
    tensor.graph.prevent_feeding(tensor)


# ------------------------------------------------------------------------------------ walk


def _walk(root: Output) -> Array | None:
    known: dict[Output, Array | None] = {}
    final: set[Output] = set()
    stack = [root]
    budget = MAX_NODES
    while stack:
        top = stack[-1]
        if top in known:
            stack.pop()
            continue
        if top in _cache:
            known[top] = _cache[top]
            final.add(top)
            stack.pop()
            continue
        entry = _EVALUATORS.get(top.node.type)
        needed = _needed(top, entry)
        missing = [source for source in needed if source not in known]
        if missing and not _is_hopeless(top):
            budget -= 1
            if budget < 0:
                return _unknown(root)
            stack.append(missing[0])
            continue
        stack.pop()
        value = None if entry is None or missing else _evaluate(top, entry, known)
        lasting = all(source in final for source in needed) and not missing
        if entry is None or missing:
            lasting = top.dims is not None and None not in top.dims
        elif entry.uses_shape:
            lasting = lasting and value is not None and not _has_unknown(top, value)
        known[top] = value = _unknown(top) if value is None else value
        if lasting:
            final.add(top)
            if top.node.type != "Const":
                _cache[top] = value
            if value is not None and not _is_all_unknown(value):
                _guard(top)
    return known[root]


def _needed(output: Output, entry: _Evaluator | None) -> Sequence[Output]:
    if entry is None:
        return ()
    inputs = output.node.inputs
    if entry.needs is _ALL:
        return inputs
    return [inputs[i] for i in entry.needs]


def _is_hopeless(output: Output) -> bool:
    """Whether the value is too large to be worth computing."""
    count = num_elements(output.dims)
    return count is not None and count > MAX_ELEMENTS


def _evaluate(output: Output, entry: _Evaluator, known: dict[Output, Array | None]) -> Array | None:
    node = output.node
    values: Values = [None] * len(node.inputs)
    positions = range(len(node.inputs)) if entry.needs is _ALL else entry.needs
    for i in positions:
        source = node.inputs[i]
        value = known[source]
        if value is None or (not entry.partial and _has_unknown(source, value)):
            return None
        values[i] = value
    try:
        result = entry.evaluate(node, output.index, values)
    except (ValueError, TypeError, IndexError, ZeroDivisionError, OverflowError):
        return None  # the kernel reports bad values, with the step's context
    if result is None or np.size(result) > MAX_ELEMENTS:
        return None
    return _normal(output, np.asarray(result))


def _normal(output: Output, value: Array) -> Array:
    wanted = output.dtype.base_dtype.numpy
    if value.dtype != wanted and not _has_unknown(output, value):
        value = value.astype(wanted)
    if value.flags.owndata:
        value.flags.writeable = False
    return value


def _has_unknown(output: Output, value: Array) -> bool:
    if value.dtype != object or _is_object(output):
        return False
    return any(item is None for item in value.reshape(-1).tolist())


def _is_object(output: Output) -> bool:
    """Whether the elements themselves are objects: strings and handles."""
    return output.dtype.numpy.kind == "O"


def _unknown(output: Output) -> Array | None:
    """Nothing known, as a value: Nones for a small integer tensor of static shape."""
    dims = output.dims
    if dims is None or not output.dtype.base_dtype.is_integer or len(dims) > 1:
        return None
    count = num_elements(dims)
    if count is None or count > MAX_ELEMENTS:
        return None
    return np.full(dims, None, object)


# ------------------------------------------------------------------------------ evaluators


@evaluator("Const", needs=())
def _const(node: Node, index: int, values: Values) -> Array | None:
    value: Array = node.attrs["value"]
    return value if value.size <= MAX_ELEMENTS else None


@evaluator("Identity", "IdentityN", "StopGradient", "GuaranteeConst", "Snapshot", partial=True)
def _identity(node: Node, index: int, values: Values) -> Array | None:
    return values[index]


@evaluator("Enter", "Switch", needs=(0,), partial=True)
def _routed(node: Node, index: int, values: Values) -> Array | None:
    return values[0]


@evaluator("Shape", "ShapeN", needs=(), uses_shape=True)
def _shape(node: Node, index: int, values: Values) -> Array | None:
    dims = node.inputs[index].dims
    if dims is None:
        return None
    return np.array(dims, object if None in dims else np.int64)


@evaluator("Size", needs=(), uses_shape=True)
def _size(node: Node, index: int, values: Values) -> Array | None:
    count = num_elements(node.inputs[0].dims)
    return None if count is None else np.array(count)


@evaluator("Rank", needs=(), uses_shape=True)
def _rank(node: Node, index: int, values: Values) -> Array | None:
    dims = node.inputs[0].dims
    return None if dims is None else np.array(len(dims))


@evaluator("Pack", partial=True)
def _pack(node: Node, index: int, values: Values) -> Array | None:
    return np.stack(_arrays(values), axis=node.attrs["axis"])


@evaluator("Unpack", partial=True)
def _unpack(node: Node, index: int, values: Values) -> Array | None:
    return np.moveaxis(_first(values), node.attrs["axis"], 0)[index, ...]


@evaluator("ConcatV2", partial=True)
def _concat(node: Node, index: int, values: Values) -> Array | None:
    *parts, axis = _arrays(values)
    return np.concatenate(parts, axis=int(axis))


@evaluator("Concat", partial=True)
def _concat_first(node: Node, index: int, values: Values) -> Array | None:
    axis, *parts = _arrays(values)
    return np.concatenate(parts, axis=int(axis))


@evaluator("Fill", partial=True)
def _fill(node: Node, index: int, values: Values) -> Array | None:
    dims, value = _arrays(values)
    sizes = [int(n) for n in dims.tolist()]
    if (num_elements(tuple(sizes)) or 0) > MAX_ELEMENTS:
        return None
    return np.full(sizes, value.reshape(-1)[0], value.dtype)


@evaluator("ZerosLike", "OnesLike", needs=(), uses_shape=True)
def _like(node: Node, index: int, values: Values) -> Array | None:
    output = node.outputs[0]
    count = num_elements(output.dims)
    if count is None or count > MAX_ELEMENTS or _is_object(output):
        return None
    make = np.ones if node.type == "OnesLike" else np.zeros
    return make(output.dims, output.dtype.numpy)


@evaluator("Range")
def _range(node: Node, index: int, values: Values) -> Array | None:
    start, limit, delta = [value.item() for value in _arrays(values)]
    if abs(limit - start) > abs(delta) * MAX_ELEMENTS:
        return None
    return np.arange(start, limit, delta)


@evaluator("Cast", partial=True)
def _cast(node: Node, index: int, values: Values) -> Array | None:
    value = _first(values)
    target = node.outputs[0].dtype
    if _has_unknown(node.inputs[0], value):
        return value if target.is_integer else None
    with np.errstate(all="ignore"):
        return value.astype(target.numpy)


@evaluator("Reshape", partial=True)
def _reshape(node: Node, index: int, values: Values) -> Array | None:
    value, shape = _arrays(values)
    return value.reshape([int(n) for n in shape.tolist()])


@evaluator("ExpandDims", partial=True)
def _expand_dims(node: Node, index: int, values: Values) -> Array | None:
    value, axis = _arrays(values)
    return np.expand_dims(value, int(axis.reshape(-1)[0]))


@evaluator("Squeeze", partial=True)
def _squeeze(node: Node, index: int, values: Values) -> Array | None:
    axes = node.attrs["squeeze_dims"]
    return np.squeeze(_first(values), tuple(axes) or None)


@evaluator("StridedSlice", partial=True)
def _strided_slice(node: Node, index: int, values: Values) -> Array | None:
    from weft_graph.ops.slicing import index_of, masks_of

    value, begin, end, strides = _arrays(values)
    if object in (begin.dtype, end.dtype, strides.dtype):
        return None
    key = index_of(begin.tolist(), end.tolist(), strides.tolist(), masks_of(node.attrs))
    return np.asarray(value[(*key, ...)] if Ellipsis not in key else value[key])


@evaluator("Slice", partial=True)
def _slice(node: Node, index: int, values: Values) -> Array | None:
    value, begin, size = _arrays(values)
    if object in (begin.dtype, size.dtype):
        return None
    pairs = zip(begin.tolist(), size.tolist(), strict=True)
    return value[tuple([slice(b, None if n == -1 else b + n) for b, n in pairs])]


@evaluator("Gather", "GatherV2", partial=True)
def _gather(node: Node, index: int, values: Values) -> Array | None:
    value, indices, *axis = _arrays(values)
    if node.attrs.get("batch_dims", 0):
        return None
    at = int(axis[0]) if axis else 0
    positions = indices.astype(np.int64)
    if positions.size and positions.min() < 0:
        return None
    return np.take(value, positions, axis=at)


@evaluator("Split", partial=True)
def _split(node: Node, index: int, values: Values) -> Array | None:
    axis, value = _arrays(values)
    return np.split(value, node.attrs["num_split"], axis=int(axis))[index]


@evaluator("SplitV", partial=True)
def _split_v(node: Node, index: int, values: Values) -> Array | None:
    value, sizes, axis = _arrays(values)
    counts = [int(n) for n in sizes.tolist()]
    if -1 in counts:
        counts[counts.index(-1)] = value.shape[int(axis)] - sum(counts) - 1
    return np.split(value, np.cumsum(counts)[:-1].tolist(), axis=int(axis))[index]


@evaluator("Tile", partial=True)
def _tile(node: Node, index: int, values: Values) -> Array | None:
    value, multiples = _arrays(values)
    counts = [int(n) for n in multiples.tolist()]
    if value.size * (num_elements(tuple(counts)) or 0) > MAX_ELEMENTS:
        return None
    return np.tile(value, counts)


@evaluator("ReverseV2", partial=True)
def _reverse(node: Node, index: int, values: Values) -> Array | None:
    value, axes = _arrays(values)
    return np.flip(value, tuple([int(n) for n in axes.tolist()]))


@evaluator("Transpose", partial=True)
def _transpose(node: Node, index: int, values: Values) -> Array | None:
    value, perm = _arrays(values)
    return np.transpose(value, [int(n) for n in perm.tolist()])


@evaluator("BroadcastArgs", partial=True)
def _broadcast_args(node: Node, index: int, values: Values) -> Array | None:
    a, b = [tuple(value.tolist()) for value in _arrays(values)]
    dims = broadcast_dims(a, b)
    assert dims is not None
    return np.array(dims, object if None in dims else np.int64)


@evaluator("BroadcastTo")
def _broadcast_to(node: Node, index: int, values: Values) -> Array | None:
    value, shape = _arrays(values)
    dims = [int(n) for n in shape.tolist()]
    if (num_elements(tuple(dims)) or 0) > MAX_ELEMENTS:
        return None
    return np.broadcast_to(value, dims)


@evaluator("Select", "SelectV2")
def _select(node: Node, index: int, values: Values) -> Array | None:
    condition, a, b = _arrays(values)
    return np.where(condition, a, b)


# ------------------------------------------------------------------------------ arithmetic


def _binary(function: Callable[[Any, Any], Any], on_object: Callable[[Any, Any], Any]) -> Evaluate:
    lifted = np.frompyfunc(lambda a, b: None if a is None or b is None else on_object(a, b), 2, 1)

    def evaluate(node: Node, index: int, values: Values) -> Array | None:
        a, b = _arrays(values)
        if object in (a.dtype, b.dtype):
            if _is_object(node.inputs[0]):
                return None
            return np.asarray(lifted(a, b))
        if function in _DIVISIONS and a.dtype.kind in "iu" and not b.all():
            return None
        with np.errstate(all="ignore"):
            return np.asarray(function(a, b))

    return evaluate


_DIVISIONS = (np.floor_divide, np.remainder)


def _register_arithmetic() -> None:
    import operator as op

    binary: dict[str, tuple[Any, Any]] = {
        "Add": (np.add, op.add),
        "AddV2": (np.add, op.add),
        "Sub": (np.subtract, op.sub),
        "Mul": (np.multiply, op.mul),
        "FloorDiv": (np.floor_divide, op.floordiv),
        "FloorMod": (np.remainder, op.mod),
        "Maximum": (np.maximum, max),
        "Minimum": (np.minimum, min),
    }
    for name, (function, on_object) in binary.items():
        evaluator(name, partial=True)(_binary(function, on_object))
    compare: dict[str, Any] = {
        "Equal": np.equal,
        "NotEqual": np.not_equal,
        "Less": np.less,
        "LessEqual": np.less_equal,
        "Greater": np.greater,
        "GreaterEqual": np.greater_equal,
        "LogicalAnd": np.logical_and,
        "LogicalOr": np.logical_or,
        "LogicalNot": np.logical_not,
        "Neg": np.negative,
        "Abs": np.abs,
    }
    for name, function in compare.items():
        evaluator(name)(_plain(function))
    reduce: dict[str, Any] = {
        "Prod": np.prod,
        "Sum": np.sum,
        "Max": np.max,
        "Min": np.min,
        "All": np.all,
        "Any": np.any,
    }
    for name, function in reduce.items():
        evaluator(name)(_reduction(function))


def _plain(function: Callable[..., Any]) -> Evaluate:
    def evaluate(node: Node, index: int, values: Values) -> Array | None:
        with np.errstate(all="ignore"):
            return np.asarray(function(*_arrays(values)))

    return evaluate


def _reduction(function: Callable[..., Any]) -> Evaluate:
    def evaluate(node: Node, index: int, values: Values) -> Array | None:
        value, axes = _arrays(values)
        axis = tuple([int(n) for n in axes.reshape(-1).tolist()])
        with np.errstate(all="ignore"):
            return np.asarray(function(value, axis=axis, keepdims=node.attrs["keep_dims"]))

    return evaluate


def _arrays(values: Values) -> list[Array]:
    return [value for value in values if value is not None]


def _first(values: Values) -> Array:
    value = values[0]
    assert value is not None
    return value


_register_arithmetic()

"""Errors for Python and NumPy operations that need a value but are applied to a tensor.

Each message names the replacement in the graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self

from weft_tensor import errors

_METHODS: Final = {
    "T": "transpose(x)",
    "all": "reduce_all(x)",
    "any": "reduce_any(x)",
    "append": "concat([x, y], axis), or a list of tensors and stack",
    "argmax": "argmax(x, axis)",
    "argmin": "argmin(x, axis)",
    "argsort": "argsort(x)",
    "assign": "a variable, which supports it",
    "assign_add": "a variable, which supports it",
    "assign_sub": "a variable, which supports it",
    "astype": "cast(x, dtype)",
    "clip": "clip_by_value(x, low, high)",
    "copy": "identity(x)",
    "cumsum": "cumsum(x, axis)",
    "dot": "matmul(x, y), or tensordot(x, y, axes)",
    "flatten": "reshape(x, [-1])",
    "handle": "a variable, which supports it",
    "initializer": "a variable, which supports it",
    "item": "Session.run(x)",
    "max": "reduce_max(x)",
    "mean": "reduce_mean(x)",
    "min": "reduce_min(x)",
    "ndim": "x.shape.ndims, or rank(x)",
    "numpy": "Session.run(x)",
    "prod": "reduce_prod(x)",
    "ravel": "reshape(x, [-1])",
    "read_value": "a variable, which supports it",
    "repeat": "repeat(x, repeats)",
    "reshape": "reshape(x, shape)",
    "size": "x.shape.num_elements(), or size(x)",
    "sort": "sort(x)",
    "squeeze": "squeeze(x)",
    "std": "sqrt(nn.moments(x, axes)[1])",
    "sum": "reduce_sum(x)",
    "swapaxes": "transpose(x, perm)",
    "tolist": "Session.run(x)",
    "transpose": "transpose(x)",
    "var": "nn.moments(x, axes)[1]",
}
"""Replacements in the graph for attributes of arrays or variables."""

_FETCH: Final = "has no value at graph construction: fetch it with Session.run"


class GraphElement:
    """Base class of objects of a graph, which `copy.deepcopy` does not copy."""

    __slots__ = ()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self


class Symbolic(GraphElement):
    """Base class of objects whose value is known only when a step runs."""

    __slots__ = ()

    __array_priority__ = 100.0
    """Makes NumPy leave `array + tensor` to the tensor."""

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise self._refusal(
            "instead of a NumPy function use weft's, such as reduce_sum for np.sum and "
            "stack for np.array([x, y])"
        )

    def __bool__(self) -> bool:
        raise errors.InvalidTypeError(
            f"{self!r} has no truth value at graph construction: use cond or where to select, "
            "logical_and instead of `and`, maximum instead of max(), `is not None` to test "
            "if a tensor was passed"
        )

    def __float__(self) -> float:
        raise self._refusal(
            "instead of float(x) use cast(x, float32), instead of math.sqrt(x) sqrt(x)"
        )

    def __complex__(self) -> complex:
        raise self._refusal("instead of complex(x) use cast(x, complex64)")

    def __int__(self) -> int:
        raise self._refusal("instead of int(x) use cast(x, int32)")

    def __index__(self) -> int:
        raise self._refusal(
            "instead of values[x] use gather(values, x), instead of range(x) the graph's range "
            "or while_loop"
        )

    def __round__(self, *_: Any) -> Any:
        raise self._refusal("instead of the builtin round(x) use weft's")

    def __contains__(self, value: Any) -> bool:
        raise self._refusal("instead of `value in x` use reduce_any(equal(x, value))")

    def __format__(self, spec: str) -> str:
        if not spec:
            return str(self)
        raise self._refusal(f"instead of a format such as {spec!r} use as_string(x) or Print(x)")

    def _refusal(self, replacement: str) -> errors.InvalidTypeError:
        return errors.InvalidTypeError(f"{self!r} {_FETCH}, or {replacement}")

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            replacement = _METHODS.get(name)
            hint = f": use {replacement}" if replacement else ""
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}{hint}",
                name=name,
                obj=self,
            )

"""The gradient of mirrored margins."""

from __future__ import annotations

from weft_compiler.ir.expressions import Expr, apply, index, number, where
from weft_compiler.ir.indices import clamped, minus, plus
from weft_compiler.lower.registry import Operation, lowers, require
from weft_compiler.lower.values import Value, computed


@lowers("MirrorPadGrad", known=(1,))
def _mirror_pad_grad(op: Operation) -> Value:
    """Each element gets what its mirror images got, one axis after the other."""
    found, edge = op.inputs[0], int(op.attr("mode") == "REFLECT")
    for axis, (before, after) in enumerate(op.known(1).tolist()):
        if before or after:
            found = _folded(f"{op.name}_{axis}", found, axis, int(before), int(after), edge)
    return computed(op.name, op.dtype(), op.shape(), found.at)


def _folded(name: str, x: Value, axis: int, before: int, after: int, edge: int) -> Value:
    """A tensor without its margins along an axis, which are added to what they mirror.

    Args:
      edge: 1 where the outermost elements are not mirrored, else 0.
    """
    size = x.shape[axis] - before - after
    require(size > 0 and max(before, after) <= size - edge, "its paddings are too large")
    zero = number(0, x.dtype)

    def element(*at: Expr) -> Expr:
        i = at[axis]

        def near(place: Expr) -> Expr:
            return x.at(*at[:axis], clamped(place, x.shape[axis]), *at[axis + 1 :])

        found = near(plus(i, before))
        if before:
            mirrored = apply("bit_and", _at_least(i, edge), apply("less", i, index(before + edge)))
            first = near(minus(before - 1 + edge, i))
            found = apply("add", found, where(mirrored, first, zero))
        if after:
            start = size - edge - after
            mirrored = apply("bit_and", _at_least(i, start), apply("less", i, index(size - edge)))
            last = near(minus(before + size + after - 1 + start, i))
            found = apply("add", found, where(mirrored, last, zero))
        return found

    shape = (*x.shape[:axis], size, *x.shape[axis + 1 :])
    return computed(name, x.dtype, shape, element)


def _at_least(i: Expr, least: int) -> Expr:
    return apply("greater_equal", i, index(least))

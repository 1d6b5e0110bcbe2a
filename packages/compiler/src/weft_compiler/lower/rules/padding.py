"""MirrorPad and its gradient."""

from __future__ import annotations

from collections.abc import Sequence

from weft_compiler.ir.expressions import Expr, apply, index, number, where
from weft_compiler.ir.indices import clamp_index, minus, plus
from weft_compiler.ir.loops import Unique, load, nest
from weft_compiler.ir.program import Body, Buffer, Statement, Store
from weft_compiler.lower.registry import Operation, lowers, require
from weft_compiler.lower.values import StatementDefinition, Value, compute_value, move_elements


@lowers("MirrorPad", known_operands=(1,))
def _mirror_pad(op: Operation) -> Value:
    x, edge = op.inputs[0], int(op.attr("mode") == "REFLECT")
    margins = [(int(leading), int(trailing)) for leading, trailing in op.known_value(1)]
    fit = [max(row) <= size - edge for row, size in zip(margins, x.shape, strict=True)]
    require(all(fit), "its paddings are larger than the mirrored tensor")

    def source(*position: Expr) -> list[Expr]:
        result = []
        for i, (leading, _), size in zip(position, margins, x.shape, strict=False):
            place = minus(i, leading)
            place = where(apply("less", place, index(0)), minus(edge - 1, place), place)
            far = apply("less", place, index(size))
            place = where(far, place, minus(2 * size - 1 - edge, place))
            result.append(clamp_index(place, size))
        return result

    if not margins or not any(margins[-1]):
        return move_elements(op.name, x, op.shape(), source)
    size, (leading, trailing) = x.shape[-1], margins[-1]

    def write(unique: Unique, y: Buffer, buffer: Buffer) -> Sequence[Statement]:
        """Write rows in three parts that are contiguous in memory."""

        def row(*position: Expr) -> Body:
            lead = source(*position)

            def part(count: int, target: int, first: int, step: int) -> Body:
                def copy(j: Expr) -> Body:
                    place = plus(first, j) if step > 0 else minus(first, j)
                    return (
                        Store(
                            y.name,
                            (*position, plus(target, j)),
                            load(buffer, x.shape, [*lead, place]),
                        ),
                    )

                return nest(unique, (count,), copy)

            return (
                *part(leading, 0, edge + leading - 1, -1),
                *part(size, leading, 0, 1),
                *part(trailing, leading + size, size - edge - 1, -1),
            )

        return nest(unique, op.shape()[:-1], row) if x.size else ()

    return Value(op.name, x.dtype, op.shape(), StatementDefinition((x,), write))


@lowers("MirrorPadGrad", known_operands=(1,))
def _mirror_pad_grad(op: Operation) -> Value:
    """Add the gradients of all mirror images of each element, one axis after another."""
    result, edge = op.inputs[0], int(op.attr("mode") == "REFLECT")
    for axis, (leading, trailing) in enumerate(op.known_value(1).tolist()):
        if leading or trailing:
            result = _fold_padding(
                f"{op.name}_{axis}", result, axis, int(leading), int(trailing), edge
            )
    return compute_value(op.name, op.dtype(), op.shape(), result.at)


def _fold_padding(name: str, x: Value, axis: int, leading: int, trailing: int, edge: int) -> Value:
    """Remove the padding along an axis from a tensor and add it to the mirrored elements.

    Args:
      edge: 1 if the outermost elements are not mirrored, else 0.
    """
    size = x.shape[axis] - leading - trailing
    require(size > 0 and max(leading, trailing) <= size - edge, "its paddings are too large")
    zero = number(0, x.dtype)

    def element(*position: Expr) -> Expr:
        i = position[axis]

        def element_at(place: Expr) -> Expr:
            return x.at(*position[:axis], clamp_index(place, x.shape[axis]), *position[axis + 1 :])

        result = element_at(plus(i, leading))
        if leading:
            mirrored = apply("bit_and", _at_least(i, edge), apply("less", i, index(leading + edge)))
            first = element_at(minus(leading - 1 + edge, i))
            result = apply("add", result, where(mirrored, first, zero))
        if trailing:
            start = size - edge - trailing
            mirrored = apply("bit_and", _at_least(i, start), apply("less", i, index(size - edge)))
            last = element_at(minus(leading + size + trailing - 1 + start, i))
            result = apply("add", result, where(mirrored, last, zero))
        return result

    shape = (*x.shape[:axis], size, *x.shape[axis + 1 :])
    return compute_value(name, x.dtype, shape, element)


def _at_least(i: Expr, minimum: int) -> Expr:
    return apply("greater_equal", i, index(minimum))

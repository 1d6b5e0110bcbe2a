"""Elementwise ops whose operands do not follow the usual broadcasting.

All other elementwise ops are lowered from their scalar definitions (`weft_compiler.lower.region`).
"""

from __future__ import annotations

from weft_compiler.ir.expressions import Expr, apply, number, where
from weft_compiler.lower.registry import Operation, lowers
from weft_compiler.lower.values import Value, compute_value


@lowers("Select")
def _select(op: Operation) -> Value:
    condition, x, y = op.inputs

    def element(*index: Expr) -> Expr:
        return where(condition.at(*index[: condition.rank]), x.at(*index), y.at(*index))

    return compute_value(op.name, op.dtype(), op.shape(), element)


@lowers("BiasAdd")
def _bias_add(op: Operation) -> Value:
    x, bias = op.inputs
    axis = 1 if op.attr("data_format") == "NCHW" else x.rank - 1

    def element(*index: Expr) -> Expr:
        return apply("add", x.at(*index), bias.at(index[axis]))

    return compute_value(op.name, x.dtype, x.shape, element)


@lowers("ZerosLike", "OnesLike")
def _filled(op: Operation) -> Value:
    value = number(op.node.type == "OnesLike", op.dtype())
    return compute_value(op.name, op.dtype(), op.shape(), lambda *_: value)

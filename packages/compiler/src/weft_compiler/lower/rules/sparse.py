"""Sparse tensors: conversion to dense, and products with dense matrices."""

from __future__ import annotations

from collections.abc import Sequence

from weft_compiler.ir.expressions import INDEX, Expr, Variable, apply, cast, number
from weft_compiler.ir.indices import clamp_index, plus
from weft_compiler.ir.loops import Unique, fill, load, nest
from weft_compiler.ir.program import Body, Buffer, Let, Statement, Store
from weft_compiler.lower.precision import round_to, widen
from weft_compiler.lower.registry import Operation, lowers, require
from weft_compiler.lower.rules.gather import points_in_range
from weft_compiler.lower.values import Requirement, StatementDefinition, Value, move_elements
from weft_tensor import dtypes


@lowers("SparseTensorDenseMatMul", known_operands=(2,), compiles_alone=lambda _: True)
def _product(op: Operation) -> Value:
    """Add each value times a row of the dense matrix to a row of the result."""
    indices, _, _, b = op.inputs
    values, dense = widen(op.name, op.inputs[1]), widen(op.name, b)
    sizes, wide = [int(size) for size in op.known_value(2)], dense.dtype
    row, column = (1, 0) if op.attr("adjoint_a") else (0, 1)
    if op.attr("adjoint_b"):
        transposed = dense.shape[::-1]
        dense = move_elements(f"{op.name}_b", dense, transposed, lambda i, j: (j, i))
    m, n = op.shape()
    fits = values.rank == 1 and indices.shape == (values.size, 2)
    require(fits and dense.shape == (sizes[column], n), "the shapes of its operands do not match")

    def write(
        unique: Unique, result: Buffer, places: Buffer, factors: Buffer, rows: Buffer
    ) -> Sequence[Statement]:
        zeros = fill(unique, result, number(0, wide))

        def add_product(index: Expr) -> Body:
            names = [Variable(INDEX, unique(name)) for name in ("row", "column")]
            lets = [
                Let(
                    name.name,
                    clamp_index(cast(load(places, indices.shape, (index, axis)), INDEX), size),
                )
                for name, axis, size in zip(names, (row, column), (m, sizes[column]), strict=True)
            ]
            factor = Variable(wide, unique("factor"))
            lets.append(Let(factor.name, load(factors, values.shape, (index,))))

            def add(j: Expr) -> Body:
                term = apply("mul", factor, load(rows, dense.shape, (names[1], j)))
                return (Store(result.name, (names[0], j), term, "add"),)

            return (*lets, *nest(unique, [n], add))

        some = m and sizes[column] and values.size
        return (*zeros, *(nest(unique, values.shape, add_product) if some else ()))

    total = Value(
        f"{op.name}_total", wide, (m, n), StatementDefinition((indices, values, dense), write)
    )
    total.requires = points_in_range(indices, sizes)
    return round_to(op.name, total, op.dtype())


@lowers("SparseToDense", known_operands=(1,))
def _to_dense(op: Operation) -> Value:
    """Store values at their positions in order; of equal positions the last one wins."""
    positions, _, values, default = op.inputs
    shape, depth = op.shape(), len(op.shape())
    count = positions.shape[0] if positions.rank else 1
    require(
        default.rank == 0 and (positions.rank == 2 or depth == 1),
        "the shapes of its operands do not match",
    )
    require(
        positions.rank < 2 or positions.shape[1] == depth, "the shapes of its operands do not match"
    )
    require(
        values.shape in ((), (count,)) and (depth > 0 or count <= 1),
        "the shapes of its operands do not match",
    )

    def point(i: Expr, axis: Expr) -> tuple[Expr, ...]:
        return (i, axis) if positions.rank == 2 else (i,)[: positions.rank]

    points = move_elements(f"{op.name}_points", positions, (count, depth), point, dense=True)

    def write(
        unique: Unique, result: Buffer, indices: Buffer, buffer: Buffer, filler: Buffer
    ) -> Sequence[Statement]:
        start = fill(unique, result, load(filler, (), ()))

        def store_value(i: Expr) -> Body:
            index = [
                clamp_index(cast(load(indices, points.shape, (i, axis)), INDEX), size)
                for axis, size in enumerate(shape)
            ]
            value = load(buffer, values.shape, (i,)[: values.rank])
            return (Store(result.name, tuple(index), value),)

        return (*start, *(nest(unique, [count], store_value) if 0 not in shape else ()))

    value = Value(op.name, op.dtype(), shape, StatementDefinition((points, values, default), write))
    value.requires = points_in_range(points, shape)
    if op.attr("validate_indices") and count > 1:
        value.requires = (*value.requires, _require_ascending(points))
    return value


def _require_ascending(points: Value) -> Requirement:
    """Require that points are in strictly ascending order."""
    count, depth = points.shape

    def condition(i: Expr) -> Expr:
        result: Expr = number(False, dtypes.bool_)
        for axis in reversed(range(depth)):
            first, second = points.at(i, axis), points.at(plus(i, 1), axis)
            equal = apply("bit_and", apply("equal", first, second), result)
            result = apply("bit_or", apply("less", first, second), equal)
        return result

    return Requirement((count - 1,), condition, "indices in order were required")

"""Routine selection: chooses generated code or BLAS for each matrix product.

    call gemm(x, w, y, m=32, ...)                call matmul(x, w, y, m=32, ...)

The choices and their limits are in `weft_compiler.routines.selection`. Lowering makes the choices
that determine how operands are packed; the remarks repeat its reasons.
"""

from __future__ import annotations

from collections.abc import Container

from weft_compiler.ir.mutator import StatementMutator, with_body
from weft_compiler.ir.program import Body, Program, Statement
from weft_compiler.passes.framework import Context
from weft_compiler.routines.conv2d import Conv, ConvFilter
from weft_compiler.routines.gemm import Gemm, Matmul, Product
from weft_compiler.routines.selection import (
    generated_reason,
    l2_cache_bytes,
    lowering_reasons,
    winograd_filter_reason,
)


def select_routines(program: Program, context: Context) -> Program:
    """Replace `gemm` by `matmul` where that is faster."""
    selection = _Selection(context, program.constants)
    return with_body(program, selection.rewrite_body(program.body))


def replace_blas(body: Body) -> Body:
    """Replace products by BLAS, which is not available, by generated code."""
    return _GeneratedProducts().rewrite_body(body)


class _Selection(StatementMutator):
    """Mutator that replaces `gemm` by `matmul` where that is faster, with remarks."""

    def __init__(self, context: Context, constants: Container[str]) -> None:
        self._context = context
        self._constants = constants
        self._l2_bytes = l2_cache_bytes()

    def rewrite_statement(self, statement: Statement) -> Statement | Body:
        if isinstance(statement, Gemm):
            return self._select_product(statement)
        if isinstance(statement, Conv | ConvFilter):
            reason = winograd_filter_reason(statement, statement.x.dtype.size)
            reason = reason or "its tiles are few or partly empty, or they are not packed"
            self._context.record_missed(statement.y.buffer, "winograd: %s", reason)
            return statement
        return super().rewrite_statement(statement)

    def _select_product(self, product: Gemm) -> Product:
        vector_bytes, target = self._context.vector_bytes, product.c.buffer
        size = product.a.dtype.size
        for routine, reason in lowering_reasons(product, product.b.buffer in self._constants):
            self._context.record_missed(target, "%s: %s", routine, reason)
        reason = generated_reason(product, size, vector_bytes, self._l2_bytes)
        if reason:
            self._context.record_missed(target, "matmul: %s", reason)
            return product
        self._context.record_applied(target, "computed by generated code")
        return product.convert(Matmul)


class _GeneratedProducts(StatementMutator):
    """Mutator that replaces `gemm`, a BLAS routine, by `matmul`."""

    def rewrite_statement(self, statement: Statement) -> Statement | Body:
        if isinstance(statement, Gemm):
            return statement.convert(Matmul)
        return super().rewrite_statement(statement)

"""Base of the mutators that need the buffers visible to a statement."""

from __future__ import annotations

from weft_compiler.ir.mutator import StatementMutator
from weft_compiler.ir.program import Body
from weft_compiler.passes.effects import Buffers, with_allocations
from weft_compiler.passes.framework import Context


class ScopedMutator(StatementMutator):
    """A mutator of statements that tracks the visible buffers.

    A subclass overrides `rewrite_statement`, or `rewrite_statements` for a body as a whole.

    Args:
      buffers: the buffers that are visible to the outermost body.
      context: receives the remarks of the pass.
    """

    def __init__(self, buffers: Buffers, context: Context) -> None:
        self.buffers = buffers
        self.context = context

    def rewrite_body(self, body: Body) -> Body:
        """Return the statements that replace a body, with its buffers in scope."""
        outer = self.buffers
        self.buffers = with_allocations(outer, body)
        new = self.rewrite_statements(body)
        self.buffers = outer
        return new

    def rewrite_statements(self, body: Body) -> Body:
        """Return the statements that replace the statements of a body."""
        return super().rewrite_body(body)

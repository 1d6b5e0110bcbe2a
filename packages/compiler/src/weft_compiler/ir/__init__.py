"""The loop-nest IR: expressions, statements, programs; printed, parsed, verified, interpreted."""

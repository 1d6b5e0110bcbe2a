"""Lowering rules of ops, with the module names that the op families have elsewhere."""

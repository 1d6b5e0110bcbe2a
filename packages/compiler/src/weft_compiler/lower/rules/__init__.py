"""Lowering rules of ops; each op family has the same module name as in the other packages."""

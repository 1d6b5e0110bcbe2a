"""Lowering: translation of nodes to programs, by a rule for each op."""

"""Ops by family: declarations, shape rules, and public functions."""

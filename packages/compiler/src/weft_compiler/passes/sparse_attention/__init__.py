"""Sparse attention: skips columns whose probabilities are exactly zero."""

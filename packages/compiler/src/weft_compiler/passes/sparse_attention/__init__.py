"""Skipping of attention columns whose probabilities are exactly zero."""

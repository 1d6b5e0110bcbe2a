"""Probability distributions: draws, densities and statistics, made of other ops."""

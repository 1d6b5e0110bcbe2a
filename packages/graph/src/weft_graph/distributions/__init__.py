"""Probability distributions: samples, densities and statistics, composed of other ops."""

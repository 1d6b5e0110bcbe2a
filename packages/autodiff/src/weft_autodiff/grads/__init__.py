"""Gradient functions by op family; loaded at the first use of a gradient."""

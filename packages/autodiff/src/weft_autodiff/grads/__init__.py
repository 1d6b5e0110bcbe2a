"""Gradient functions by op family; loaded when the first gradient is asked for."""

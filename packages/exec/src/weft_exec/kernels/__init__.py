"""Kernels by op family; loaded when the first executable is derived."""

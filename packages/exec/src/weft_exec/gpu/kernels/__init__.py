"""Kernels of GPUs, one module for each family, based on CuPy's functions."""

"""The kernels of GPUs, one family per module, over CuPy's functions."""

"""Bodies of functions that run by themselves, and the kernels of calls that stay calls."""

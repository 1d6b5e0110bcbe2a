"""Bodies of functions that run as separate steps, and kernels of calls that are not inlined."""

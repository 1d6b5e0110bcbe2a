"""Kernels of the ops of weftml-io."""

BY_FAMILY = True
"""Kernel modules by op family; they have the names of `weft_io.ops` and are imported on demand."""

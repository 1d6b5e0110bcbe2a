"""Kernels of weftml-io's ops."""

BY_FAMILY = True
"""Modules are called as those of `weft_io.ops` that declare the ops: they are imported singly."""

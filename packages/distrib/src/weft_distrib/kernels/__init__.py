"""Kernels of weftml-distrib's ops."""

BY_FAMILY = True
"""Modules are called as those of `weft_distrib.ops` that declare the ops: imported singly."""

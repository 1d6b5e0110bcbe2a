"""Kernels of weftml-distrib's ops."""

BY_FAMILY = True
"""Modules are imported singly; each has the name of the module of `weft_distrib.ops` that declares
its ops.
"""

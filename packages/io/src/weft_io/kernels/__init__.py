"""Kernels of weft-io's ops."""

"""Kernels of weftml-io's ops."""

"""Kernels, one module for each op family.

A module is imported when one of its ops is first used.
"""

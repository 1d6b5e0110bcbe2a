"""Kernels by op family; a family is loaded when one of its ops is first run."""

"""Gradients of weftml-io's ops."""

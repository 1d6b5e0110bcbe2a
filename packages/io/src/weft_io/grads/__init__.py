"""Gradients of weft-io's ops."""

"""Declarations of weft-io's ops."""

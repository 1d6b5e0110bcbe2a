"""Declarations of weftml-io's ops."""

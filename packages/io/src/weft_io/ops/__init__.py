"""Declarations of the ops of weftml-io."""

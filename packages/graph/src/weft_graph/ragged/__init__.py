"""Ragged tensors, with rows of different lengths: construction, and ops on them."""

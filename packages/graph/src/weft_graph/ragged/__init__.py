"""Ragged tensors: rows of different lengths, what makes them, and what ops do with them."""

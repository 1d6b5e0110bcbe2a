"""Graphs with their collections and savers, as messages in files."""

"""Regions that a code generator makes functions of: which nodes, and for which shapes."""

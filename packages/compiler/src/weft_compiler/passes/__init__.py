"""Passes: rewrites from naive programs to programs that are efficient on a processor."""

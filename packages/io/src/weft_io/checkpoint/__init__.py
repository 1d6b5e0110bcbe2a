"""Checkpoints on disk: their format, how they are written so that nothing is lost, and read."""

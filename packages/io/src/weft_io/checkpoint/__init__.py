"""Checkpoints on disk: their formats, crash-safe writing, and reading."""

"""Saver, the selection of variables to save, and the retention of checkpoints."""

"""Saver, the choice of saved variables, and the retention of files."""

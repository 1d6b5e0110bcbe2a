"""Saver and what decides which variables it saves, and how long files stay."""

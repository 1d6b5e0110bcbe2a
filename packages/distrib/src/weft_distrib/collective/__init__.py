"""Collective ops: discovery of their members and exchange of data."""

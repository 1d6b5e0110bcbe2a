"""Devices: what they are, and how they are found."""

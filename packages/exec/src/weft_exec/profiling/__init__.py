"""Profiles of traced steps: time and memory by op type, name scope or node."""

"""Collective ops: how their members find each other, and what they exchange."""

"""Regions compiled as functions: which nodes a region has, and for which shapes it is compiled."""

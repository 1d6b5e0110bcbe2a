"""Sessions of programs on servers of a cluster."""

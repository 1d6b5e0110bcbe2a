"""The commands that weftml-io adds to `weft`."""

"""What weftml-io adds to the `weft` command."""

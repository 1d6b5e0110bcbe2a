"""What weft-io adds to the `weft` command."""

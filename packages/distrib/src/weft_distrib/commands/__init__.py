"""Subcommands of `weft`."""

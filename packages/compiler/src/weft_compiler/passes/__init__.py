"""Passes: rewrites that turn naive programs into efficient ones."""

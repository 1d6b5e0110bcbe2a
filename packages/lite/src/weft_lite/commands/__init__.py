"""The command `weft-lite`, which needs this package alone, but for `convert` and `compare`."""

from weft_lite.commands.main import main

__all__ = ["main"]

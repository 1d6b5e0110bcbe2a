"""The command `weft-lite`; only `convert` and `compare` need other packages."""

from weft_lite.commands.main import main

__all__ = ["main"]

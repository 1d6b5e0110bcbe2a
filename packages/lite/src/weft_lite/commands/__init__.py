"""The command `weft-lite`; only `convert` and `compare` require other packages."""

from weft_lite.commands.main import main

__all__ = ["main"]

"""The commands `weft-lite convert` and `compare`; `commands.extra` has their arguments."""

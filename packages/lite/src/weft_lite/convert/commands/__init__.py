"""Commands `weft-lite convert` and `compare`; `weft_lite.commands.extra` has their arguments."""

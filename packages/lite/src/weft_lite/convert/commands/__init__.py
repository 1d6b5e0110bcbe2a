"""What `weft-lite convert` and `compare` do; `weft_lite.commands.extra` has their arguments."""

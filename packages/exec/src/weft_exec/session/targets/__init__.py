"""The targets that are built into weft_exec."""

"""The targets that weft_exec has itself."""

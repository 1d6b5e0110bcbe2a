"""Machine code as Python callables, and the disk cache of machine code."""

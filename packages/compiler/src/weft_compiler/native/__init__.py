"""Machine code as Python callables, and its disk cache."""

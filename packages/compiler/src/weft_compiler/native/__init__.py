"""Machine code as callables of Python, and its cache on disk."""

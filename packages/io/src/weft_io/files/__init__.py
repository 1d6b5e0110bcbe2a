"""File systems: local files, and URLs through fsspec."""

"""File systems: the local one, and through fsspec whatever a URL names."""

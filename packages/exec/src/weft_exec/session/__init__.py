"""Session: what is fed and fetched, and how a step is planned."""

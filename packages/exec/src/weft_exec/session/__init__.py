"""Session: feeds, fetches, planning, and the backends that run steps."""

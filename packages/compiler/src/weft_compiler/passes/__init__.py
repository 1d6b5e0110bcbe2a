"""From programs that compute one value after the other to programs that a processor likes."""

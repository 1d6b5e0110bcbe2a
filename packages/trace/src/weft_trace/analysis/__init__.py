"""Questions about a trace: why a step took as long as it did."""

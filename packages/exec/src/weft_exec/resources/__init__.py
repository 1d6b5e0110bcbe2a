"""Resources and containers: what outlives a step."""

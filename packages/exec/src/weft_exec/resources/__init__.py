"""Resources and containers: state that outlives a step."""

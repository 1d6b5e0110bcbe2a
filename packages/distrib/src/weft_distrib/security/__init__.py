"""Security of connections: certificates, tokens, roles, and rate limits."""

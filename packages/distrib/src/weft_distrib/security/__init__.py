"""Who may talk to whom: certificates, tokens, roles, and what bounds those who ask."""

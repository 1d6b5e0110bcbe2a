"""Training on several tasks: placement of variables, and synchronous steps."""

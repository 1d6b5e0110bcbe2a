"""Training over several tasks: where variables go, and steps in step."""

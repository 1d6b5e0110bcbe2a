"""What a task does of a step: parts, and the values that they exchange with others."""

"""A task's side of a step: partitions, and the values that they exchange with others."""

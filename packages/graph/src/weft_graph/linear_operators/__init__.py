"""Linear operators: matrices defined by their operations, composed of other ops."""

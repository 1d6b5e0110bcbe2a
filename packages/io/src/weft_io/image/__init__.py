"""Image functions that are composed of other ops."""

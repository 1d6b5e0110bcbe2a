"""Support for weft's own tests: op cases, a reference evaluator, finite differences."""

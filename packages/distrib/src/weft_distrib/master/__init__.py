"""Sessions: one graph over the devices of all tasks, planned here and run by workers."""

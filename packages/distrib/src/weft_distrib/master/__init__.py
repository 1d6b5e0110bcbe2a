"""Sessions on a master, which plans one graph for the devices of all tasks; workers run it."""

"""Checkpoints of objects: variables under the names of the attributes that they are found by."""

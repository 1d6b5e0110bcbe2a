"""What ops compute, a module for each family, under the name that the family has elsewhere."""

"""Functions of images that are made of other ops."""

"""Matrices that are known by what they do, made of other ops."""

"""Formats of images and sounds: bytes to arrays and back.

What a header claims is checked before memory is taken for it, and whatever bytes do not decode are
an InvalidArgumentError.
"""

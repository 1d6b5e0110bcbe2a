"""Codecs of images and sound: bytes to arrays and back.

The sizes in a header are checked before memory is allocated. Bytes that cannot be decoded raise
InvalidArgumentError.
"""

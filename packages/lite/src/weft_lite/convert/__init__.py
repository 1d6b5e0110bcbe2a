"""Conversion of graphs to `.weftlite` files; requires the extra `convert` of weftml-lite."""

from weft_lite.convert.converter import Converter

__all__ = ["Converter"]

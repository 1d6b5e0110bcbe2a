"""Declarations of ops."""

from __future__ import annotations

import pytest

from weft_graph.ir.op_def import AttrDef
from weft_tensor import errors


def test_an_attribute_of_unknown_type_is_refused_where_it_is_declared() -> None:
    with pytest.raises(errors.InvalidArgumentError, match=r"attribute T: .*braces, got 'floating'"):
        AttrDef("T", "floating")


def test_a_set_of_element_types_stands_in_braces() -> None:
    assert AttrDef("T", "{floating}").type == "type"

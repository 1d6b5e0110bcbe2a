"""Declarations of ops."""

from __future__ import annotations

import pytest

import weft as wf
from weft_graph.ir.op_signature import AttrDef
from weft_tensor import errors


def test_an_attribute_of_unknown_type_is_refused_where_it_is_declared() -> None:
    with pytest.raises(errors.InvalidArgumentError, match=r"attribute T: .*braces, got 'floating'"):
        AttrDef("T", "floating")


def test_a_set_of_element_types_stands_in_braces() -> None:
    assert AttrDef("T", "{floating}").type == "type"


def test_the_declaration_of_a_node_reads_as_tensorflows_message() -> None:
    with wf.Graph().as_default():
        declared = wf.add(1.0, 2.0).op.op_def
    assert [argument.name for argument in declared.input_arg] == ["x", "y"]
    assert [argument.type_attr for argument in declared.output_arg] == ["T"]
    assert [attribute.name for attribute in declared.attr] == ["T"]
    assert not declared.is_stateful
    with pytest.raises(AttributeError, match="fields"):
        _ = declared.fields

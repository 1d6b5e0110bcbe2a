"""Conversion of TensorFlow's forms of function calls in imported graphs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft_graph import proto
from weft_graph.ir.library import Library
from weft_graph.messages.attr_value import attr_from_proto
from weft_graph.messages.tensor_proto import Budget
from weft_tensor import errors

FUNCTIONAL = frozenset({"Case", "If", "StatelessCase", "StatelessIf", "StatelessWhile", "While"})


def prepare_graph_def(graph_def: proto.GraphDef, library: Library) -> proto.GraphDef:
    """Convert all calls, functional conditionals and functional loops to call nodes.

    TensorFlow's older calls have the name of the function as op type.

    Args:
      library: the library of the importing graph, including the functions of `graph_def`.
    Returns: `graph_def` itself if nothing changes, else a copy.
    Raises: NotFoundError, InvalidArgumentError: functions are missing or do not match.
    """
    if not any(node.op in library or node.op in FUNCTIONAL for node in graph_def.node):
        return graph_def
    result = proto.GraphDef()
    result.CopyFrom(graph_def)
    for node in result.node:
        if node.op in FUNCTIONAL:
            _lower(node, library)
        elif node.op in library:
            _to_call(node, library.definition(node.op).signature)
    return result


def _to_call(node: proto.NodeDef, signature: Any) -> None:
    name = node.op
    attrs: Mapping[str, Any] = dict(node.attr)
    function = node.attr["f"].func
    function.name = name
    for key, value in attrs.items():
        if not key.startswith("_"):
            function.attr[key].CopyFrom(value)
            del node.attr[key]
    inputs = [arg.type for arg in signature.input_arg]
    _call(node, inputs, [arg.type for arg in signature.output_arg], signature.is_stateful)


def _call(node: proto.NodeDef, inputs: list[int], outputs: list[int], stateful: bool) -> None:
    node.op = "StatefulPartitionedCall" if stateful else "PartitionedCall"
    for key, types in (("Tin", inputs), ("Tout", outputs)):
        node.attr[key].list.SetInParent()
        node.attr[key].list.type.extend(types)


def _lower(node: proto.NodeDef, library: Library) -> None:
    kinds = {
        "Tcond": "type",
        "Tin": "list(type)",
        "body": "func",
        "branches": "list(func)",
        "cond": "func",
        "else_branch": "func",
        "parallel_iterations": "int",
        "then_branch": "func",
    }
    branch_attrs = {"If": ("Tcond", "then_branch", "else_branch"), "While": ("cond", "body")}
    try:
        for key in branch_attrs.get(node.op.removeprefix("Stateless"), ("branches",)):
            if key not in node.attr:
                raise errors.InvalidArgumentError(f"the attribute {key} is required")
        attrs = {
            key: attr_from_proto(node.attr[key], kind, f"attribute {key}", Budget())
            for key, kind in kinds.items()
            if key in node.attr
        }
        from weft_graph.messages.function_lowering import lowered  # few graphs need it

        function = lowered(library, node.op, attrs)
    except errors.OpError as error:
        raise error.with_context(op=node.op, node=node.name) from error.__cause__
    for key in [key for key in node.attr if not key.startswith("_")]:
        del node.attr[key]
    node.attr["f"].func.name = function.name
    inputs = [dtype.base_dtype.as_datatype_enum for dtype in function.input_types]
    outputs = [dtype.as_datatype_enum for dtype in function.output_types]
    _call(node, inputs, outputs, function.stateful)

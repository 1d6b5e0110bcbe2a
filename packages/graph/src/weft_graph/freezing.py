"""Freezing of graphs: variables are replaced by constants of their current values."""

from __future__ import annotations

__all__ = ["convert_variables_to_constants"]

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from weft_graph import proto
from weft_graph.functions.substitutes import HasKernel
from weft_graph.graph_util import empty_like, extract_sub_graph, source_of
from weft_graph.ir.builder import create
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Node, Output
from weft_graph.ir.op_def import lookup_op, traits_of
from weft_graph.ir.step_graph import StepGraph, copy_nodes
from weft_graph.ir.traits import Role
from weft_graph.messages.graph_def import graph_to_def
from weft_graph.messages.import_graph_def import import_graph_def
from weft_graph.messages.tensor_proto import array_to_proto
from weft_graph.passes.inline import inline_calls
from weft_graph.passes.prune import prune
from weft_graph.passes.specialize import specialize
from weft_tensor import dtypes, errors


def convert_variables_to_constants(
    sess: Any,
    input_graph_def: proto.GraphDef,
    output_node_names: Sequence[str],
    variable_names_whitelist: Iterable[str] | None = None,
    variable_names_blacklist: Iterable[str] | None = None,
) -> proto.GraphDef:
    """Return the part of a graph that some nodes need, with variables replaced by constants.

    Function calls are inlined, because they could receive handles of variables.

    Args:
      sess: a session that has initialized the variables.
      input_graph_def: the graph of the session.
      output_node_names: names of the nodes to keep.
      variable_names_whitelist: the variables to freeze; all by default.
      variable_names_blacklist: variables not to freeze.
    Raises:
      NotFoundError: the graph has no such output.
      FailedPreconditionError: a variable has no value.
      UnimplementedError: a node uses a variable's handle for more than its value.

    Examples:
      >>> x = wf.Variable(3.0, name="x")
      >>> y = wf.multiply(x, 2.0, name="y")
      >>> with wf.Session() as session:
      ...     session.run(x.initializer)
      ...     freeze = wf.graph_util.convert_variables_to_constants
      ...     frozen = freeze(session, session.graph_def, ["y"])
      >>> [node.name for node in frozen.node if node.op == "VariableV2"]
      []
    """
    part = extract_sub_graph(input_graph_def, output_node_names)
    if any(_role(node) is Role.CALL for node in part.node):
        part = _inline_calls(part, output_node_names)
    frozen = _to_freeze(part, variable_names_whitelist, variable_names_blacklist)
    results = sess.run([_reader(sess.graph, node) for node in frozen.values()])
    values = dict(zip(frozen, results, strict=True))
    handles = {name: n.attr["dtype"].type for name, n in frozen.items() if not _is_reference(n)}
    carriers = _carriers(part, frozen)
    handles.update({name: handles[origin] for name, origin in carriers.items()})
    result = empty_like(part)
    for node in part.node:
        if node.name in frozen:
            result.node.append(_constant(node, values[node.name]))
        elif node.name in carriers:
            carrier = result.node.add()
            carrier.CopyFrom(node)
            carrier.attr["T"].type = handles[node.name]
        elif any(source_of(text) in handles for text in node.input):
            result.node.extend(_use_of_constant(node, handles))
        else:
            result.node.append(node)
    return result


def _role(node: proto.NodeDef) -> Role | None:
    return traits_of(node.op).role


def _is_reference(variable: proto.NodeDef) -> bool:
    """Return True if a variable op outputs a reference rather than a handle."""
    return lookup_op(variable.op).outputs[0].is_ref


def _carriers(graph_def: proto.GraphDef, frozen: Mapping[str, proto.NodeDef]) -> dict[str, str]:
    """Return the nodes that pass a frozen variable's handle into a branch or loop."""
    users: dict[str, list[str]] = {}
    for node in graph_def.node:
        traits = traits_of(node.op)
        if (traits.identity or traits.routes) and node.input:
            users.setdefault(source_of(node.input[0]), []).append(node.name)
    variable_of: dict[str, str] = {}
    for variable, definition in frozen.items():
        following = [] if _is_reference(definition) else [variable]
        while following:
            for name in users.get(following.pop(), ()):
                if name not in variable_of:
                    variable_of[name] = variable
                    following.append(name)
    return variable_of


def _inline_calls(graph_def: proto.GraphDef, names: Sequence[str]) -> proto.GraphDef:
    """Return the graph with calls inlined, except those of recursive functions."""
    with Graph().as_default() as graph:
        import_graph_def(graph_def, name="")
    kept_nodes = {name: graph.get_operation_by_name(name) for name in names}
    calls = {name: node for name, node in kept_nodes.items() if node.role is Role.CALL}
    results = [output for node in calls.values() for output in node.outputs]
    step = prune([], results, [node for node in kept_nodes.values() if node.role is not Role.CALL])
    inline_calls(step)
    values = iter(step.fetches)
    with step.graph.as_default():
        for name, node in calls.items():
            node_values = [next(values) for _ in node.outputs]
            if step.graph.find_node(name) is None:
                create("IdentityN", [node_values], None, name)
    without_calls = graph_to_def(step.graph)
    if not any(_role(node) is Role.CALL for node in without_calls.node):
        without_calls.ClearField("library")
    return without_calls


def _to_freeze(
    graph_def: proto.GraphDef, allowed: Iterable[str] | None, refused: Iterable[str] | None
) -> dict[str, proto.NodeDef]:
    left_out = frozenset(refused or ())
    allowed_names = None if allowed is None else frozenset(allowed)
    return {
        node.name: node
        for node in graph_def.node
        if _role(node) is Role.VARIABLE
        and node.name not in left_out
        and (allowed_names is None or node.name in allowed_names)
    }


def _reader(graph: Graph, node: proto.NodeDef) -> str:
    """Return the tensor with the variable's value."""
    if _is_reference(node):
        return f"{node.name}:0"
    for user in graph.get_tensor_by_name(f"{node.name}:0").consumers():
        if user.role is Role.READ:
            return f"{user.name}:0"
    raise errors.NotFoundError(f"the graph has no node that reads the variable {node.name!r}")


def _constant(variable: proto.NodeDef, value: Any) -> proto.NodeDef:
    kind = dtypes.as_dtype(variable.attr["dtype"].type)
    result = proto.NodeDef(name=variable.name, op="Const", device=variable.device)
    result.attr["dtype"].type = kind.as_datatype_enum
    result.attr["value"].tensor.CopyFrom(array_to_proto(value, kind))
    return result


def _use_of_constant(node: proto.NodeDef, handles: Mapping[str, int]) -> list[proto.NodeDef]:
    """Return the replacement of a node that read a variable through its handle."""
    dtype = handles.get(source_of(node.input[0]), 0)
    new = proto.NodeDef(name=node.name, device=node.device, input=node.input)
    if _role(node) is Role.READ:
        new.op = "Identity"
        new.attr["T"].type = dtype
        return [new]
    if node.op != "ResourceGather" or source_of(node.input[0]) not in handles:
        raise errors.UnimplementedError(
            "a frozen variable supports only reads and gathers", op=node.op, node=node.name
        )
    axis = proto.NodeDef(name=f"{node.name}/axis", op="Const", device=node.device)
    new.op = "GatherV2"
    new.input.insert(2, axis.name)
    new.attr["Tparams"].type = dtype
    new.attr["Tindices"].CopyFrom(node.attr["Tindices"])
    new.attr["batch_dims"].i = node.attr["batch_dims"].i
    axis_type = dtypes.int32.as_datatype_enum
    new.attr["Taxis"].type = axis.attr["dtype"].type = axis_type
    axis.attr["value"].tensor.dtype = axis_type
    axis.attr["value"].tensor.tensor_shape.SetInParent()
    axis.attr["value"].tensor.int_val.append(node.attr["batch_dims"].i)
    return [axis, new]


def specialize_graph(
    inputs: Sequence[Output],
    outputs: Sequence[Output],
    values: Mapping[Output, np.ndarray[Any, Any]] | None = None,
    has_kernel: HasKernel | None = None,
) -> tuple[list[Output], list[Output]]:
    """Copy the part of a graph between tensors, with some values fixed.

    Function calls are inlined. Tensors in `values` become constants, and placeholders with a
    default that are not inputs become the default. Branches and dropout masks that become constant
    are removed.

    Args:
      inputs: any tensors; the copy has placeholders for them, with the names of their nodes.
      outputs: the tensors to compute.
      values: arrays of the tensors' dtypes and shapes.
      has_kernel: as in `inline_calls`: ops that may replace functions marked with them.
    Returns: the copies of `inputs` and of `outputs`, in a new graph. Other nodes keep their names
      and source lines.
    Raises: InvalidArgumentError: an output is in a branch that is not taken, or an input in a loop.
    """
    values = values or {}
    step = prune([*inputs, *values], outputs, [])
    inline_calls(step, has_kernel=has_kernel)
    specialize(step, values)
    return _copy_with_placeholders(step, inputs)


def _copy_with_placeholders(
    step: StepGraph, inputs: Sequence[Output]
) -> tuple[list[Output], list[Output]]:
    """Copy a step to a graph with placeholders for its feeds."""
    graph = Graph()
    if any(node.traits.role is Role.CALL for node in step.graph.nodes):
        graph.functions = step.graph.functions
    fed = {feed.node for feed in step.feeds}
    nodes = [node for node in step.live_nodes() if node not in fed]
    for node in nodes:
        graph.reserve_name(node.name)
    copies: dict[Output, Output] = {}
    op_def = lookup_op("Placeholder")
    for feed, source in zip(step.feeds, inputs, strict=True):
        dtype, dims = feed.dtype.base_dtype, feed.dims
        name = graph.unique_name(source.node.name)
        attrs = {"dtype": dtype, "shape": dims}
        copy_node = graph.add_derived(source.node, op_def, name, (), attrs, [dtype], [dims])
        copies[feed] = copy_node.outputs[0]
    for copy_node in copy_nodes(nodes, graph, copies).values():
        _drop_colocation_with_missing(copy_node)
    return [copies[feed] for feed in step.feeds], [copies[fetch] for fetch in step.fetches]


def _drop_colocation_with_missing(node: Node) -> None:
    """Remove colocation requests with nodes that the graph does not have."""
    if "_class" in node.attrs:
        groups = [f"loc:@{name}" for name in node.colocation if node.graph.find_node(name)]
        other_attrs = {name: value for name, value in node.attrs.items() if name != "_class"}
        node.attrs = {**other_attrs, "_class": tuple(groups)} if groups else other_attrs

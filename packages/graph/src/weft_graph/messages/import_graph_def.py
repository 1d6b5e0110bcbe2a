"""Import of a `GraphDef` into the default graph."""

from __future__ import annotations

__all__ = ["import_graph_def"]

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from weft_graph import proto
from weft_graph.ir.builder import convert_to_tensor
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.gc_pause import pause_gc
from weft_graph.ir.graph import Graph
from weft_graph.ir.library import LazyFunction
from weft_graph.ir.node import Node, Output
from weft_graph.messages.allowed_ops import refuse_other_ops
from weft_graph.messages.deprecated_ops import with_current_ops
from weft_graph.messages.function_imports import prepare_graph_def
from weft_graph.messages.graph_def import (
    GRAPH_DEF_VERSION,
    GRAPH_DEF_VERSION_MIN_PRODUCER,
    note_versions,
)
from weft_graph.messages.node_reader import Importer, as_text, tensor_name
from weft_graph.messages.shared_memory import read_after_updates
from weft_tensor import errors


def import_graph_def(
    graph_def: proto.GraphDef,
    input_map: Mapping[str, Any] | None = None,
    return_elements: Sequence[str] | None = None,
    name: str | None = None,
    op_dict: Any = None,
    producer_op_list: proto.OpList | None = None,
    *,
    allowed_ops: Collection[str] | None = None,
) -> list[Node | Output] | None:
    """Add the nodes of a `GraphDef` to the default graph.

    Args:
      graph_def: the message to import; its functions join the graph's library.
      input_map: replacements of inputs: a mapping from "node:port" (":0" may be omitted) to a
        tensor, or from "^node" to an operation for control inputs.
      return_elements: names in `graph_def` of operations ("node") and tensors ("node:port").
      name: scope of the new nodes, "import" by default; "" for none. A suffix makes names unique.
      op_dict: ignored, as in TensorFlow.
      producer_op_list: op declarations of the writer; unknown attributes are dropped if they have
        the default values declared there.
      allowed_ops: the allowed op types, also in functions, such as `wf.safe_ops()` for an untrusted
        graph; all by default.
    Returns: the requested elements, in order; for tensors replaced by `input_map`, the new ones.
    Raises:
      PermissionDeniedError: `allowed_ops` is set, and the graph has other op types or calls
        undefined functions; the message lists them with their nodes.
      NotFoundError: op types are not declared; the message and the list "ops" in the error's
        `details` name them.
      InvalidArgumentError: names are repeated or unknown, inputs or attributes do not match their
        op, shapes contradict each other, or there is a cycle without loop ops. The graph is then
        unchanged.

    Examples:
      >>> with wf.Graph().as_default() as first:
      ...     x = wf.constant(3.0, name="x")
      >>> (again,) = wf.import_graph_def(first.as_graph_def(), return_elements=["x:0"], name="")
      >>> wf.Session().run(again)
      np.float32(3.0)
    """
    del op_dict
    importer = add_graph_def(graph_def, input_map, name, producer_op_list, allowed_ops)
    read_after_updates(importer.new_nodes)
    return None if return_elements is None else [importer.element(e) for e in return_elements]


def add_graph_def(
    graph_def: proto.GraphDef,
    input_map: Mapping[str, Any] | None = None,
    name: str | None = None,
    producer_op_list: proto.OpList | None = None,
    allowed_ops: Collection[str] | None = None,
) -> Importer:
    """Add the nodes of a `GraphDef` to the default graph unchanged.

    The caller must call `read_after_updates` when the contexts of the new nodes are known.

    Args, Raises: as `import_graph_def`.
    Returns: the importer, which maps names in `graph_def` to the new nodes.
    """
    if not isinstance(graph_def, proto.GraphDef):
        raise errors.InvalidTypeError(
            f"graph_def must be a GraphDef of weft_graph.proto, got {type(graph_def).__name__}"
        )
    _check_versions(graph_def.versions)
    graph, original = get_default_graph(), graph_def
    graph_def = with_current_ops(graph_def)
    if allowed_ops is not None:
        refuse_other_ops(graph_def, allowed_ops)
    functions = _functions(graph_def)
    with _scope(graph, name) as scope, graph.functions.add_entries(functions):
        values = _canonicalize_input_map(input_map or {}, scope)
        graph_def = prepare_graph_def(graph_def, graph.functions)
        importer = Importer(graph, graph_def, scope, values, producer_op_list)
        with pause_gc(), _without_outer_scopes(graph), graph.under_construction():
            importer.parse()
            importer.add_nodes()
            if original.HasField("versions"):
                note_versions(graph, original.versions)
    return importer


def _functions(graph_def: proto.GraphDef) -> dict[str, LazyFunction]:
    if not (graph_def.library.function or graph_def.library.gradient):
        return {}
    from weft_graph.messages.function_reader import lazy_functions  # few graphs need it

    return lazy_functions(graph_def.library)


def _check_versions(versions: proto.VersionDef) -> None:
    if versions.producer < GRAPH_DEF_VERSION_MIN_PRODUCER:
        raise errors.InvalidArgumentError(
            f"the graph's producer has version {versions.producer}; at least "
            f"{GRAPH_DEF_VERSION_MIN_PRODUCER} is required"
        )
    if versions.min_consumer > GRAPH_DEF_VERSION:
        raise errors.InvalidArgumentError(
            f"the graph needs a reader of version {versions.min_consumer} or newer; "
            f"this one is of version {GRAPH_DEF_VERSION}"
        )
    if GRAPH_DEF_VERSION in versions.bad_consumers:
        raise errors.InvalidArgumentError(
            f"the graph excludes readers of version {GRAPH_DEF_VERSION}, which is the version of "
            "this reader"
        )


@contextmanager
def _scope(graph: Graph, name: str | None) -> Iterator[str]:
    with graph.name_scope("import" if name is None else name) as scope:
        yield scope


@contextmanager
def _without_outer_scopes(graph: Graph) -> Iterator[None]:
    """Leave the scopes that must not apply to imported nodes: colocation, attributes, gradients."""
    scopes = graph.scopes
    saved_scopes = scopes.colocations, scopes.attrs, scopes.overrides, scopes.devices
    scopes.colocations, scopes.attrs, scopes.overrides = [], {}, {}
    try:
        yield
    finally:
        scopes.colocations, scopes.attrs, scopes.overrides, scopes.devices = saved_scopes


def _canonicalize_input_map(input_map: Mapping[str, Any], scope: str) -> dict[str, Any]:
    """Return `input_map` with canonical keys, and with outputs and nodes as values."""
    if not isinstance(input_map, Mapping):
        raise errors.InvalidTypeError(
            f"input_map must map names to tensors, got {type(input_map).__name__}"
        )
    result: dict[str, Any] = {}
    for key, value in input_map.items():
        text = as_text(key)
        if text.startswith("^"):
            node = getattr(value, "op", value)
            if not isinstance(node, Node):
                raise errors.InvalidTypeError(f"{text!r} must map to an operation, got {value!r}")
            result[text] = node
            continue
        if not isinstance(value, Output) and not scope:
            raise errors.InvalidArgumentError(
                f"input_map has {value!r} for {text!r}: without a name scope, values must be "
                "tensors; convert them with convert_to_tensor"
            )
        result[tensor_name(text)] = convert_to_tensor(value)
    return result

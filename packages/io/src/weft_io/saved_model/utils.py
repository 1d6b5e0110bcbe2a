"""`TensorInfo`: the description of a tensor in a signature."""

from __future__ import annotations

from weft_graph import proto

__all__ = ["build_tensor_info", "get_tensor_from_tensor_info"]

from typing import TYPE_CHECKING, Any

from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.indexed_slices import SparseTensor
from weft_graph.ir.node import Node, Output
from weft_graph.messages.attr_value import shape_to_proto
from weft_graph.variables.base import Variable
from weft_tensor import errors
from weft_tensor.shape import as_dims

if TYPE_CHECKING:
    from weft_graph import proto
    from weft_graph.ir.graph import Graph


def build_tensor_info(tensor: Any) -> proto.TensorInfo:
    """Return a message with the name, type and static shape of a tensor.

    Args:
      tensor: a tensor, a variable, or a SparseTensor (the message then has the names of its three
        parts).
    Returns: a `TensorInfo` message.
    Raises: InvalidTypeError: it is neither.

    Examples:
      >>> info = wf.saved_model.build_tensor_info(wf.placeholder(wf.float32, [None, 3], name="x"))
      >>> info.name, [dim.size for dim in info.tensor_shape.dim]
      ('x:0', [-1, 3])
    """
    if not isinstance(tensor, Output | SparseTensor | Variable):
        raise errors.InvalidTypeError(f"a tensor is required for a TensorInfo, got {tensor!r}")
    message = proto.TensorInfo(dtype=tensor.dtype.base_dtype.as_datatype_enum)
    message.tensor_shape.CopyFrom(shape_to_proto(as_dims(tensor.get_shape())))
    if isinstance(tensor, SparseTensor):
        message.coo_sparse.values_tensor_name = tensor.values.name
        message.coo_sparse.indices_tensor_name = tensor.indices.name
        message.coo_sparse.dense_shape_tensor_name = tensor.dense_shape.name
    else:
        message.name = tensor.name
    return message


def build_tensor_info_from_op(op: Node | Output) -> proto.TensorInfo:
    """Return a message with the name of an operation, without type and shape."""
    return proto.TensorInfo(name=op.name, tensor_shape=proto.TensorShapeProto(unknown_rank=True))


def get_tensor_from_tensor_info(
    tensor_info: Any, graph: Graph | None = None, import_scope: str | None = None
) -> Output | SparseTensor:
    """Return the tensor that a message names.

    Args:
      tensor_info: a `TensorInfo`.
      graph: the graph of the tensor; the default graph by default.
      import_scope: name scope under which its graph was imported.
    Returns: a Tensor or a SparseTensor.
    Raises:
      NotFoundError: the tensor does not exist.
      InvalidArgumentError: the message does not name a tensor.
      UnimplementedError: it describes a composite tensor other than a SparseTensor.

    Examples:
      >>> x = wf.placeholder(wf.float32, [None], name="x")
      >>> wf.saved_model.simple_save(wf.Session(), "./doubled", {"x": x}, {"y": 2.0 * x})
      >>> with wf.Graph().as_default(), wf.Session() as session:
      ...     model = wf.saved_model.load(session, ["serve"], "./doubled")
      ...     signature = model.signature_def["serving_default"]
      ...     x = wf.saved_model.get_tensor_from_tensor_info(signature.inputs["x"])
      ...     y = wf.saved_model.get_tensor_from_tensor_info(signature.outputs["y"])
      ...     session.run(y, {x: [1.0, 2.0]})
      array([2., 4.], dtype=float32)
    """
    selected = graph or get_default_graph()
    kind = _encoding(tensor_info)
    if kind == "name":
        return selected.get_tensor_by_name(_scope_names(tensor_info.name, import_scope))
    if kind == "coo_sparse":
        parts = tensor_info.coo_sparse
        names = (
            parts.indices_tensor_name,
            parts.values_tensor_name,
            parts.dense_shape_tensor_name,
        )
    elif kind == "composite_tensor":
        names = _sparse_names(tensor_info.composite_tensor)
    else:
        raise errors.InvalidArgumentError(f"the TensorInfo does not name a tensor: {tensor_info!r}")
    tensors = [selected.get_tensor_by_name(_scope_names(name, import_scope)) for name in names]
    with selected.as_default():
        return SparseTensor(*tensors)


def _encoding(tensor_info: Any) -> str | None:
    if not isinstance(tensor_info, proto.TensorInfo):
        raise errors.InvalidTypeError(f"a TensorInfo is required, got {tensor_info!r}")
    return tensor_info.WhichOneof("encoding")


def _sparse_names(message: Any) -> tuple[str, str, str]:
    kind = message.type_spec.type_spec_class
    if kind != proto.TypeSpecProto.SPARSE_TENSOR_SPEC or len(message.components) != 3:
        name = proto.TypeSpecProto.TypeSpecClass.Name(kind)
        raise errors.UnimplementedError(
            f"composite tensors of type {name} with {len(message.components)} parts are not "
            "supported; only SparseTensor is"
        )
    indices, values, dense_shape = [part.name for part in message.components]
    return indices, values, dense_shape


def get_element_from_tensor_info(
    tensor_info: Any, graph: Graph | None = None, import_scope: str | None = None
) -> Node | Output:
    """Return the operation or tensor that a message names; see `get_tensor_from_tensor_info`.

    Raises: NotFoundError: it does not exist.
    """
    _encoding(tensor_info)
    selected = graph or get_default_graph()
    return selected.as_graph_element(_scope_names(tensor_info.name, import_scope))


def _scope_names(name: str, scope: str | None) -> str:
    return f"{scope.rstrip('/')}/{name}" if scope else name

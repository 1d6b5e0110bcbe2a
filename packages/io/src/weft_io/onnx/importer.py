"""Import of an ONNX model to nodes of the default graph."""

from __future__ import annotations

__all__ = ["ImportedModel", "import_model"]

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    ValueInfoProto,
)

from weft_graph.ir.builder import cache_user_line, convert_to_tensor
from weft_graph.ir.constant_value import cache_values
from weft_graph.ir.default_graph import get_default_graph, name_scope
from weft_graph.ir.gc_pause import pause_gc
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Output
from weft_graph.ops.array import placeholder
from weft_graph.ops.identity import identity
from weft_graph.variables.base import Variable
from weft_io.onnx.batch_norm_folding import fold_batch_normalizations
from weft_io.onnx.context import ExpansionLimits, ImportContext
from weft_io.onnx.model import read_with_extraction
from weft_io.onnx.model_tables import Survey
from weft_io.onnx.scope import Scope, to_node_name
from weft_io.onnx.shared_weights import join_products
from weft_io.onnx.values import Values, type_and_shape
from weft_tensor import dtypes, errors
from weft_tensor.shape import as_dims, merge_dims

_STATISTICS: Final = {"BatchNormalization": (3, 4)}
"""Inputs that are not trained by gradients."""

_PARAMETERS: Final = frozenset(
    """Clip DequantizeLinear Dropout NonMaxSuppression OneHot Pad QLinearConv QLinearMatMul
    QuantizeLinear Range Resize TopK Upsample""".split()  # noqa: SIM905  # a table to be read
)
"""Ops whose inputs after the first are parameters but not weights."""


_INFERENCE: Final = 7
"""The first version in which the number of outputs determines if a batch normalization trains."""


@dataclass(frozen=True)
class ImportedModel:
    """The result of `import_model`.

    Args:
      graph: the graph with the model.
      inputs: the inputs by ONNX's names: placeholders or the tensors passed instead of them.
      outputs: the outputs by ONNX's names.
      variables: the trainable weights by ONNX's names.
      metadata: metadata of the model: producer, description, version, properties.

    Examples:
      >>> from onnx import helper
      >>> x, y = (helper.make_tensor_value_info(n, 1, [2]) for n in "xy")
      >>> graph = helper.make_graph([helper.make_node("Abs", ["x"], ["y"])], "g", [x], [y])
      >>> model = wf.onnx.import_model(helper.make_model(graph, producer_name="me"))
      >>> list(model.inputs), list(model.outputs), model.metadata
      (['x'], ['y'], {'producer_name': 'me'})
    """

    graph: Graph
    inputs: dict[str, Output]
    outputs: dict[str, Output]
    variables: dict[str, Variable] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)


def import_model(
    model: Any,
    inputs: Mapping[str, Any] | None = None,
    trainable: bool = False,
    name: str | None = None,
    shapes: Mapping[str, Sequence[int | None]] | None = None,
) -> ImportedModel:
    """Add an ONNX model to the default graph.

    Args:
      model: path, bytes or ModelProto. External data must be in the file's folder.
      inputs: tensors that replace inputs, by ONNX's names; the other inputs become placeholders.
      trainable: create variables instead of constants for floating-point weights of rank 1 or more,
        including weights that some tools store as Constant nodes.
      name: name of the scope of its nodes.
      shapes: shapes of inputs by ONNX's names, if the model does not fix them. Values that depend
        only on shapes are computed at import.
    Raises:
      NotFoundError: the file does not exist.
      InvalidArgumentError: the file is damaged, an op has invalid inputs, or a shape does not match
        its input.
      UnimplementedError: weft does not support some nodes; the message lists all of them, with
        reasons and remedies. Nodes that depend on them are not checked.

    Examples:
      >>> from onnx import helper
      >>> x, y = (helper.make_tensor_value_info(n, 1, [2]) for n in "xy")
      >>> graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
      >>> model = wf.onnx.import_model(helper.make_model(graph))
      >>> with wf.Session() as session:
      ...     session.run(model.outputs["y"], {model.inputs["x"]: [-1.0, 2.0]})
      array([0., 2.], dtype=float32)
    """
    message, folder, large_weights = read_with_extraction(model)
    with pause_gc():
        survey = Survey(message)
        scope = name_scope(name or to_node_name(message.graph.name) or "onnx")
        with cache_values(), cache_user_line(), scope:
            values = Values(folder, large_weights)
            if survey.unknown_ops:
                _refuse(message, survey, values, inputs or {}, shapes or {})
            return _add_model(message, survey, values, inputs or {}, trainable, shapes or {})


def _refuse(
    model: ModelProto,
    survey: Survey,
    values: Values,
    replacements: Mapping[str, Any],
    shapes: Mapping[str, Sequence[int | None]],
) -> None:
    """Raise UnimplementedError for a model with unknown ops, and list its other refused nodes.

    The rest of the model is added to a graph that is not kept.
    """
    arrays = {name: item for name, item in replacements.items() if not isinstance(item, Output)}
    try:
        with Graph().as_default():
            _add_model(model, survey, values, arrays, False, shapes)
    except errors.UnimplementedError:
        raise
    except errors.OpError as error:
        limits = ExpansionLimits(survey, model.graph.node)
        context = ImportContext(values, survey, limits, frozenset())
        try:
            context.raise_refusals()
        except errors.UnimplementedError as refusal:
            raise refusal from error


def _add_model(
    model: ModelProto,
    survey: Survey,
    values: Values,
    replacements: Mapping[str, Any],
    trainable: bool,
    shapes: Mapping[str, Sequence[int | None]],
) -> ImportedModel:
    """Add the nodes of a model to the default graph.

    Args:
      replacements: tensors that replace inputs.
    """
    graph = model.graph
    frozen = _statistics(survey) if trainable else frozenset()
    context = ImportContext(values, survey, ExpansionLimits(survey, graph.node), frozen)
    scope = Scope(context, None, survey.versions or {"": 1})
    weights = {item.name for item in graph.initializer}
    weights |= {item.values.name for item in graph.sparse_initializer}
    infos = [item for item in graph.input if item.name not in weights]
    _check_inputs(graph, infos, {*replacements, *shapes} - weights)
    scope.add_weights(graph)
    tensors = _tensors(graph, survey, replacements)
    if trainable:
        _add_variables(graph, scope, context, tensors)
    elif _is_fusible(survey):
        fold_batch_normalizations(graph, context, tensors)
        join_products(graph.node, context, tensors)
    inputs = {
        info.name: _input(info, replacements.get(info.name), shapes.get(info.name), context)
        for info in infos
    }
    inputs.update({k: convert_to_tensor(v) for k, v in replacements.items() if k in weights})
    scope.known.update(inputs)
    scope.add_arrays(context.rewrites.weights)
    scope.add_main_nodes(context.rewrites.apply(graph.node))
    context.raise_refusals()
    outputs = {}
    for item in graph.output:
        value = scope.find(item.name, "the model's output")
        outputs[item.name] = identity(value, name=to_node_name(item.name) or None)
    return ImportedModel(get_default_graph(), inputs, outputs, context.variables, _metadata(model))


def _add_variables(
    graph: GraphProto,
    scope: Scope,
    context: ImportContext,
    tensors: Mapping[str, TensorProto],
) -> None:
    """Create variables for weights, including Constant nodes that are weights."""
    parameters = _parameters(context.survey)
    scope.add_variables({k: item for k, item in tensors.items() if k not in parameters})
    for index in context.survey.positions["Constant"]:
        node = graph.node[index]
        if _is_tensor(node) and node.output[0] in context.variables:
            context.rewrites.nodes[index] = ()


def _tensors(
    graph: GraphProto, survey: Survey, replacements: Mapping[str, Any]
) -> dict[str, TensorProto]:
    """Return the weights that are not replaced, and Constant nodes that may be weights."""
    tensors = {item.name: item for item in graph.initializer if item.name not in replacements}
    constants = [graph.node[index] for index in survey.positions["Constant"]]
    tensors.update({node.output[0]: node.attribute[0].t for node in constants if _is_tensor(node)})
    return tensors


def _is_tensor(node: NodeProto) -> bool:
    """Return True for a Constant node with a dense tensor."""
    names = [item.name for item in node.attribute if item.type == AttributeProto.TENSOR]
    return names == ["value"] and len(node.output) == 1


def _is_fusible(survey: Survey) -> bool:
    """Return True if the model's ops have the semantics that fusion relies on."""
    overrides_standard_ops = any(not domain for domain, _ in survey.functions)
    return not overrides_standard_ops and survey.versions.get("", 1) >= _INFERENCE


def _check_inputs(graph: GraphProto, infos: Sequence[ValueInfoProto], replaced: set[str]) -> None:
    """Raise InvalidArgumentError if input names are repeated, or an unknown name is replaced."""
    names = [item.name for item in infos]
    if len(set(names)) < len(names):
        raise errors.InvalidArgumentError(
            f"the model has several inputs with the same name: {names}"
        )
    if unknown := sorted(replaced - {item.name for item in graph.input}):
        raise errors.InvalidArgumentError(f"the model has inputs {names}, got {unknown}")


def _input(
    info: ValueInfoProto,
    replacement: Any,
    shape: Sequence[int | None] | None,
    context: ImportContext,
) -> Output:
    try:
        dtype, sizes = type_and_shape(info.type)
        dims = merge_dims(None if sizes is None else tuple(sizes), as_dims(shape))
    except errors.OpError as error:
        raise type(error)(f"the model's input {info.name!r}: {error.message}") from error
    if replacement is not None:
        value = convert_to_tensor(replacement, dtype=dtype)
    else:
        value = placeholder(dtype, dims, name=to_node_name(info.name) or None)
    if dtype is dtypes.variant:
        context.kinds[value] = info.type
    return value


def _parameters(survey: Survey) -> set[str]:
    """Return the names of weights that must remain constants."""
    return {name for op in _PARAMETERS for node in survey.nodes[op] for name in node.input[1:]}


def _statistics(survey: Survey) -> frozenset[str]:
    """Return the names of weights that gradients do not change."""
    return frozenset(
        node.input[index]
        for op, indices in _STATISTICS.items()
        for node in survey.nodes[op]
        for index in indices
        if index < len(node.input)
    )


def _metadata(model: ModelProto) -> dict[str, str]:
    result = {item.key: item.value for item in model.metadata_props}
    for key in ("producer_name", "producer_version", "domain", "doc_string"):
        if value := getattr(model, key):
            result.setdefault(key, value)
    if model.model_version:
        result.setdefault("model_version", str(model.model_version))
    return result

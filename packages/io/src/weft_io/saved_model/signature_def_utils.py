"""`SignatureDef`: the inputs and outputs of a method of a model."""

from __future__ import annotations

from weft_graph import proto

__all__ = [
    "build_signature_def",
    "classification_signature_def",
    "is_valid_signature",
    "predict_signature_def",
    "regression_signature_def",
]

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from weft_graph.ir.node import Node, Output
from weft_graph.ir.traits import Role
from weft_graph.messages.tensor_proto import make_tensor_proto
from weft_io.saved_model import signature_constants as names
from weft_io.saved_model.utils import (
    build_tensor_info,
    build_tensor_info_from_op,
    get_element_from_tensor_info,
)
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType

if TYPE_CHECKING:
    from weft_graph import proto


def build_signature_def(
    inputs: Mapping[str, Any] | None = None,
    outputs: Mapping[str, Any] | None = None,
    method_name: str | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> proto.SignatureDef:
    """Return a signature, which names the inputs and outputs of a saved model.

    Args:
      inputs, outputs: `TensorInfo`s by the names that callers use.
      method_name: usually one of `signature_constants`.
      defaults: values of inputs that callers may omit: arrays, numbers, or constants of a graph.
    Returns: a `SignatureDef` message.
    Raises: InvalidArgumentError: a default is a tensor without a constant value; TypeError: an
      input or output is not a `TensorInfo`.

    Examples:
      >>> x = wf.placeholder(wf.float32, [None], name="x")
      >>> signature = wf.saved_model.build_signature_def(
      ...     inputs={"x": wf.saved_model.build_tensor_info(x)},
      ...     outputs={"y": wf.saved_model.build_tensor_info(2.0 * x)},
      ...     method_name=wf.saved_model.signature_constants.PREDICT_METHOD_NAME,
      ... )
      >>> signature.inputs["x"].name, signature.method_name
      ('x:0', 'tensorflow/serving/predict')
    """
    message = proto.SignatureDef(method_name=method_name or "")
    for name, info in (inputs or {}).items():
        message.inputs[name].CopyFrom(info)
    for name, info in (outputs or {}).items():
        message.outputs[name].CopyFrom(info)
    for name, value in (defaults or {}).items():
        message.defaults[name].CopyFrom(make_tensor_proto(_constant(name, value)))
    return message


def _constant(name: str, value: Any) -> Any:
    if not isinstance(value, Output):
        return value
    if value.node.role is not Role.CONSTANT:
        raise errors.InvalidArgumentError(
            f"the default of {name!r} must be a constant, got {value!r} of a {value.node.type}"
        )
    return make_tensor_proto(value.node.attrs["value"], value.dtype)


def regression_signature_def(examples: Any, predictions: Any) -> proto.SignatureDef:
    """Return the signature of a regression.

    Args:
      examples: string: serialized `Example`s.
      predictions: float32.
    Returns: a `SignatureDef` message, with the input "inputs" and the output "outputs".
    Raises: InvalidArgumentError: an argument is missing, or of another type; InvalidTypeError: an
      argument is not a tensor.

    Examples:
      >>> examples = wf.placeholder(wf.string, [None])
      >>> row = wf.parse_example(examples, {"x": wf.FixedLenFeature([], wf.float32)})
      >>> signature = wf.saved_model.regression_signature_def(examples, 2.0 * row["x"])
      >>> signature.method_name
      'tensorflow/serving/regress'
    """
    return build_signature_def(
        {names.REGRESS_INPUTS: _info(examples, dtypes.string, "examples")},
        {names.REGRESS_OUTPUTS: _info(predictions, dtypes.float32, "predictions")},
        names.REGRESS_METHOD_NAME,
    )


def classification_signature_def(examples: Any, classes: Any, scores: Any) -> proto.SignatureDef:
    """Return the signature of a classification.

    Args:
      examples: string: serialized `Example`s.
      classes: string: names of the classes, or None.
      scores: float32, or None if there are classes.
    Returns: a `SignatureDef` message, with the input "inputs" and the outputs "classes" and
      "scores".
    Raises: InvalidArgumentError: an argument is missing, or of another type; InvalidTypeError: an
      argument is not a tensor.

    Examples:
      >>> examples = wf.placeholder(wf.string, [None])
      >>> row = wf.parse_example(examples, {"x": wf.FixedLenFeature([2], wf.float32)})
      >>> scores = wf.nn.softmax(row["x"])
      >>> signature = wf.saved_model.classification_signature_def(examples, None, scores)
      >>> list(signature.outputs)
      ['scores']
    """
    if classes is None and scores is None:
        raise errors.InvalidArgumentError("classes or scores are required")
    outputs = {}
    if classes is not None:
        outputs[names.CLASSIFY_OUTPUT_CLASSES] = _info(classes, dtypes.string, "classes")
    if scores is not None:
        outputs[names.CLASSIFY_OUTPUT_SCORES] = _info(scores, dtypes.float32, "scores")
    return build_signature_def(
        {names.CLASSIFY_INPUTS: _info(examples, dtypes.string, "examples")},
        outputs,
        names.CLASSIFY_METHOD_NAME,
    )


def predict_signature_def(
    inputs: Mapping[str, Any], outputs: Mapping[str, Any]
) -> proto.SignatureDef:
    """Return the signature of a prediction, which can be any computation.

    Args:
      inputs, outputs: tensors by the names that callers use; at least one of each.
    Returns: a `SignatureDef` message.
    Raises: InvalidArgumentError: inputs or outputs are empty; InvalidTypeError: one is not a
      tensor.

    Examples:
      >>> x = wf.placeholder(wf.float32, [None], name="x")
      >>> signature = wf.saved_model.predict_signature_def({"x": x}, {"y": 2.0 * x})
      >>> builder = wf.saved_model.builder.SavedModelBuilder("./doubling")
      >>> with wf.Session() as session:
      ...     builder.add_meta_graph_and_variables(session, ["serve"], {"double": signature})
      >>> path = builder.save()
    """
    for label, tensors in (("inputs", inputs), ("outputs", outputs)):
        if not tensors:
            raise errors.InvalidArgumentError(f"{label} are required, got {tensors!r}")
    return build_signature_def(
        {name: build_tensor_info(tensor) for name, tensor in inputs.items()},
        {name: build_tensor_info(tensor) for name, tensor in outputs.items()},
        names.PREDICT_METHOD_NAME,
    )


def _info(tensor: Any, dtype: DType, label: str) -> proto.TensorInfo:
    if tensor is None:
        raise errors.InvalidArgumentError(f"{label} are required, got None")
    info = build_tensor_info(tensor)
    if info.dtype != dtype.as_datatype_enum:
        raise errors.InvalidArgumentError(f"{label} must be {dtype.name}, got {tensor!r}")
    return info


# --------------------------------------------------------------------------- checking

_TYPES = {
    names.REGRESS_METHOD_NAME: (
        {names.REGRESS_INPUTS: dtypes.string},
        {names.REGRESS_OUTPUTS: dtypes.float32},
    ),
    names.CLASSIFY_METHOD_NAME: (
        {names.CLASSIFY_INPUTS: dtypes.string},
        {
            names.CLASSIFY_OUTPUT_CLASSES: dtypes.string,
            names.CLASSIFY_OUTPUT_SCORES: dtypes.float32,
        },
    ),
}


def is_valid_signature(signature_def: Any) -> bool:
    """Return True if a signature is a valid prediction, regression or classification.

    Args:
      signature_def: a `SignatureDef` message; None is not valid.
    Returns: False also if there are no inputs or no outputs.

    Examples:
      >>> x = wf.placeholder(wf.float32, [None])
      >>> signature = wf.saved_model.predict_signature_def({"x": x}, {"y": 2.0 * x})
      >>> wf.saved_model.is_valid_signature(signature)
      True
      >>> signature.method_name = "tensorflow/serving/regress"
      >>> wf.saved_model.is_valid_signature(signature)
      False
    """
    if signature_def is None or not signature_def.inputs or not signature_def.outputs:
        return False
    if signature_def.method_name == names.PREDICT_METHOD_NAME:
        return True
    types = _TYPES.get(signature_def.method_name)
    return types is not None and all(
        name in expected and info.dtype == expected[name].as_datatype_enum
        for infos, expected in zip(
            (signature_def.inputs, signature_def.outputs), types, strict=True
        )
        for name, info in infos.items()
    )


# --------------------------------------------------------------------------- operations


def op_signature_def(op: Node | Output, key: str) -> proto.SignatureDef:
    """Return a signature that refers to an operation as its output `key`."""
    return build_signature_def(outputs={key: build_tensor_info_from_op(op)})


def load_op_from_signature_def(
    signature_def: Any, key: str, import_scope: str | None = None
) -> Node | Output:
    """Return the operation in the default graph that a signature of `op_signature_def` names.

    Raises: NotFoundError: it does not exist.
    """
    if key not in signature_def.outputs:
        raise errors.NotFoundError(f"the signature has no output {key!r}")
    return get_element_from_tensor_info(signature_def.outputs[key], import_scope=import_scope)

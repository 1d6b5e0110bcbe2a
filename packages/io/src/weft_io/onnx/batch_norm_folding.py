"""Folding of batch normalizations in inference mode into the weights of convolutions.

In inference mode, a batch normalization is a factor and an offset for each channel. These are
folded into the weights and the bias of the preceding convolution, which saves two passes over the
image in each step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto

from weft_io.onnx.context import ImportContext
from weft_io.onnx.model import normalize_domain
from weft_io.onnx.values import Values

Array = np.ndarray[Any, Any]

_TYPES: Final = (TensorProto.FLOAT, TensorProto.DOUBLE)


def fold_batch_normalizations(
    graph: GraphProto, context: ImportContext, fixed: Mapping[str, TensorProto]
) -> None:
    """Fold batch normalizations into the convolutions before them, as rewrites of the context.

    Args:
      fixed: arrays of weights and constants that never change, by name.
    """
    survey, rewrites = context.survey, context.rewrites
    inputs = {item.name for item in graph.input}
    for index in survey.positions["BatchNormalization"]:
        normalization = graph.node[index]
        conv_index = survey.producers.get(normalization.input[0]) if normalization.input else None
        conv = None if conv_index is None else graph.node[conv_index]
        if conv_index is None or conv is None or not _fits(conv, normalization, fixed):
            continue
        names = [f"{normalization.output[0]}/{part}" for part in ("weights", "bias")]
        is_taken = any(n in survey.producers or n in fixed or n in inputs for n in names)
        if is_taken or survey.num_uses[conv.output[0]] != 1:
            continue
        weights = _weights(conv, normalization, context.values, fixed)
        if weights is None:
            continue
        fused = NodeProto()
        fused.CopyFrom(conv)
        del fused.input[:], fused.output[:]
        fused.input.extend([conv.input[0], *names])
        fused.output.append(normalization.output[0])
        rewrites.weights.update(zip(names, weights, strict=True))
        rewrites.nodes[conv_index] = ()
        rewrites.nodes[index] = (fused,)


def _fits(conv: NodeProto, normalization: NodeProto, fixed: Mapping[str, TensorProto]) -> bool:
    """Return True for a constant batch normalization after a suitable convolution."""
    if (conv.op_type, normalization.op_type) != ("Conv", "BatchNormalization"):
        return False
    if (
        normalize_domain(conv.domain)
        or normalize_domain(normalization.domain)
        or len(normalization.input) != 5
    ):
        return False
    if len(conv.input) not in (2, 3) or len(conv.output) != 1:
        return False
    if not normalization.output or any(normalization.output[1:]):
        return False
    if not all(_is_plain(item) for item in normalization.attribute):
        return False
    weights = [fixed.get(name) for name in [*conv.input[1:], *normalization.input[1:]]]
    kinds = {None if item is None else item.data_type for item in weights}
    return len(kinds) == 1 and not kinds.isdisjoint(_TYPES)


def _is_plain(attribute: AttributeProto) -> bool:
    """Return True if an attribute of a batch normalization has the value of inference mode."""
    if attribute.ref_attr_name:
        return False
    if attribute.type == AttributeProto.FLOAT:
        return attribute.name in ("epsilon", "momentum")
    inference_value = {"training_mode": 0, "spatial": 1}.get(attribute.name)
    return attribute.type == AttributeProto.INT and attribute.i == inference_value


def _weights(
    conv: NodeProto, normalization: NodeProto, values: Values, fixed: Mapping[str, TensorProto]
) -> tuple[Array, Array] | None:
    """Return the folded weights and bias; None if their shapes do not match."""
    w, *vectors = (
        values.array(fixed[name]) for name in [*conv.input[1:], *normalization.input[1:]]
    )
    if any(item.shape != w.shape[:1] for item in vectors):
        return None
    scale, offset, mean, variance = vectors[-4:]
    bias = vectors[0] if len(vectors) > 4 else w.dtype.type(0)
    epsilon = next((item.f for item in normalization.attribute if item.name == "epsilon"), 1e-5)
    with np.errstate(all="ignore"):  # a division by 0 is infinite, as in a step
        factor = scale / np.sqrt(variance + w.dtype.type(epsilon))
        moved = offset + (bias - mean) * factor
    return w * factor.reshape(-1, *[1] * (w.ndim - 1)), moved

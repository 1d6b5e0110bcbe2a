"""Conversion of graphs from before TensorFlow 1.15: deprecated ops become current ones.

Nodes keep their names and the meaning of their outputs. Before TensorFlow 1.0, handles of queues,
readers, stacks and TensorArrays were references to strings; now they are resources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from weft_graph import proto
from weft_graph.ir.op_def import lookup_op
from weft_graph.messages.tensor_proto import make_tensor_proto
from weft_tensor import errors

Rule = Callable[["proto.NodeDef", "_NewNodes"], None]


def with_current_ops(graph_def: proto.GraphDef) -> proto.GraphDef:
    """Convert the deprecated ops of a message.

    Returns: `graph_def` itself if there are none, else a copy.
    """
    rules = {op: _rule_of(op) for op in {node.op for node in graph_def.node}}
    if graph_def.versions.producer <= _SHAPELESS and "Placeholder" in rules:
        rules["Placeholder"] = _drop_shape
    if not any(rules.values()):
        return graph_def
    result = proto.GraphDef()
    result.CopyFrom(graph_def)
    new_nodes = _NewNodes(node.name for node in graph_def.node)
    handles = {node.name for node in graph_def.node if _current_op_name(node.op) in _HANDLES}
    for node in result.node:
        rule = rules[node.op]
        if rule is not None:
            node.attr.pop("_output_shapes", None)  # which there may be more of
            rule(node, new_nodes)
    _retype(result, handles)
    result.node.extend(new_nodes.nodes)
    return result


_SHAPELESS: Final = 21
"""The last graph version in which a scalar shape of a placeholder means an unknown shape."""


def _drop_shape(node: proto.NodeDef, new_nodes: _NewNodes) -> None:
    if not node.attr["shape"].shape.dim:
        del node.attr["shape"]


def _rule_of(op: str) -> Rule | None:
    rule = _RULES.get(op)
    if rule is None and op.startswith("Experimental"):  # as datasets were called in 1.13 and 1.14
        rule = _rename_rule(op.removeprefix("Experimental"))
    return None if rule is None or _is_declared(op) else rule


def _is_declared(op: str) -> bool:
    """Return True if a package has declared an op with a deprecated name."""
    try:
        lookup_op(op)
    except errors.NotFoundError:
        return False
    return True


# --------------------------------------------------------------------------- parts of rules


class _NewNodes:
    """The nodes that a rule adds.

    Args:
      names: names already in use.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.nodes: list[proto.NodeDef] = []
        self._names = set(names)

    def add(self, node_def: proto.NodeDef, op: str, inputs: list[str], **attrs: Any) -> str:
        """Add a node on the same device; return its name."""
        name = f"{node_def.name}/{op}"
        while name in self._names:
            name += "_"
        self._names.add(name)
        node = proto.NodeDef(name=name, op=op, device=node_def.device, input=inputs)
        _set(node, attrs)
        self.nodes.append(node)
        return name

    def constant(self, node_def: proto.NodeDef, value: Any, dtype: Any = None) -> str:
        """Add a constant; `dtype` is a number of `DataType`, by default that of the value."""
        tensor = make_tensor_proto(value, dtype)
        name = self.add(node_def, "Const", [], dtype=tensor.dtype)
        self.nodes[-1].attr["value"].tensor.CopyFrom(tensor)
        return name


def _set(node: proto.NodeDef, attrs: Mapping[str, Any]) -> None:
    """Set attributes: messages, numbers of types, or strings."""
    for key, value in attrs.items():
        if isinstance(value, proto.AttrValue):
            node.attr[key].CopyFrom(value)
        elif isinstance(value, bytes):
            node.attr[key].s = value
        else:
            node.attr[key].type = value


def _data(node: proto.NodeDef, count: int | None = None) -> list[str]:
    """Return the inputs without control inputs.

    Raises: InvalidArgumentError: there are more or fewer than `count`.
    """
    data = [text for text in node.input if not text.startswith("^")]
    if count is not None and len(data) != count:
        raise errors.InvalidArgumentError(
            f"{node.op} requires {count} inputs, got {len(data)}", op=node.op, node=node.name
        )
    return data


def _replace_node(
    node: proto.NodeDef, op: str, inputs: list[str], keep: Iterable[str] = (), **attrs: Any
) -> None:
    """Change the op of a node, keeping some of its attributes and adding new ones."""
    controls = [text for text in node.input if text.startswith("^")]
    new_attrs = {key: _copy_attr(node.attr[key]) for key in keep if key in node.attr}
    new_attrs |= {key: _copy_attr(value) for key, value in node.attr.items() if key.startswith("_")}
    node.op = op
    node.input[:] = [*inputs, *controls]
    node.ClearField("attr")
    _set(node, new_attrs | attrs)


def _copy_attr(value: proto.AttrValue) -> proto.AttrValue:
    copy = proto.AttrValue()
    copy.CopyFrom(value)
    return copy


def _rename_rule(new: str) -> Rule:
    def rule(node: proto.NodeDef, new_nodes: _NewNodes) -> None:
        node.op = new

    return rule


def _append_input(new: str, value: bool | bytes) -> Rule:
    """Return a rule for an op that now has one more input."""

    def rule(node: proto.NodeDef, new_nodes: _NewNodes) -> None:
        last = new_nodes.constant(node, value)
        _replace_node(node, new, [*_data(node), last], list(node.attr))

    return rule


# ------------------------------------------------------------------------------------ rules


def _batch_norm(node: proto.NodeDef, new_nodes: _NewNodes) -> None:
    """Convert to t * scale + (beta - m * scale), where all except t is usually constant."""
    t, mean, variance, beta, gamma = _data(node, 5)
    kind = _copy_attr(node.attr["T"])
    epsilon = new_nodes.constant(node, node.attr["variance_epsilon"].f, kind.type)
    scale = new_nodes.add(node, "AddV2", [variance, epsilon], T=kind)
    scale = new_nodes.add(node, "Rsqrt", [scale], T=kind)
    if node.attr["scale_after_normalization"].b:
        scale = new_nodes.add(node, "Mul", [scale, gamma], T=kind)
    shift = new_nodes.add(node, "Mul", [mean, scale], T=kind)
    shift = new_nodes.add(node, "Sub", [beta, shift], T=kind)
    scaled = new_nodes.add(node, "Mul", [t, scale], T=kind)
    _replace_node(node, "AddV2", [scaled, shift], T=kind)


def _rename_blocks(new: str, sizes: str) -> Rule:
    def rule(node: proto.NodeDef, new_nodes: _NewNodes) -> None:
        value, margins = _data(node, 2)
        block = new_nodes.constant(node, [node.attr["block_size"].i] * 2, proto.DT_INT32)
        kind = node.attr[sizes].type or proto.DT_INT32
        attrs = {"Tpaddings" if new.startswith("Space") else "Tcrops": kind}
        _replace_node(
            node, new, [value, block, margins], ["T"], Tblock_shape=proto.DT_INT32, **attrs
        )

    return rule


def _use_shape(new: str, position: int) -> Rule:
    """Return a rule for an op that now uses the shape of one of its inputs."""

    def rule(node: proto.NodeDef, new_nodes: _NewNodes) -> None:
        inputs = _data(node, 3)
        kind = _copy_attr(node.attr["T"])
        inputs[position] = new_nodes.add(node, "Shape", [inputs[position]], T=kind)
        _replace_node(node, new, inputs, ["T", "strides", "padding", "dilations"])

    return rule


def _replace_padded_conv(node: proto.NodeDef, new_nodes: _NewNodes) -> None:
    *image, paddings, kernel = _data(node, 4 if "Resize" in node.op else 3)
    kind = _copy_attr(node.attr["T"])
    if len(image) > 1:  # it is resized to a size
        align = proto.AttrValue(b=node.attr["resize_align_corners"].b)
        resized = new_nodes.add(node, "ResizeBilinear", image, T=kind, align_corners=align)
        image = [resized]
        if kind.type != proto.DT_FLOAT:
            image = [new_nodes.add(node, "Cast", image, SrcT=proto.DT_FLOAT, DstT=kind)]
    mode = proto.AttrValue(s=node.attr["mode"].s)
    padded = new_nodes.add(
        node, "MirrorPad", [*image, paddings], T=kind, Tpaddings=proto.DT_INT32, mode=mode
    )
    _replace_node(node, "Conv2D", [padded, kernel], ["T", "strides", "padding"])


def _replace_quantized_reshape(node: proto.NodeDef, new_nodes: _NewNodes) -> None:
    value, shape, low, high = _data(node, 4)
    kind, of_shape = _copy_attr(node.attr["T"]), node.attr["Tshape"].type or proto.DT_INT32
    reshaped = new_nodes.add(node, "Reshape", [value, shape], T=kind, Tshape=of_shape)
    kinds = proto.AttrValue()
    kinds.list.type.extend([kind.type, proto.DT_FLOAT, proto.DT_FLOAT])
    _replace_node(node, "IdentityN", [reshaped, low, high], T=kinds)


def _update_rows(new: str) -> Rule:
    """Return a rule for in-place updates of rows, whose indices wrap around."""

    def rule(node: proto.NodeDef, new_nodes: _NewNodes) -> None:
        value, rows, updates = _data(node, 3)
        first, last = (new_nodes.constant(node, [n], proto.DT_INT32) for n in (0, -1))
        kinds = {"T": proto.DT_INT32, "Tdim": proto.DT_INT32}
        shape = new_nodes.add(node, "Shape", [value], T=_copy_attr(node.attr["T"]))
        count = new_nodes.add(
            node, "GatherV2", [shape, first, new_nodes.constant(node, 0, proto.DT_INT32)],
            Tparams=proto.DT_INT32, Tindices=proto.DT_INT32, Taxis=proto.DT_INT32,
        )  # fmt: skip
        rows = new_nodes.add(node, "FloorMod", [rows, count], T=proto.DT_INT32)
        rows = new_nodes.add(node, "ExpandDims", [rows, last], **kinds)
        _replace_node(node, new, [value, rows, updates], ["T"], Tindices=proto.DT_INT32)

    return rule


def _empty(node: proto.NodeDef, new_nodes: _NewNodes) -> None:
    kind = node.attr["dtype"].type
    zero = new_nodes.constant(node, {proto.DT_STRING: b"", proto.DT_BOOL: False}.get(kind, 0), kind)
    _replace_node(node, "Fill", [*_data(node), zero], T=kind, index_type=proto.DT_INT32)


def _parallel_concat(node: proto.NodeDef, new_nodes: _NewNodes) -> None:
    axis = new_nodes.constant(node, 0, proto.DT_INT32)
    _replace_node(node, "ConcatV2", [*_data(node), axis], ["N", "T"], Tidx=proto.DT_INT32)


def _sparse_matmul(node: proto.NodeDef, new_nodes: _NewNodes) -> None:
    """Convert to MatMul, which does not skip zeros."""
    inputs = _data(node, 2)
    for i, key in enumerate(("Ta", "Tb")):
        kind = node.attr[key].type or proto.DT_FLOAT
        if kind != proto.DT_FLOAT:
            inputs[i] = new_nodes.add(node, "Cast", [inputs[i]], SrcT=kind, DstT=proto.DT_FLOAT)
    _replace_node(node, "MatMul", inputs, ["transpose_a", "transpose_b"], T=proto.DT_FLOAT)


def _stack(node: proto.NodeDef, new_nodes: _NewNodes) -> None:
    any_size = new_nodes.constant(node, -1, proto.DT_INT32)
    _replace_node(node, "StackV2", [any_size, *_data(node)], ["elem_type", "stack_name"])


_BATCHED: Final = (
    "Cholesky", "FFT", "FFT2D", "FFT3D", "IFFT", "IFFT2D", "IFFT3D", "SelfAdjointEigV2", "Svd",
)  # fmt: skip
_BATCHED_MATRICES: Final = (
    "BandPart", "Determinant", "Diag", "DiagPart", "Inverse", "SetDiag", "Solve", "SolveLs",
    "TriangularSolve",
)  # fmt: skip
_QUEUES: Final = ["FIFOQueue", "PaddingFIFOQueue", "PriorityQueue", "RandomShuffleQueue"]
_QUEUE_OPS: Final = (
    "Close", "Dequeue", "DequeueMany", "DequeueUpTo", "Enqueue", "EnqueueMany", "IsClosed",
    "Size",
)  # fmt: skip
_READERS: Final = ["FixedLengthRecord", "Identity", "TFRecord", "TextLine", "WholeFile"]
_READER_OPS: Final = (
    "NumRecordsProduced", "NumWorkUnitsCompleted", "Read", "ReadUpTo", "Reset", "RestoreState",
    "SerializeState",
)  # fmt: skip
_ARRAY_OPS: Final = (
    "Close", "Concat", "Gather", "Grad", "Read", "Scatter", "Size", "Split", "Write",
)  # fmt: skip
_RENAMED_OPS: Final[dict[str, str]] = {
    "AudioSummary": "AudioSummaryV2",
    "BiasAddV1": "BiasAdd",
    "DeepCopy": "Identity",
    "Iterator": "IteratorV2",
    "IteratorFromStringHandle": "IteratorFromStringHandleV2",
    "TensorArray": "TensorArrayV3",
    "TensorArrayV2": "TensorArrayV3",
    **{f"Batch{op}": op for op in _BATCHED},
    **{f"BatchMatrix{op}": f"Matrix{op}" for op in _BATCHED_MATRICES},
    **{op: f"{op}V2" for op in _QUEUES},
    **{f"Queue{op}": f"Queue{op}V2" for op in _QUEUE_OPS},
    **{f"{op}Reader": f"{op}ReaderV2" for op in _READERS},
    **{f"Reader{op}": f"Reader{op}V2" for op in _READER_OPS},
    **{f"Stack{op}": f"Stack{op}V2" for op in ("Close", "Pop", "Push")},
    **{f"TensorArray{op}{v}": f"TensorArray{op}V3" for op in _ARRAY_OPS for v in ("", "V2")},
}
_RULES: Final[dict[str, Rule]] = {
    **{op: _rename_rule(new) for op, new in _RENAMED_OPS.items()},
    "BatchDataset": _append_input("BatchDatasetV2", False),
    "BatchNormWithGlobalNormalization": _batch_norm,
    "BatchToSpace": _rename_blocks("BatchToSpaceND", "Tidx"),
    "Conv3DBackpropFilter": _use_shape("Conv3DBackpropFilterV2", 1),
    "Conv3DBackpropInput": _use_shape("Conv3DBackpropInputV2", 0),
    "Empty": _empty,
    "FixedLengthRecordDataset": _append_input("FixedLengthRecordDatasetV2", b""),
    "FusedPadConv2D": _replace_padded_conv,
    "FusedResizeAndPadConv2D": _replace_padded_conv,
    "InplaceAdd": _update_rows("TensorScatterAdd"),
    "InplaceSub": _update_rows("TensorScatterSub"),
    "InplaceUpdate": _update_rows("TensorScatterUpdate"),
    "PaddedBatchDataset": _append_input("PaddedBatchDatasetV2", False),
    "ParallelConcat": _parallel_concat,
    "QuantizedReshape": _replace_quantized_reshape,
    "SpaceToBatch": _rename_blocks("SpaceToBatchND", "Tpaddings"),
    "SparseMatMul": _sparse_matmul,
    "Stack": _stack,
}
DEPRECATED_OPS: Final = frozenset(_RULES)
"""Op types of older graphs that an import converts."""

# ---------------------------------------------------------------------------------- handles

_HANDLES: Final = frozenset({"TensorArrayV3", "TensorArrayGradV3", "StackV2"}) | {
    *(f"{op}V2" for op in _QUEUES),
    *(f"{op}ReaderV2" for op in _READERS),
}
_ROUTES: Final = frozenset(
    prefix + op
    for prefix in ("", "Ref")
    for op in ("Enter", "Exit", "Identity", "Merge", "NextIteration", "Switch")
)


def _current_op_name(op: str) -> str:
    """Return the current name of a renamed op, or "" if it is not one."""
    return "StackV2" if op == "Stack" else _RENAMED_OPS.get(op, "")


def _retype(graph_def: proto.GraphDef, handles: set[str]) -> None:
    """Change the element type of handles from string to resource on all nodes that pass them on."""
    users: dict[str, list[proto.NodeDef]] = {}
    for node in graph_def.node if handles else ():
        if node.op in _ROUTES and node.input:
            for text in node.input:
                users.setdefault(text.partition(":")[0], []).append(node)
    waiting = list(handles)
    while waiting:
        for node in users.pop(waiting.pop(), ()):
            if node.attr["T"].type != proto.DT_RESOURCE:
                node.op = node.op.removeprefix("Ref")
                node.attr["T"].type = proto.DT_RESOURCE
                node.attr.pop("_output_shapes", None)
                waiting.append(node.name)

"""Which ops of a model there is no rule for."""

from __future__ import annotations

from collections.abc import Sequence

from onnx import ModelProto

from weft_io.onnx import functions
from weft_io.onnx.model import all_nodes, opsets, plain_domain
from weft_io.onnx.registry import import_rule
from weft_tensor import errors


def unknown_ops(model: ModelProto) -> dict[str, list[str]]:
    """Return the ops that there is no rule for, with the names of their nodes."""
    local = {(plain_domain(each.domain), each.name) for each in model.functions}
    bodies = [(list(all_nodes(model.graph)), opsets(model.opset_import, "the model"))]
    for each in model.functions:
        bodies.append((list(all_nodes(each)), opsets(each.opset_import, f"function {each.name!r}")))
    places: dict[str, list[str]] = {}
    for nodes, versions in bodies:
        for node in nodes:
            domain, op = plain_domain(node.domain), node.op_type
            if (domain, op) in local or import_rule(domain, op) is not None:
                continue
            if not functions.is_defined(domain, op, versions.get(domain, 1)):
                name = f"{domain}.{op}" if domain else op
                places.setdefault(name, []).append(node.name or ", ".join(node.output))
    return places


def refuse_unknown_ops(model: ModelProto) -> None:
    """Raise UnimplementedError with all ops that there is no rule for."""
    if places := unknown_ops(model):
        raise errors.UnimplementedError(
            "the model has ops that are not known: "
            + "; ".join(f"{op} ({_some(names)})" for op, names in sorted(places.items()))
        )


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(repr(each) for each in names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"

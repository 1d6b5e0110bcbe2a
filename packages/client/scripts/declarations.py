"""Facts about declarations of ops, as `weft ops --json` prints them, for all languages."""

from __future__ import annotations

from typing import Any

Op = dict[str, Any]


def is_single(op: Op) -> bool:
    """Return True if an op has one output that is not a list."""
    return len(op["outputs"]) == 1 and not is_list(op["outputs"][0])


def is_list(argument: dict[str, Any]) -> bool:
    """Return True if an argument is a list of tensors."""
    return "number_attr" in argument or "list_attr" in argument


def is_optional(attr: dict[str, Any]) -> bool:
    """Return True if an attribute has a default and is not inferred."""
    return "default" in attr and not attr.get("inferred")


def is_required(attr: dict[str, Any]) -> bool:
    """Return True if an attribute must be given."""
    return "default" not in attr and not attr.get("inferred")


def documentation(op: Op) -> str:
    """Return the documentation of an op: what it does, its inputs and outputs, and limits."""
    lines = [_first_line(op)]
    for title in ("inputs", "outputs"):
        texts = [f"{argument['name']}: {_describe(op, argument)}" for argument in op[title]]
        if texts:
            lines.append(f"{title.capitalize()}: {'; '.join(texts)}.")
    for attr in op["attrs"]:
        if is_required(attr) and attr.get("allowed"):
            lines.append(f"{attr['name']}: {allowed_values(attr)}")
    if op["traits"].get("differentiable") is False or not op["outputs"]:
        lines.append("It has no gradient." if op["outputs"] else "")
    return "\n".join(line.strip() for line in lines if line)


def _first_line(op: Op) -> str:
    return op["doc"] or f"The op {op['name']} of TensorFlow."


def _describe(op: Op, argument: dict[str, Any]) -> str:
    kind = argument.get("type")
    if kind is None:
        name = argument.get("type_attr") or argument["list_attr"]
        (attr,) = [attr for attr in op["attrs"] if attr["name"] == name]
        kind = " or ".join(attr["allowed"]) if len(attr.get("allowed", ())) in (1, 2, 3) else name
    kind = f"list of {kind}" if "number_attr" in argument else kind
    return f"variable of {kind}" if argument.get("is_ref") else kind


def allowed_values(attr: dict[str, Any]) -> str:
    """Return the values that an attribute may have as a sentence, or ""."""
    if not attr.get("allowed"):
        return f"At least {attr['minimum']}. " if "minimum" in attr else ""
    return f"One of {', '.join(attr['allowed'])}. "

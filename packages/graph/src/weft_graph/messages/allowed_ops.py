"""Checks of the op types of an imported graph against a list of allowed ones."""

from __future__ import annotations

__all__ = ["safe_ops"]

from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

from weft_graph import proto
from weft_graph.ir.op_def import loaded_traits, registered_ops
from weft_graph.messages.function_imports import FUNCTIONAL
from weft_graph.messages.graph_def import GRADIENT
from weft_tensor import errors

_MAX_SHOWN: Final = 10


def safe_ops() -> frozenset[str]:
    """Return the op types that access no files and run no code of the program, for `allowed_ops`.

    They are derived from the declarations of all ops, including those of other packages.

    Returns: names of op types; a program may add more.

    Examples:
      >>> "MatMul" in wf.safe_ops(), "WriteFile" in wf.safe_ops(), "PyFunc" in wf.safe_ops()
      (True, False, False)
      >>> with wf.Graph().as_default() as strange:
      ...     written = wf.write_file("note.txt", "hello", name="hidden")
      >>> try:
      ...     wf.import_graph_def(strange.as_graph_def(), allowed_ops=wf.safe_ops())
      ... except wf.errors.PermissionDeniedError as error:
      ...     print(error.message)
      the graph has op types that are not in allowed_ops: WriteFile (node 'hidden')
    """
    return frozenset([op for op in registered_ops() if _is_safe(op)]) | FUNCTIONAL


def _is_safe(op: str) -> bool:
    traits = loaded_traits(op)
    is_internal = op.startswith("_")  # created only by the system
    return not (is_internal or traits.reads_files or traits.writes_files or traits.host_code)


def refuse_other_ops(graph_def: proto.GraphDef, allowed_ops: Collection[str]) -> None:
    """Reject a graph with other op types, also in its functions, or with calls of outer functions.

    Raises:
      PermissionDeniedError: it has such nodes; the message names them, and the error's `details`
        list them under "ops" and "nodes".
      InvalidTypeError: `allowed_ops` is not a collection of names.
    """
    _check(allowed_ops)
    defined = {function.signature.name for function in graph_def.library.function}
    ops: dict[str, list[str]] = {}
    functions: dict[str, list[str]] = {}
    for location, node in _nodes(graph_def):
        if node.op not in allowed_ops and node.op not in defined:
            ops.setdefault(node.op, []).append(location)
        for name in set(_called_functions(node.attr.values())):
            if name not in defined:
                functions.setdefault(name, []).append(location)
    for caller, name in _gradients(graph_def.library):
        if name not in defined:
            functions.setdefault(name, []).append(f"the gradient of {caller!r}")
    reasons = []
    if ops:
        reasons.append(f"the graph has op types that are not in allowed_ops: {_format_uses(ops)}")
    if functions:
        reasons.append(
            f"the graph calls functions that it does not define: {_format_uses(functions)}"
        )
    if reasons:
        locations = [
            group_place
            for groups in (ops, functions)
            for group_places in groups.values()
            for group_place in group_places
        ]
        details = {"ops": sorted(ops), "functions": sorted(functions), "nodes": locations}
        raise errors.PermissionDeniedError("; ".join(reasons), details=details)


def _check(allowed_ops: Any) -> None:
    if isinstance(allowed_ops, str | bytes) or not isinstance(allowed_ops, Collection):
        raise errors.InvalidTypeError(
            f"allowed_ops must be a set of names of op types, got {allowed_ops!r}"
        )
    invalid = [op for op in allowed_ops if not isinstance(op, str)]
    if invalid:
        raise errors.InvalidTypeError(
            f"allowed_ops must have names of op types, got {invalid[0]!r}"
        )


def _nodes(graph_def: proto.GraphDef) -> Iterator[tuple[str, proto.NodeDef]]:
    """Yield all nodes with labels for messages."""
    for node in graph_def.node:
        yield f"node {node.name!r}", node
    for function in graph_def.library.function:
        for node in function.node_def:
            yield f"node {node.name!r} of the function {function.signature.name!r}", node


def _called_functions(attrs: Iterable[proto.AttrValue]) -> Iterator[str]:
    """Yield the names of the functions that attributes refer to."""
    waiting = list(attrs)
    while waiting:
        attr = waiting.pop()
        for function in (attr.func, *attr.list.func):
            if function.name:
                yield function.name
            waiting += function.attr.values()


def _gradients(library: proto.FunctionDefLibrary) -> Iterator[tuple[str, str]]:
    """Yield the names of functions with the names of their gradient functions."""
    for gradient in library.gradient:
        yield gradient.function_name, gradient.gradient_func
    for function in library.function:
        if GRADIENT in function.attr:
            name = function.attr[GRADIENT].s.decode(errors="backslashreplace")
            yield function.signature.name, name


def _format_uses(places_by_name: dict[str, list[str]]) -> str:
    return ", ".join(
        f"{name} ({_format_names(locations)})" for name, locations in sorted(places_by_name.items())
    )


def _format_names(names: list[str]) -> str:
    num_omitted = len(names) - _MAX_SHOWN
    return ", ".join(names[:_MAX_SHOWN]) + (f" and {num_omitted} more" if num_omitted > 0 else "")

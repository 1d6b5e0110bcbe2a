"""The registry of import and export rules by op.

A rule is registered by a decorator; each family of ops has a module of rules in `rules`. Other
packages add rules through an entry point of the group `weft_io.onnx_rules`, whose module is loaded
before the first model is read or written.
"""

from __future__ import annotations

__all__ = ["exporter", "importer"]

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from weft_graph.ir.lazy_modules import EntryPointModules, PackageModules

if TYPE_CHECKING:
    from weft_graph.ir.node import Output
    from weft_io.onnx.export_graph import Value
    from weft_io.onnx.node_export import NodeExport
    from weft_io.onnx.operation import Operation

Result: TypeAlias = "Output | Sequence[Output | None]"
ImportRule = Callable[["Operation"], Result]
ExportRule = Callable[["NodeExport"], "Value | Sequence[Value | None]"]
_Rule = TypeVar("_Rule", bound=Callable[..., Any])

_exporters: Final[dict[str, ExportRule]] = {}
_importers: Final[dict[tuple[str, str], ImportRule]] = {}
_elementwise: Final[set[tuple[str, str]]] = set()
_modules: Final = (PackageModules("weft_io.onnx.rules"), EntryPointModules("weft_io.onnx_rules"))


def importer(*ops: str, domain: str = "", elementwise: bool = False) -> Callable[[_Rule], _Rule]:
    """Register the function that adds an ONNX op's nodes to the default graph.

    It is called with an `Operation` and returns the op's results in order: one output, or several,
    with None for an omitted optional result. One rule handles all versions of the op.

    Args:
      *ops: ONNX's names.
      domain: ONNX's domain; "" for the standard one.
      elementwise: inputs broadcast, and the rule is independent of the order of axes: it may
        receive all inputs transposed, and its results are transposed back.

    Examples:
      >>> from weft_io.onnx import importer
      >>> @importer("Twice", domain="com.example")
      ... def twice(operation):
      ...     return operation[0] * 2.0
    """

    def register(rule: _Rule) -> _Rule:
        for op in ops:
            _importers[domain, op] = rule
            if elementwise:
                _elementwise.add((domain, op))
        return rule

    return register


def exporter(*ops: str) -> Callable[[_Rule], _Rule]:
    """Register the function that writes the nodes of an op of weft to an ONNX model.

    It is called with a `NodeExport` and returns the results in order: one value, or several, with
    None for one that ONNX cannot compute.

    Args:
      *ops: names of op types, as nodes have them.

    Examples:
      >>> from weft_io.onnx import exporter
      >>> @exporter("Twice")
      ... def twice(export):
      ...     return export.add("Add", export[0], export[0])
    """

    def register(rule: _Rule) -> _Rule:
        for op in ops:
            _exporters[op] = rule
        return rule

    return register


def export_rule(op: str) -> ExportRule | None:
    """Return the rule by which an op of weft is written, or None."""
    _load()
    return _exporters.get(op)


def import_rule(domain: str, op: str) -> ImportRule | None:
    """Return the rule of an ONNX op, or None."""
    _load()
    return _importers.get((domain, op))


def is_elementwise(domain: str, op: str) -> bool:
    """Return True if an op's rule may receive transposed inputs."""
    return (domain, op) in _elementwise


def _load() -> None:
    """Import the modules of rules."""
    for modules in _modules:
        modules.load()

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
    """Register the import rule of ONNX ops: a function that adds nodes to the default graph.

    It is called with an `Operation` and returns the op's results in order: one output, or several,
    with None for an omitted optional result. One rule handles all versions of the op.

    Args:
      *ops: ONNX's names.
      domain: ONNX's domain; "" for the standard one.
      elementwise: True if inputs broadcast and the order of axes is irrelevant. Such a rule may
        receive all inputs transposed; its results are then transposed back.

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
    """Register the export rule of ops of weft: a function that adds nodes to an ONNX model.

    It is called with a `NodeExport` and returns the results in order: one value, or several, with
    None for one that ONNX cannot compute.

    Args:
      *ops: names of op types.

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
    """Return the export rule of an op of weft, or None."""
    _load()
    return _exporters.get(op)


def import_rule(domain: str, op: str) -> ImportRule | None:
    """Return the import rule of an ONNX op, or None."""
    _load()
    return _importers.get((domain, op))


def is_elementwise(domain: str, op: str) -> bool:
    """Return True if an op's rule may receive transposed inputs."""
    return (domain, op) in _elementwise


def _load() -> None:
    """Import all modules of rules."""
    for modules in _modules:
        modules.load()

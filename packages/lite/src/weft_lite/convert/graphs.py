"""Conversion of files back to graphs, so that they can be compiled."""

from __future__ import annotations

from weft_graph.ir.graph import Graph
from weft_lite.convert.reading import elements, moves, products
from weft_lite.convert.reading.reader import RULES, Reader
from weft_lite.convert.sources import Source
from weft_lite.schema.codec import decode
from weft_lite.schema.enums import OpKind, Storage
from weft_tensor import errors

__all__ = ["graph_of"]

_FAMILIES = (elements, moves, products)  # which register their rules


def graph_of(content: bytes) -> Source:
    """Return the graph of a verified file, with inputs and outputs of its first signature.

    Raises: UnimplementedError: some ops have no equivalent in graphs; the message lists them.
    """
    model, weights = decode(content)
    unknown = [op for op in model.ops if OpKind(op.kind) not in RULES]
    variable_names = [tensor.name for tensor in model.tensors if tensor.storage == Storage.VARIABLE]
    lines = [
        f"  op {op.name} ({OpKind(op.kind).name}): no graph op computes the same" for op in unknown
    ]
    lines += [
        f"  variable {name}: compiled models keep no state between calls" for name in variable_names
    ]
    if lines:
        raise errors.UnimplementedError(
            f"{len(lines)} parts of the file cannot be compiled; run it with the runtime, or "
            "compile the original graph:\n" + "\n".join(lines)
        )
    graph = Graph()
    with graph.as_default():
        return Reader(model, weights).source(graph)

"""Cost signatures, which are equal for nodes that cost the same, and their profiles."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final, TypeAlias

from weft_exec.costs.work import cost_of
from weft_graph.ir.costs import Cost
from weft_graph.ir.node import Node, Output
from weft_graph.ir.traits import Role
from weft_tensor.dtypes import DType
from weft_tensor.shape import Dims, format_dims

Signature: TypeAlias = tuple[Any, ...]
"""Op, types and shapes of the inputs, types and shapes of the outputs, and attributes that affect
costs.
"""

_LONGEST: Final = 512
"""Maximum length of a signature as text; the end of a longer one is replaced by a digest."""


def signature_of(node: Node) -> Signature:
    """Return the signature of a node; it is hashable."""
    attrs = node.traits.cost_attrs
    # Use the type's number: hashing the type itself would call a Python function.
    return (
        node.type,
        tuple([(o.dtype.as_datatype_enum, o.dims) for o in node.inputs]),
        tuple([(o.dtype.as_datatype_enum, o.dims) for o in node.outputs]),
        tuple([node.attrs.get(name) for name in attrs]) if attrs else None,
    )


def resolve_signature(
    signature: Signature, inputs: Sequence[Dims], outputs: Sequence[Dims]
) -> Signature:
    """Return a signature with its shapes replaced by fully known ones."""
    op, ins, outs, attrs = signature
    return (
        op,
        tuple([(value[0], dims) for value, dims in zip(ins, inputs, strict=True)]),
        tuple([(value[0], dims) for value, dims in zip(outs, outputs, strict=True)]),
        attrs,
    )


class Profile:
    """Cost profile of all nodes with one signature.

    Attributes:
      signature: the signature.
      text: the signature as text, for files.
      known: True if all sizes are known.
      shared: True if a measurement of one node applies to the others. False for calls and Python
        functions, whose times depend on more than shapes.
      outputs: the shapes of the outputs; empty unless all sizes are known.
      work: the work of one execution; zero unless all sizes are known.
    """

    __slots__ = ("_dims", "known", "outputs", "shared", "signature", "text", "work")

    def __init__(self, node: Node, signature: Signature) -> None:
        inputs, outputs = ([dims for _, dims in part] for part in signature[1:3])
        self.signature = signature
        self._dims = [*inputs, *outputs]
        self.text = _text(signature)
        self.known = all(is_known(dims) for dims in (*inputs, *outputs))
        self.shared = not (node.traits.host_code or node.role is Role.CALL)
        self.outputs = tuple(outputs) if self.known else ()
        self.work = cost_of(node, inputs, outputs) if self.known else Cost(0.0, 0.0)

    def fits(self, node: Node) -> bool:
        """Return True if a node that has this profile still has the same shapes."""
        return self._dims == [output.dims for output in (*node.inputs, *node.outputs)]


def is_known(dims: Dims) -> bool:
    """Return True if the rank and all sizes are known."""
    return dims is not None and None not in dims


def fit_shape(output: Output, elements: float) -> tuple[int, ...]:
    """Return the shape of an output with unknown sizes.

    The first unknown size accounts for all elements.
    """
    dims = output.dims
    if dims is None:
        return (round(elements),)
    index = dims.index(None)
    remaining = tuple([1 if size is None else size for size in dims[index + 1 :]])
    first: tuple[int, ...] = dims[:index]  # type: ignore[assignment]
    num_known = prod(first) * prod(remaining)
    return (*first, round(elements / num_known) if num_known else 0, *remaining)


def fill_unknown_sizes(dims: Dims, size: int) -> tuple[int, ...]:
    """Return a shape with `size` instead of all unknown sizes."""
    if dims is None:
        return (size,)
    return tuple([size if dim is None else dim for dim in dims])


def _text(signature: Signature) -> str:
    op, inputs, outputs, attrs = signature
    text = f"{op}({_values(inputs)})->({_values(outputs)})"
    if attrs is not None:
        text += repr(attrs)
    if len(text) > _LONGEST:
        import hashlib

        digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
        text = f"{text[: _LONGEST - len(digest)]}{digest}"
    return text


def _values(part: tuple[tuple[int, Dims], ...]) -> str:
    return ",".join(f"{DType(kind).name}{format_dims(dims)}" for kind, dims in part)

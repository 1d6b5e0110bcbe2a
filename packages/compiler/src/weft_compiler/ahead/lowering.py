"""Lowering of a subgraph to one program without external calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from weft_compiler.ir.program import Program
from weft_compiler.ir.verifier import verify
from weft_compiler.lower.region import lower, specialize, unsupported_reason
from weft_compiler.lower.registry import Unsupported, update_of
from weft_compiler.passes.pipeline import optimize
from weft_compiler.passes.select_routines import replace_blas
from weft_graph.freezing import specialize_graph
from weft_graph.ir.code_generators import RegionRequest
from weft_graph.ir.constant_value import constant_value
from weft_graph.ir.node import Node, Output
from weft_graph.ir.traits import Role
from weft_tensor import errors

Shape = tuple[int, ...]

_VECTOR_BYTES: Final = 16
"""Width of the narrowest vector registers of targets that have them, in bytes."""
_LOOPS = "loops and conditionals of a graph are for sessions and lite's runtime: unroll it"
_INSTEAD = {
    Role.VARIABLE: "freeze the graph first: its variables become constants",
    Role.PLACEHOLDER: "name it among the inputs",
    Role.CALL: "freeze the graph first: calls become what they compute",
    Role.SWITCH: _LOOPS,
    Role.MERGE: _LOOPS,
    Role.ENTER: _LOOPS,
    Role.EXIT: _LOOPS,
    Role.NEXT_ITERATION: _LOOPS,
}


def program_of(
    name: str,
    inputs: Sequence[Output],
    outputs: Sequence[Output],
    shapes: Sequence[Shape],
) -> Program:
    """Return the program that computes outputs from inputs, without calls of BLAS.

    Placeholders that are not inputs take their defaults, and conditionals on these are folded.

    Raises: UnimplementedError: something cannot be compiled; lists all of it.
    """
    inputs, outputs = specialize_graph(inputs, outputs)
    members = _members(inputs, outputs)
    constants = [node.outputs[0] for node in members if node.role is Role.CONSTANT]
    computed = [node for node in members if node.role is not Role.CONSTANT]
    for output in (*inputs, *outputs):
        if output.dtype.is_complex:
            raise errors.UnimplementedError(
                f"{name} cannot be compiled: {output.name!r} is {output.dtype.name}, but inputs "
                "and outputs must have real numbers"
            )
    operands = [*inputs, *constants]
    interval = [
        *shapes,
        *[tuple(size or 0 for size in constant.dims or ()) for constant in constants],
    ]
    _refuse([node for node in computed if unsupported_reason(node)], computed, operands, interval)
    try:
        program = lower(RegionRequest(computed, operands, outputs, interval), name, direct=True)
    except Unsupported as error:
        raise errors.UnimplementedError(f"{name} cannot be compiled: {error}") from error
    body = replace_blas(program.body)
    program = replace(program, body=body)
    program = optimize(program, check=False, vector_bytes=_VECTOR_BYTES).program
    verify(program)
    return program


def _members(inputs: Sequence[Output], outputs: Sequence[Output]) -> list[Node]:
    """Return the nodes that outputs depend on, in order of creation."""
    boundary = set(inputs)
    nodes: set[Node] = set()
    waiting = [output.node for output in outputs if output not in boundary]
    while waiting:
        node = waiting.pop()
        if node not in nodes:
            nodes.add(node)
            waiting += [source.node for source in node.inputs if source not in boundary]
    return [node for node in outputs[0].graph.get_operations() if node in nodes] if outputs else []


def _refuse(
    odd: Sequence[Node],
    members: Sequence[Node],
    inputs: Sequence[Output],
    shapes: Sequence[Shape],
) -> None:
    """Reject nodes without a lowering rule, unless shapes determine their values.

    Raises: UnimplementedError: there are such nodes; lists all, with alternatives.
    """
    plain = not any(node.role in _INSTEAD or update_of(node.type) for node in members)
    if odd and plain:
        with suppress(Unsupported):
            counterparts = specialize(members, inputs, shapes, {})
            odd = [
                node
                for node in odd
                if not _have_known_shapes([counterparts[x] for x in node.outputs])
            ]
    lines = []
    for node in members:
        reason = unsupported_reason(node) if node in odd else ""
        if node.role in _INSTEAD:
            reason = _INSTEAD[node.role]
        elif node.traits.random:
            reason = "it draws random numbers, whose streams are a session's"
        elif update_of(node.type) is not None:
            reason = "it changes a variable, and compiled models have none"
        if reason:
            lines.append(f"  {node.name} ({node.type}, {node.line or 'of a file'}): {reason}")
    if lines:
        raise errors.UnimplementedError(
            f"nodes that cannot be compiled: {len(lines)}; replace them by other ops, or "
            "compute their results beforehand and pass these as inputs:\n" + "\n".join(lines)
        )


def _have_known_shapes(outputs: Sequence[Output]) -> bool:
    return bool(outputs) and all(constant_value(output) is not None for output in outputs)


def resolve_shapes(
    inputs: Mapping[str, Output], given_shapes: Mapping[str, Sequence[int]]
) -> list[Shape]:
    """Return the shapes of inputs; `given_shapes` has those that the graph does not know.

    Raises: InvalidArgumentError: a shape is unknown, or contradicts the graph.
    """
    unknown = sorted(given_shapes.keys() - inputs.keys())
    if unknown:
        raise errors.InvalidArgumentError(
            f"unknown inputs {unknown}; the inputs are {sorted(inputs)}"
        )
    shapes: list[Shape] = []
    for key, output in inputs.items():
        dims: Any = output.dims
        shape = tuple(int(size) for size in given_shapes[key]) if key in given_shapes else dims
        if shape is None or None in shape:
            known_shape = (
                "unknown" if dims is None else str(["?" if d is None else d for d in dims])
            )
            example = "1,224,224,3" if dims is None else ",".join(str(d or 1) for d in dims)
            raise errors.InvalidArgumentError(
                f"the shape of input {key} is {known_shape}, but code is compiled for "
                f"one shape: pass it, such as --shape {key}={example}, "
                f"or shapes={{{key!r}: [{example}]}}"
            )
        fits = dims is None or (
            len(dims) == len(shape)
            and all(d is None or d == s for d, s in zip(dims, shape, strict=True))
        )
        if not fits or min(shape, default=0) < 0:
            raise errors.InvalidArgumentError(
                f"input {key} has shape {list(dims or ())} in the graph, got {list(shape)}"
            )
        shapes.append(shape)
    return shapes

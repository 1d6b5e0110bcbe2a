"""Fingerprints: hashes of everything that the code of some nodes depends on.

Code on disk is looked up by fingerprint, without lowering the nodes and without LLVM.
"""

from __future__ import annotations

import functools
import hashlib
import platform
import weakref
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import numpy as np

from weft_compiler.lower.region import changed_variables, state_type
from weft_compiler.lower.registry import rule_of, update_of
from weft_compiler.native.cache import sources
from weft_graph.ir.code_generators import RegionRequest
from weft_graph.ir.node import Node, Output
from weft_graph.ir.op_def import declaring_module
from weft_graph.ir.traits import Role
from weft_graph.passes.functional_form import Block, Branch, Loop
from weft_graph.passes.whole_loops import LoopRequest, WholeLoop, first_value, next_value
from weft_tensor import dtypes
from weft_tensor.dtypes import DType

_OURS: Final = ("weft_graph", "weft_compiler")
"""Packages whose sources are part of a fingerprint, so that code may depend on their rules."""


_MEMO: Final = "fingerprint"


class _NoStableEncoding(Exception):  # noqa: N818 - it is no error of a program
    """Signal that the code depends on something without a stable encoding."""


def fingerprint(request: RegionRequest | LoopRequest) -> str | None:
    """Return a hash of everything that the code of a request depends on, except names.

    Returns: None if the code depends on a rule of another package, whose changes are not tracked,
      or if an attribute has no stable encoding.
    """
    base = _subject_hash(request)
    return None if base is None else _hash(lambda: [base, *_choice_parts(request)])


def polymorphic_fingerprint(request: RegionRequest | LoopRequest) -> str | None:
    """Return a hash like `fingerprint` that ignores sizes that are not static.

    Returns: None as `fingerprint`, and if all sizes are static.
    """
    sizes = _static_sizes(request)
    base = _subject_hash(request)
    if base is None or sizes is None:
        return None
    return _hash(lambda: [b"polymorphic", base, repr(sizes).encode()])


def _static_sizes(request: RegionRequest | LoopRequest) -> object:
    """Return the ranks and static sizes of the inputs of a request; None if all are static."""
    if isinstance(request, LoopRequest):
        dims = [enter.outputs[0].dims for enter in request.whole.enters]
        has_open = bool(request.extents)
        values: list[object] = [request.is_resumable]
    else:
        dims = [
            shape if source.dtype.is_ref or source.dtype is dtypes.resource else source.dims
            for source, shape in zip(request.inputs, request.shapes, strict=True)
        ]
        has_open = bool(request.values)
        values = [(index, np.shape(value)) for index, value in sorted(request.values.items())]
    ranks = [len(shape) for shape in request.shapes]
    is_open = [known_values is None or None in known_values for known_values in dims]
    return (ranks, dims, values) if has_open or any(is_open) else None


_loops: weakref.WeakKeyDictionary[WholeLoop, bytes | None] = weakref.WeakKeyDictionary()
"""Hashes of the nodes of loops."""


def _subject_hash(request: RegionRequest | LoopRequest) -> bytes | None:
    """Return a hash of the nodes of a request without its shapes and values; None as above."""
    if isinstance(request, LoopRequest):
        loop = request.whole
        if loop not in _loops:
            _loops[loop] = _encode(_hash(lambda: _LoopParts(loop).parts()))
        return _loops[loop]
    if request.memo is None:
        return _encode(_hash(lambda: _parts(request)))
    if _MEMO not in request.memo:
        request.memo[_MEMO] = _encode(_hash(lambda: _parts(request)))
    result: bytes | None = request.memo[_MEMO]
    return result


def _encode(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _choice_parts(request: RegionRequest | LoopRequest) -> list[bytes]:
    """Return the encoding of the shapes and values of a request."""
    if isinstance(request, LoopRequest):
        return [
            repr((tuple(request.shapes), tuple(request.extents), request.is_resumable)).encode()
        ]
    values = [
        f"{index} ".encode() + _array(np.asarray(v)) for index, v in sorted(request.values.items())
    ]
    return [repr(tuple(request.shapes)).encode(), *values]


def constants_of(loop: WholeLoop) -> list[Output]:
    """Return the constants that a loop uses, in an order that depends on its fingerprint only."""
    sources = [source for node in (*loop.enters, *loop.nodes) for source in node.inputs]
    inner_outputs = [output for node in loop.nodes for output in node.outputs]
    result = [output for output in (*sources, *inner_outputs) if output.node.role is Role.CONSTANT]
    return list(dict.fromkeys(result))


def _hash(parts: Callable[[], Sequence[bytes]]) -> str | None:
    digest = hashlib.sha256(_environment().encode())
    try:
        for part in parts():
            digest.update(part)
            digest.update(b"\0")
    except _NoStableEncoding:
        return None
    return digest.hexdigest()


def _parts(request: RegionRequest) -> list[bytes]:
    members, inputs, outputs, _, _, branches, _ = request
    numbers: dict[Output, int] = {source: index for index, source in enumerate(inputs)}
    position = {node: index for index, node in enumerate(members)}
    states = {
        source: state_type(node).name for node in members for source in changed_variables(node)
    }
    parts: list[bytes] = []
    for source in inputs:
        node = source.node
        known_value = _array(np.asarray(node.attrs["value"])) if node.role is Role.CONSTANT else b""
        parts += f"{source.dtype.name} {states.get(source)}".encode(), known_value
    for node in members:
        parts.append(_node(node, [numbers[source] for source in node.inputs]))
        path = branches.paths.get(node, ()), branches.sides.get(node)
        if any(path):
            led = [(position[switch], side) for switch, side in (*path[0], *filter(None, path[1:]))]
            parts.append(f"{len(path[0])} {led}".encode())
        for output in node.outputs:
            numbers[output] = len(numbers)
    parts.append(str([numbers[output] for output in outputs]).encode())
    return parts


def _node(node: Node, input_numbers: Sequence[int]) -> bytes:
    """Encode the computation of a node.

    Args:
      input_numbers: the numbers of its inputs.
    """
    if not _is_ours(node.type):
        raise _NoStableEncoding
    attrs = ",".join([f"{k}={_attr(v)}" for k, v in sorted(node.attrs.items()) if k[0] != "_"])
    result_types = [output.dtype.name for output in node.outputs]
    return f"{node.type} {input_numbers} {result_types} {attrs}".encode()


class _LoopParts:
    """Encoder of a loop: its nodes in order, whose inputs are encoded as numbers."""

    def __init__(self, loop: WholeLoop) -> None:
        self._loop_region = loop
        self._numbers: dict[Output, int] = {}
        self._order: dict[Node, int] = {}
        self._parts: list[bytes] = []

    def parts(self) -> Sequence[bytes]:
        """Return the encoding of everything that code depends on, except shapes and extents."""
        loop = self._loop_region
        self._append(loop.wanted(), sorted(loop.reads), sorted(loop.updates))
        for enter in loop.enters:
            source = enter.inputs[0].node
            known_value = _array(source.attrs["value"]) if source.role is Role.CONSTANT else b""
            self._parts += [enter.outputs[0].dtype.name.encode(), known_value]
            self._give(enter)
        self._loop(loop.loop)
        for tensor_list in loop.kept:
            self._append(
                tensor_list.store,
                tensor_list.use.name,
                [self._order[node] for node in tensor_list.nodes],
            )
        self._append([self._order[node] for node in loop.rng_nodes])
        return self._parts

    def _append(self, *parts: object) -> None:
        self._parts.append(repr(parts).encode())

    def _give(self, node: Node) -> None:
        self._order[node] = len(self._order)
        for output in node.outputs:
            self._numbers[output] = len(self._numbers)

    def _number(self, source: Output) -> int:
        """Return the number of a value; a constant is encoded at its first use."""
        if source not in self._numbers:
            if source.node.role is not Role.CONSTANT:
                raise _NoStableEncoding
            self._parts.append(_array(source.node.attrs["value"]))
            self._give(source.node)
        return self._numbers[source]

    def _loop(self, loop: Loop) -> None:
        frame = loop.frame
        for merge in frame.merges:
            self._append(self._number(first_value(merge).outputs[0]))
            self._give(merge)
        self._block(loop.test)
        assert frame.cond is not None
        self._append(self._number(frame.cond.inputs[0]))
        self._block(loop.body)
        self._append([self._number(next_value(merge)) for merge in frame.merges])

    def _inner(self, loop: Loop) -> None:
        frame = loop.frame
        for enter in frame.enters:
            # The attributes of the Enter contain the name of the frame.
            self._append(self._number(enter.inputs[0]))
            self._give(enter)
        self._loop(loop)
        for exit_ in frame.exits:
            merge = exit_.inputs[0].node.inputs[0].node
            self._append(frame.merges.index(merge))
            self._give(exit_)

    def _block(self, block: Block) -> None:
        for step in block:
            if isinstance(step, Branch):
                self._append("if", self._number(step.pred))
                for side in step.sides:
                    self._block(side)
                    self._append("end")
            elif isinstance(step, Loop):
                self._append("loop")
                self._inner(step)
            else:
                input_numbers = [self._number(source) for source in step.inputs]
                self._parts.append(_node(step, input_numbers))
                self._give(step)


def _attr(value: Any) -> str:
    if isinstance(value, DType):
        return value.name
    if isinstance(value, list | tuple):
        return f"[{','.join(map(_attr, value))}]"
    if isinstance(value, np.ndarray):
        return _array(value).hex()
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return repr(value)
    raise _NoStableEncoding


def _array(value: np.ndarray) -> bytes:
    if value.dtype.hasobject:
        raise _NoStableEncoding
    content = value.tobytes()
    if len(content) > 64:
        content = hashlib.sha256(content).digest()
    return f"{value.dtype} {value.shape} ".encode() + content


@functools.cache
def _is_ours(op: str) -> bool:
    """Return True if all code that defines an op is in the packages of `_OURS`."""
    update = update_of(op)
    rules = (rule_of(op), update and update.new, update and update.rows)
    modules = [declaring_module(op), *[str(rule.__module__) for rule in rules if rule is not None]]
    return all(module.partition(".")[0] in _OURS for module in modules)


@functools.cache
def _environment() -> str:
    """Return the processor and the compiler versions, as far as they are known without LLVM."""
    names = ("weftml-compiler", "weftml-graph", "llvmlite", "numpy")
    versions = [metadata.version(name) for name in names]
    return "\n".join([*versions, *map(sources, _OURS), _processor()])


def _processor() -> str:
    result = f"{platform.system()} {platform.machine()}"
    try:
        first = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
    except OSError:  # not Linux
        return f"{result} {platform.processor()}"
    fields = ("vendor_id", "model name", "flags", "Features", "CPU part", "isa")
    lines = [line for line in first.splitlines() if line.startswith(fields)]
    return "\n".join([result, *lines])

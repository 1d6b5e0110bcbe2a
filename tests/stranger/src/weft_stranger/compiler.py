"""A compiler of hypotenuses and the elementwise nodes next to them, without intermediate arrays.

It takes a `StrangerHypot` node, the nodes after it as far as each is all that uses the one before,
and then whatever only these use. So nothing but the last of them is used elsewhere, and no path can
leave the set and come back; what is fetched may be any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import prod
from typing import Any, Final

import numpy as np

from weft_exec.devices.device import Device
from weft_exec.executor.compilers import CompileOffer, RegionClaim, register_compiler
from weft_exec.executor.region import Region
from weft_graph.ir.node import Node, Output
from weft_graph.ir.scalar import Scalar, applications
from weft_graph.passes.memory import BytesOf

Values = dict[Output, Any]
Shape = tuple[int, ...]

BLOCK: Final = 4096
"""Elements that are computed at a time."""

_UFUNCS: Final[dict[str, Callable[..., Any]]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "neg": np.negative,
    "abs": np.abs,
    "square": np.square,
    "sqrt": np.sqrt,
    "exp": np.exp,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
}
_TYPES: Final = (np.dtype("float32"), np.dtype("float64"))


class HypotCompiler:
    """A compiler that counts its calls for tests.

    Attributes:
      members: the names of the members of the last region.
      calls: how often functions ran.
      specialised: for how many shapes.
    """

    def __init__(self) -> None:
        self.members: tuple[str, ...] = ()
        self.calls = 0
        self.specialised = 0

    def claim(self, offer: CompileOffer) -> Iterable[RegionClaim]:
        """Claim the nodes that can be computed with each hypotenuse."""
        hypots = [node for node in offer.nodes if node.type == "StrangerHypot"]
        free = set(offer.nodes) if hypots else set()
        for node in hypots:
            if node in free and _can(node) and offer.place(node)[0].type == "CPU":
                members = _around(node, free, offer)
                free -= members
                yield RegionClaim(list(members), self.compile, _peak_bytes(members, offer))

    def compile(self, region: Region, device: Device) -> Callable[..., Any] | None:
        """Return the function of a region, which specializes on the shapes of its arguments."""
        self.members = tuple([node.name for node in region.members])
        expressions = [(node, _expression(node)) for node in region.members]
        plans: dict[tuple[Shape, ...], Callable[..., list[Any]]] = {}

        def run(*inputs: Any) -> Any:
            self.calls += 1
            key = tuple([value.shape for value in inputs])
            plan = plans.get(key)
            if plan is None:  # another thread may come here, too: then one of the two plans stays
                self.specialised += 1
                plan = plans[key] = _plan(region, expressions, key, device)
            results = plan(inputs)
            return results[0] if len(results) == 1 else results

        return run


def _peak_bytes(members: set[Node], offer: CompileOffer) -> Callable[[BytesOf], int] | None:
    """Return the peak memory of the function; its arrays have one size."""
    values = {value for node in members for value in (*node.inputs, *node.outputs)}
    if len({value.dims for value in values} - {()}) != 1:
        return None
    made = [node.outputs[0] for node in members]
    results = [o for o in made if o in offer.step.fetches or not members.issuperset(o.consumers())]
    return lambda bytes_of: sum(map(bytes_of, results)) + 8 * BLOCK * len(values)


def _can(node: Node) -> bool:
    """Return True if the compiler supports all primitives of a node's definition."""
    if node.traits.scalar is None or {v.dtype.numpy for v in (*node.inputs, *node.outputs)} - {
        *_TYPES
    }:
        return False
    if any(value.dtype.is_ref for value in node.inputs):
        return False
    parts = applications(_expression(node))
    leaves = [arg.name for part in parts for arg in part.args if not arg.args]
    known = all([part.name in _UFUNCS for part in parts]) and "attribute" not in leaves
    return known and bool(parts)


def _expression(node: Node) -> Scalar:
    assert node.traits.scalar is not None
    return node.traits.scalar.expression([v.dtype for v in node.inputs], node.outputs[0].dtype)


def _around(hypot: Node, free: set[Node], offer: CompileOffer) -> set[Node]:
    """Return the nodes that are computed together with a node."""
    device, where = offer.place(hypot)[0], offer.where(hypot)

    def fits(node: Node) -> bool:
        if node not in free or not _can(node) or offer.where(node) != where:
            return False
        return offer.place(node)[0] is device

    last, members = hypot, {hypot}
    while len(users := last.consumers) == 1:
        (user,) = users
        if not fits(user):
            break
        members.add(user)
        last = user
    waiting = list(members)
    while waiting:
        for source in waiting.pop().inputs:
            node = source.node
            if node not in members and fits(node) and members.issuperset(node.consumers):
                members.add(node)
                waiting.append(node)
    return members


# ------------------------------------------------------------------------------ functions


def _plan(
    region: Region,
    expressions: Sequence[tuple[Node, Scalar]],
    given: Sequence[Shape],
    device: Device,
) -> Callable[..., list[Any]]:
    """Return the function that computes a region for inputs of given shapes.

    Raises: ValueError: they do not fit; which member that is, its kernel says.
    """
    shapes = dict(zip(region.inputs, given, strict=True))
    for node, _ in expressions:
        own = [shapes[source] for source in node.inputs]
        scalar = node.traits.scalar
        if scalar is not None and scalar.one_shape and len(set(own)) > 1:
            raise ValueError(f"{node.type} cannot broadcast {own}")
        shapes[node.outputs[0]] = np.broadcast_shapes(*own)
    arrays = {shape for shape in shapes.values() if shape}
    blocks = [slice(None)]
    if len(arrays) == 1:
        size = prod(next(iter(arrays)))
        blocks = [slice(at, at + BLOCK) for at in range(0, size, BLOCK)]

    def run(inputs: Sequence[Any]) -> list[Any]:
        results = [
            device.new_array(shapes[o], o.dtype.numpy) if shapes[o] else None
            for o in region.outputs
        ]
        for block in blocks:
            values = {
                source: value.reshape(-1)[block] if len(arrays) == 1 and value.shape else value
                for source, value in zip(region.inputs, inputs, strict=True)
            }
            for node, expression in expressions:
                operands = [values[source] for source in node.inputs]
                values[node.outputs[0]] = _evaluate(expression, operands)
            for i, output in enumerate(region.outputs):
                result = results[i]
                if not shapes[output]:
                    results[i] = values[output]
                elif len(arrays) == 1:
                    result.reshape(-1)[block] = values[output]
                else:
                    result[...] = values[output]
        return results

    return run


def _evaluate(expression: Scalar, operands: Sequence[Any]) -> Any:
    done: dict[int, Any] = {}
    for part in applications(expression):
        done[id(part)] = _UFUNCS[part.name](*_arguments(part, operands, done))
    return done[id(expression)]


def _arguments(part: Scalar, operands: Sequence[Any], done: dict[int, Any]) -> Iterator[Any]:
    for arg in part.args:
        if arg.name == "input":
            yield operands[arg.value]
        elif arg.args:
            yield done[id(arg)]
        else:
            yield arg.dtype.numpy.type(arg.value)


COMPILER: Final = HypotCompiler()
register_compiler("stranger", COMPILER)

"""Kernels of random ops, over the streams of `weft_exec.kernels.philox`.

A device type registers its source of random words by `register`. The kernels that use the words are
written over the array module and are the same for all device types.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels import philox
from weft_exec.kernels.common import constant_input, new_array
from weft_exec.kernels.registry import KernelFunction, kernel
from weft_exec.resources.resources import ResourceManager
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]


def stream_name(node: str) -> str:
    """Return the name that the stream of a node has in its container."""
    return f"_random/{node}"


def stream_of(node: Node, resources: ResourceManager) -> philox.RandomStream:
    """Return the stream of a random op, which lives as long as the session."""
    seed, seed2 = node.attrs["seed"], node.attrs["seed2"]
    name = stream_name(node.name)

    def make() -> philox.RandomStream:
        key = (seed, seed2) if seed or seed2 else philox.random_key()
        return philox.RandomStream(name, key)

    return resources.own.lookup_or_create("", name, philox.RandomStream, make)


def _shape_of(node: Node) -> Shape | None:
    """Return the shape argument if it is constant; None otherwise."""
    constant = constant_input(node, 0)
    return None if constant is None else check_shape(constant)


def check_shape(value: Any) -> Shape:
    """Return a shape argument as a tuple of sizes.

    Raises: InvalidArgumentError: a size is negative.
    """
    shape = tuple(value.reshape(-1).tolist())
    if shape and min(shape) < 0:
        raise errors.InvalidArgumentError(f"sizes must not be negative, got shape {list(shape)}")
    return shape


def _finish(result: Array) -> Any:
    return result if result.ndim else result[()]


Draw = Callable[..., Any]
"""`draw(function, *args)` returns `function(words, *args)`."""
Source = Callable[["Node", "Device"], Draw]
"""Function from a node to a function that draws from the next execution of its stream."""
StatelessSource = Callable[["Device", Any], Draw]
"""Function from a seed to a function that draws from the stream of a stateless op."""

_FILLS: dict[str, philox.Fill] = {
    "RandomUniform": philox.fill_uniform,
    "RandomStandardNormal": philox.fill_normal,
    "TruncatedNormal": philox.fill_truncated_normal,
    "StatelessRandomUniform": philox.fill_uniform,
    "StatelessRandomNormal": philox.fill_normal,
    "StatelessTruncatedNormal": philox.fill_truncated_normal,
}


def _floats(source: Source, node: Node, device: Device) -> KernelFunction:
    draw, static_shape = source(node, device), _shape_of(node)
    fill, dtype = _FILLS[node.type], node.outputs[0].dtype.numpy

    def run(shape: Any) -> Any:
        result = new_array(
            device, check_shape(shape) if static_shape is None else static_shape, dtype
        )
        draw(fill, result, device.xp)
        return _finish(result)

    return run


def _stateless_floats(source: StatelessSource, node: Node, device: Device) -> KernelFunction:
    fill, dtype = _FILLS[node.type], node.outputs[0].dtype.numpy

    def run(shape: Any, seed: Any) -> Any:
        result = new_array(device, check_shape(shape), dtype)
        source(device, seed)(fill, result, device.xp)
        return _finish(result)

    return run


def check_range(low: Any, high: Any) -> tuple[int, int]:
    """Return the bounds of the integers to draw.

    Raises: InvalidArgumentError: the range is empty.
    """
    first, last = int(low), int(high)
    if first >= last:
        raise errors.InvalidArgumentError(f"minval must be below maxval, got {first} and {last}")
    return first, last


def _integers(source: Source, node: Node, device: Device) -> KernelFunction:
    draw, dtype = source(node, device), node.outputs[0].dtype.numpy

    def run(shape: Any, low: Any, high: Any) -> Any:
        result = new_array(device, check_shape(shape), dtype)
        if not result.size:  # as in TensorFlow, nothing may come out of an empty range
            return result
        first, last = check_range(low, high)
        draw(philox.fill_integers, result, first, last)
        return _finish(result)

    return run


def _stateless_integers(source: StatelessSource, node: Node, device: Device) -> KernelFunction:
    dtype = node.outputs[0].dtype.numpy

    def run(shape: Any, seed: Any, low: Any, high: Any) -> Any:
        result = new_array(device, check_shape(shape), dtype)
        if not result.size:
            return result
        first, last = check_range(low, high)
        source(device, seed)(philox.fill_integers, result, first, last)
        return _finish(result)

    return run


def _shuffle(source: Source, node: Node, device: Device) -> KernelFunction:
    draw, xp = source(node, device), device.xp

    def run(value: Any) -> Any:
        if not value.shape or value.shape[0] < 2:
            return value.copy()
        order = draw(philox.permutation, value.shape[0], xp)
        if value.dtype.hasobject:
            return value[order]
        if xp is not np:
            return xp.take(value, order, axis=0)
        result = new_array(device, value.shape, value.dtype)
        np.take(value, order, axis=0, out=result, mode="clip")  # "raise" would copy once more
        return result

    return run


def register(device: str, source: Source, stateless: StatelessSource) -> None:
    """Register the kernels of a device type whose random words come from `source`."""

    def add(factory: Callable[..., Any], source: Any, *ops: str, host: Sequence[str] = ()) -> None:
        kernel(*ops, device=device, host=host, heavy=device == "CPU")(partial(factory, source))

    floats = ("RandomUniform", "RandomStandardNormal", "TruncatedNormal")
    stateless_floats = (
        "StatelessRandomUniform", "StatelessRandomNormal", "StatelessTruncatedNormal"
    )  # fmt: skip
    bounds = ("minval", "maxval")
    add(_floats, source, *floats, host=("shape",))
    add(_stateless_floats, stateless, *stateless_floats, host=("shape", "seed"))
    add(_integers, source, "RandomUniformInt", host=("shape", *bounds))
    add(
        _stateless_integers, stateless, "StatelessRandomUniformInt", host=("shape", "seed", *bounds)
    )
    add(_shuffle, source, "RandomShuffle")


def _from_stream(node: Node, device: Device) -> Draw:
    return stream_of(node, device.resources).run


def _from_seed(device: Device, seed: Any) -> Draw:
    words = philox.stateless_words(seed)
    return lambda function, *args: function(words, *args)


register("CPU", _from_stream, _from_seed)


@kernel("Multinomial", heavy=True)
def _multinomial(node: Node, device: Device) -> KernelFunction:
    stream = stream_of(node, device.resources)
    dtype = node.outputs[0].dtype.numpy

    def run(logits: Any, samples: Any) -> Any:
        count = int(samples)
        if logits.ndim != 2 or count < 0 or (count and not logits.shape[1] and len(logits)):
            raise errors.InvalidArgumentError(
                "Multinomial needs logits of shape [B, C] with C > 0 and num_samples >= 0, got "
                f"{list(logits.shape)} and {count}"
            )
        result = new_array(device, (len(logits), count), dtype)
        stream.run(philox.draw_classes, logits, result)
        return result

    return run


def _draw_gamma(generator: np.random.Generator, alpha: Any, shape: Shape) -> Array:
    return generator.standard_gamma(alpha, shape)


_LARGEST_RATE = 9.2e18
"""Maximum rate of Poisson numbers, which are drawn as int64."""


def _draw_poisson(generator: np.random.Generator, rate: Any, shape: Shape) -> Array:
    if rate.size and not rate.max() < _LARGEST_RATE:
        raise errors.InvalidArgumentError(
            f"rates must be below {_LARGEST_RATE:g}, got {rate.max():g}"
        )
    return generator.poisson(rate, shape)


@kernel("RandomGamma", "RandomPoisson", "RandomPoissonV2", heavy=True)
def _parametric(node: Node, device: Device) -> KernelFunction:
    stream = stream_of(node, device.resources)
    dtype = node.outputs[0].dtype.numpy
    gamma = node.type == "RandomGamma"
    draw: Any = _draw_gamma if gamma else _draw_poisson
    name = "alpha" if gamma else "rate"

    def run(shape: Any, parameter: Any) -> Any:
        wide = np.asarray(parameter, np.float64)
        if wide.size and not wide.min() >= 0:
            raise errors.InvalidArgumentError(f"{name} must be at least 0, got {wide.min()}")
        full = check_shape(shape) + wide.shape
        result = new_array(device, full, dtype)
        result[...] = stream.sample(draw, wide, full)
        return _finish(result)

    return run

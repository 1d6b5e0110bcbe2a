"""Round-trip check: the results of a file are compared with those of the full runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from weft_graph.ir.node import Output
from weft_lite.convert.lowered import Array
from weft_lite.convert.sources import Source
from weft_lite.errors import LiteError
from weft_lite.interpreter import Interpreter
from weft_tensor import errors

LIMIT: Final = 1e-3
HALF_LIMIT: Final = 1e-2
"""Of outputs of float16, which has three digits."""

INT8_LIMIT: Final = 0.1
"""Of graphs in int8."""

LEAST_SCALE: Final = 1e-3
"""Smallest scale of a comparison: smaller outputs are rounding errors of zeros."""


def complete(
    samples: Mapping[str, Any], inputs: Mapping[str, Output], bounds: Sequence[tuple[int, ...]]
) -> list[Array]:
    """Return a value for each input: the given one, else normal numbers, or zeros of other types.

    Raises: InvalidArgumentError: a sample is of no input, or does not fit it.
    """
    unknown = samples.keys() - inputs.keys()
    if unknown:
        raise errors.InvalidArgumentError(f"samples are of no inputs: {sorted(unknown)}")
    random, found = np.random.default_rng(0), []
    for (name, source), bound in zip(inputs.items(), bounds, strict=True):
        dtype = source.dtype.as_numpy_dtype
        if name in samples:
            value = np.asarray(samples[name], dtype)
        elif np.issubdtype(dtype, np.floating):
            value = np.asarray(random.standard_normal(bound), dtype)
        else:
            value = np.zeros(bound, dtype)
        dims = source.dims or ()
        fits = value.ndim == len(bound) and all(
            size <= most if dim is None else size == most
            for size, most, dim in zip(value.shape, bound, dims, strict=True)
        )
        if not fits:
            raise errors.InvalidArgumentError(
                f"the sample of {name} has shape {value.shape}, and the input takes {bound}"
                + (", or less along open sizes" if None in dims else "")
            )
        found.append(value)
    return found


def require(content: bytes, source: Source, values: Sequence[Array], limit: float | None) -> None:
    """Refuse a file whose results differ from those of the graph.

    Raises:
      DataLossError: they differ by more than the limit.
      InvalidArgumentError: the graph fails on the sample.
    """
    try:
        with source.session() as session:
            fed = dict(zip(source.inputs.values(), values, strict=True))
            wanted = session.run(list(source.outputs.values()), fed)
    except errors.OpError as error:
        raise errors.InvalidArgumentError(
            f"the graph cannot be tried on the sample, give others by samples=: {error.message}"
        ) from error
    try:
        got = run(content, values)
    except LiteError as error:
        raise errors.DataLossError(
            f"the converted graph fails on a sample that the graph accepts: {error}"
        ) from error
    for output, ours, theirs in zip(source.outputs.values(), got, wanted, strict=True):
        most = limit
        if most is None:
            most = HALF_LIMIT if theirs.dtype == np.float16 else LIMIT
        found = difference(ours, np.asarray(theirs))
        if not found <= most:
            raise errors.DataLossError(
                f"output {output.name} of the converted graph differs from the graph's by "
                f"{found:.3g} of its largest value, and at most {most:g} is allowed (limit=)"
            )


def run(content: bytes, values: Sequence[Array]) -> list[Array]:
    """Return the outputs of a file for values of its inputs."""
    interpreter = Interpreter(model_content=content)
    for details, value in zip(interpreter.get_input_details(), values, strict=True):
        if tuple(details["shape"]) != value.shape:
            interpreter.resize_tensor_input(details["index"], value.shape)
    for details, value in zip(interpreter.get_input_details(), values, strict=True):
        interpreter.set_tensor(details["index"], value)
    interpreter.invoke()
    return [interpreter.get_tensor(each["index"]) for each in interpreter.get_output_details()]


def difference(got: Array, wanted: Array) -> float:
    """Return how far two values differ.

    Returns: for floats the largest difference, relative to the largest finite value, or infinity if
      only one of them is NaN or infinite at some place; for other types the fraction of unequal
      elements.
    """
    if got.shape != wanted.shape:
        return float("inf")
    if wanted.dtype.kind != "f":
        return float(np.mean(got != wanted)) if wanted.size else 0.0
    ours, theirs = got.astype(np.float64), wanted.astype(np.float64)
    finite = np.isfinite(theirs)
    if not np.array_equal(ours[~finite], theirs[~finite], equal_nan=True):
        return float("inf")
    scale = float(np.max(np.abs(theirs[finite]), initial=LEAST_SCALE))
    apart = np.abs(ours[finite] - theirs[finite])
    return float(np.max(np.nan_to_num(apart, nan=np.inf), initial=0.0)) / scale

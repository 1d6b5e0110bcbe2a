"""Round-trip check: the results of a file are compared with those of the full runtime."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
"""Default limit of the difference of float16 outputs, which have three digits."""

INT8_LIMIT: Final = 0.1
"""Default limit of the difference of graphs in int8."""

MAX_SAMPLES: Final = 16
"""Maximum number of samples on which file and graph are compared."""

MIN_SCALE: Final = 1e-3
"""Smallest scale of a comparison: smaller outputs are rounding errors of zero."""


def complete(
    samples: Mapping[str, Any], inputs: Mapping[str, Output], bounds: Sequence[tuple[int, ...]]
) -> list[Array]:
    """Return a value for each input: the sample's, normal random numbers, or zeros of other types.

    Raises: InvalidArgumentError: a sample names an unknown input, or does not match its input.
    """
    unknown = samples.keys() - inputs.keys()
    if unknown:
        raise errors.InvalidArgumentError(
            f"samples have names that are not inputs: {sorted(unknown)}"
        )
    random, result = np.random.default_rng(0), []
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
            size <= limit if dim is None else size == limit
            for size, limit, dim in zip(value.shape, bound, dims, strict=True)
        )
        if not fits:
            raise errors.InvalidArgumentError(
                f"the sample of {name} has shape {value.shape}, but the input requires {bound}"
                + (", or less along unknown sizes" if None in dims else "")
            )
        result.append(value)
    return result


def require(
    content: bytes, source: Source, samples: Sequence[Sequence[Array]], limit: float | None
) -> None:
    """Check that the results of a file agree with the graph's.

    Args:
      content: the file.
      source: the graph.
      samples: values of all inputs; if there are more than `MAX_SAMPLES`, an evenly spread
        selection is used.
      limit: the largest permitted `difference` of an output over all samples; None for the
        default of its type.

    Raises:
      DataLossError: they differ by more than the limit.
      InvalidArgumentError: the graph fails on a sample.
    """
    count = min(len(samples), MAX_SAMPLES)
    selected = [samples[i * (len(samples) - 1) // max(1, count - 1)] for i in range(count)]
    try:
        with source.session() as session:
            fetches, inputs = list(source.outputs.values()), list(source.inputs.values())
            expected = [session.run(fetches, dict(zip(inputs, x, strict=True))) for x in selected]
    except errors.OpError as error:
        raise errors.InvalidArgumentError(
            f"the graph failed on the sample; pass other samples with samples=: {error.message}"
        ) from error
    try:
        results = list(run_in_turn(content, selected))
    except LiteError as error:
        raise errors.DataLossError(
            f"the converted graph fails on a sample that the graph accepts: {error}"
        ) from error
    for i, output in enumerate(fetches):
        actual_value, expected_value = (
            [np.asarray(x[i]) for x in side] for side in (results, expected)
        )
        allowed = limit
        if allowed is None:
            allowed = HALF_LIMIT if expected_value[0].dtype == np.float16 else LIMIT
        distance = difference(actual_value, expected_value)
        if not distance <= allowed:
            raise errors.DataLossError(
                f"output {output.name} of the converted graph differs from the graph's by "
                f"{distance:.3g} of its largest value; at most {allowed:g} is allowed (limit=)"
            )


def run(content: bytes, values: Sequence[Array]) -> list[Array]:
    """Run a file on values of its inputs, and return the outputs."""
    return next(run_in_turn(content, [values]))


def run_in_turn(content: bytes, samples: Iterable[Sequence[Array]]) -> Iterator[list[Array]]:
    """Run a file on samples of its inputs; variables keep their values from sample to sample."""
    interpreter = Interpreter(model_content=content)
    for values in samples:
        for details, value in zip(interpreter.get_input_details(), values, strict=True):
            if tuple(details["shape"]) != value.shape:
                interpreter.resize_tensor_input(details["index"], value.shape)
        for details, value in zip(interpreter.get_input_details(), values, strict=True):
            interpreter.set_tensor(details["index"], value)
        interpreter.invoke()
        yield [
            interpreter.get_tensor(output_detail["index"])
            for output_detail in interpreter.get_output_details()
        ]


def difference(results: Sequence[Array], expected: Sequence[Array]) -> float:
    """Return the difference of an output between two lists of results, over all samples.

    Returns: for floats the largest difference, relative to the largest finite value, or infinity if
      only one side is NaN or infinite at some position; for other types the fraction of unequal
      elements. Infinity if the shapes differ.
    """
    if [x.shape for x in results] != [x.shape for x in expected]:
        return float("inf")
    actual_values, expected_values = (
        np.concatenate([x.ravel() for x in side]) for side in (results, expected)
    )
    if expected_values.dtype.kind != "f":
        return float(np.mean(actual_values != expected_values)) if expected_values.size else 0.0
    actual_values, expected_values = (
        actual_values.astype(np.float64),
        expected_values.astype(np.float64),
    )
    finite = np.isfinite(expected_values)
    if not np.array_equal(actual_values[~finite], expected_values[~finite], equal_nan=True):
        return float("inf")
    scale = float(np.max(np.abs(expected_values[finite]), initial=MIN_SCALE))
    errors = np.abs(actual_values[finite] - expected_values[finite])
    return float(np.max(np.nan_to_num(errors, nan=np.inf), initial=0.0)) / scale

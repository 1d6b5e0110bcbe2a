"""Backends of `compare_backends`: files of lite, on this machine and on emulated ones."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from weft_graph.ir.node import Output
from weft_io.porting.backends import Model, Recording
from weft_lite.convert.agreement import INT8_LIMIT
from weft_lite.convert.converter import Converter
from weft_lite.convert.lowered import Array
from weft_lite.convert.machines import Machine, Result, record_here, record_on
from weft_lite.convert.sources import Source, name_tensors
from weft_lite.errors import LiteError
from weft_lite.interpreter import Interpreter
from weft_lite.watching import Op, ops_of
from weft_tensor import errors

_ROUNDINGS: Final = 1.5
"""Accepted error of an int8 op, in steps of its result: one rounding of a half, and of a factor."""

_DEVIATIONS: Final = 6.0
"""Accepted standard deviations of a sum of rounding errors of weights."""

_LANES: Final = 16
"""Columns in a panel of packed weights."""


class Lite:
    """A file of lite on this machine.

    Args:
      samples: for int8, samples of all inputs by name; the values that the model runs on are always
        a further sample, so that no value is clipped.
    """

    def __init__(self, samples: Sequence[Mapping[str, Any]] | None = None) -> None:
        self.name = "lite" if samples is None else "lite-int8"
        self._samples = samples

    def content(self, model: Model) -> bytes:
        """Convert the model. Raises: OpError: lite cannot run it."""
        source = Source(model.graph, name_tensors(model.inputs.values()), _by_node(model))
        names = dict(zip(model.inputs, source.inputs, strict=True))
        feeds = {names[name]: value for name, value in model.feeds.items()}
        calibration = None
        if self._samples is not None:
            renamed = [{names[k]: v for k, v in sample.items()} for sample in self._samples]
            calibration = [feeds, *renamed]
        return Converter._of(source, None).convert(feeds, math.inf, calibration)

    def record(self, model: Model) -> Recording:
        """Convert and run the model. Raises: OpError: lite cannot run it."""
        with _op_errors():
            content = self.content(model)
            results = record_here(content, list(model.feeds.values()))
            return _recording(model, content, results, "")


class Emulated:
    """Files of lite on an emulated machine, which is built once.

    Args:
      machine: the machine.
      files: the files to run, in float and int8.
      file: the file of this backend; one of `files`.
      shared: the recorded results of each graph, which all backends of the machine share.
    """

    def __init__(
        self, machine: Machine, files: Sequence[Lite], file: Lite, shared: dict[Any, Any]
    ) -> None:
        self.name = file.name.replace("lite", machine.name)
        self._machine = machine
        self._files = files
        self._file = file
        self._shared = shared

    def record(self, model: Model) -> Recording:
        """Convert, build and run the model.

        Raises:
          UnavailableError: zig or the emulator is not installed.
          OpError: lite cannot run the model.
        """
        if missing := self._machine.missing():
            raise errors.UnavailableError(f"{self._machine.name} requires {missing}")
        with _op_errors():
            runs_of_model = self._shared.setdefault(model.graph, {})
            if not runs_of_model:
                values = list(model.feeds.values())
                contents = {file.name: file.content(model) for file in self._files}
                runs = record_on(self._machine, [(item, values) for item in contents.values()])
                for (name, item), run in zip(contents.items(), runs, strict=True):
                    runs_of_model[name] = item, run
            content, results = runs_of_model[self._file.name]
            return _recording(model, content, results, self._machine.program)


@contextmanager
def _op_errors() -> Iterator[None]:
    """Convert errors of lite's runtime to those of the other packages."""
    try:
        yield
    except LiteError as error:
        kind = errors.from_code(error.code) if error.code else errors.UnknownError
        raise kind(str(error)) from error


def _by_node(model: Model) -> dict[str, Output]:
    return name_tensors(model.outputs.values())


# ------------------------------------------------------------------------------ recordings


def _recording(model: Model, content: bytes, results: Sequence[Result], detail: str) -> Recording:
    """Return real values by the names of tensors, with tolerances that follow from the scales."""
    scales = _Scales(content, model)
    tensors = {tensor.name: tensor for tensor in (*model.tensors, *model.inputs.values())}
    values: dict[str, Array] = {}
    absolute: dict[str, float] = {}
    ranges: dict[str, tuple[float, float]] = {}
    floats = {tensor.name: model.feeds[name] for name, tensor in model.inputs.items()}
    inner: defaultdict[str, float] = defaultdict(float)  # of results that are no tensors
    for result in results:
        op, index = scales.ops[result.op], result.tensor
        real = scales.add(result)
        accepted = scales.error(op, index)
        name = scales.name(index)
        tensor = tensors.get(name)
        if tensor is None or not tensor.shape.is_compatible_with(real.shape):
            inner[op.name] += accepted
            continue
        if op.kind == "Dequantize" and name in values:
            continue
        if op.kind == "Quantize":
            floats.setdefault(name, values.get(name, real))
        values[name] = real
        if accepted or inner[op.name]:
            absolute[name] = accepted + inner[op.name]
        if limits := scales.limits(index):
            ranges[name] = limits
    tolerances = {name: _relative(error, values[name]) for name, error in absolute.items()}
    alternatives = {name: value for name, value in floats.items() if name in ranges}
    limit = INT8_LIMIT if scales.is_quantized else None
    return Recording(values, tolerances, ranges, alternatives, limit, detail)


def _relative(error: float, value: Array) -> float:
    """Return an absolute error relative to the largest magnitude of a value."""
    largest = float(np.max(np.abs(value), initial=0.0))
    return error / largest if largest else math.inf


class _Scales:
    """The scales in a file, and the errors that follow from them.

    Args:
      content: the file.
      model: the model, with the values of the inputs.
    """

    def __init__(self, content: bytes, model: Model) -> None:
        interpreter = Interpreter(model_content=content)
        self.ops = ops_of(interpreter)
        self._details = interpreter.get_tensor_details()
        self.is_quantized = any(len(self._scales(i)) for i in range(len(self._details)))
        self._constants = set(range(len(self._details)))
        for op in self.ops:
            self._constants.difference_update(op.outputs)
        self._largest: dict[int, float] = {}
        inputs = interpreter.get_input_details()
        for detail, value in zip(inputs, model.feeds.values(), strict=True):
            self._constants.discard(detail["index"])
            self._note(detail["index"], value)

    def _scales(self, index: int) -> Array:
        scales: Array = self._details[index]["quantization_parameters"]["scales"]
        return scales

    def _note(self, index: int, value: Array) -> None:
        self._largest[index] = float(np.max(np.abs(value.astype(np.float64)), initial=0.0))

    def name(self, index: int) -> str:
        """Return the name of the tensor of the graph that a tensor of the file holds."""
        name: str = self._details[index]["name"].removesuffix("/int8").removesuffix("/int16")
        return name if ":" in name else f"{name}:0"

    def add(self, result: Result) -> Array:
        """Return the real numbers of a result."""
        scales, value = self._scales(result.tensor), result.value
        if len(scales) == 1:
            zero = self._details[result.tensor]["quantization"][1]
            value = ((value.astype(np.float64) - zero) * scales[0]).astype(np.float32)
        self._note(result.tensor, value)
        return value

    def limits(self, index: int) -> tuple[float, float] | None:
        """Return the smallest and the largest number that a quantized tensor can hold."""
        if len(self._scales(index)) != 1:
            return None
        scale, zero = self._details[index]["quantization"]
        info = np.iinfo(self._details[index]["dtype"])
        return (info.min - zero) * scale, (info.max - zero) * scale

    def error(self, op: Op, index: int) -> float:
        """Return the largest absolute error of a result that its quantization explains.

        The recorded values of the operands are exact, because they are the quantized ones. So the
        error has three parts: the rounding of the result, that of constants, and for products a sum
        of independent roundings of weights, whose standard deviation is that of a uniform
        distribution.
        """
        result_scales = self._scales(index)
        error = _ROUNDINGS * float(result_scales[0]) if len(result_scales) == 1 else 0.0
        if op.kind in ("Quantize", "Dequantize") or index in self._constants:
            return error
        operands = [i for i in op.inputs if i >= 0]
        inputs = max((self._largest.get(i, 0.0) for i in operands), default=0.0)
        for operand in operands:
            scales = self._scales(operand)
            if operand not in self._constants or not len(scales):
                continue
            step = float(scales.max())
            if not len(result_scales):  # a recurrent cell, whose operands are also quantized
                return INT8_LIMIT * self._largest[index]
            gain = 1.0 if op.kind in ("Add", "Sub", "Maximum", "Minimum") else inputs
            if len(scales) == 1:
                error += step / 2 * gain
            else:
                deviation = step / math.sqrt(12) * math.sqrt(self._num_terms(operand))
                error += _DEVIATIONS * deviation * inputs
        return error

    def _num_terms(self, weights: int) -> float:
        """Return the number of products in one result."""
        shape = [int(size) for size in self._details[weights]["shape"]]
        if len(shape) == 5:  # panels of 16 columns, with rows in groups of 4
            return math.prod(shape[1:]) / _LANES
        return math.prod(shape[:-1])

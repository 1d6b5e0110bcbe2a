"""Writer of lowered graphs: numbers values, plans memory, serializes weights."""

from __future__ import annotations

from collections.abc import Iterable

from weft_lite.convert.lowered import Lowered, Operation, Value
from weft_lite.convert.plan import Plan, plan, size_of
from weft_lite.interpreter import Interpreter
from weft_lite.schema import tables as t
from weft_lite.schema.codec import aligned, encode
from weft_lite.schema.enums import Storage

Names = tuple[str, dict[str, Value], dict[str, Value]]
"""The names of a signature: its key, its inputs and its outputs."""


class Writer:
    """Creates the tables of a lowered graph."""

    def __init__(self, lowered: Lowered) -> None:
        self._lowered = lowered
        self._plan: Plan = plan(lowered)
        self._weights = bytearray()
        self._shared: dict[bytes, int] = {}
        self.numbers: dict[Value, int] = {}
        self._names: dict[Value, str] = {}
        self._tensors: list[t.Tensor] = []

    def content(
        self, signatures: Iterable[tuple[str, dict[str, Value], dict[str, Value]]]
    ) -> bytes:
        """Return the bytes of the file.

        Inputs and outputs have their names in the first signature that contains them.
        """
        signatures = list(signatures)
        for _, inputs, outputs in signatures:
            for name, value in (*inputs.items(), *outputs.items()):
                self._names.setdefault(value, name)
        graphs = [self._lowered, *self._lowered.bodies]
        for value in self._lowered.inputs:
            self._number(value)
        model = t.Model(arena_size=self._plan.size, description="weft")
        for graph in graphs:
            first = len(model.ops)
            model.ops += [self._op(op) for op in graph.ops]
            ends = [
                [self._number(value) for value in part] for part in (graph.inputs, graph.outputs)
            ]
            model.subgraphs.append(t.Subgraph(first, len(graph.ops), *ends))
        for key, inputs, outputs in signatures:
            bound = [
                [t.Binding(name, self._number(value)) for name, value in part.items()]
                for part in (inputs, outputs)
            ]
            model.signatures.append(t.Signature(key, *bound))
        model.tensors = self._tensors
        weights = bytes(self._weights)
        interpreter = Interpreter(model_content=encode(model, weights))
        model.scratch_size = interpreter._library.wl_scratch_needed(interpreter._handle)
        return encode(model, weights)

    def _op(self, op: Operation) -> t.Op:
        """Return the table of an op."""
        inputs = [-1 if value is None else self._number(value) for value in op.inputs]
        outputs = [self._number(value) for value in op.outputs]
        return t.Op(op.kind, inputs, outputs, op.options, op.name)

    def _number(self, value: Value) -> int:
        """Return the index of a value's tensor, which is added at the first use."""
        if value not in self.numbers:
            self.numbers[value] = len(self._tensors)
            self._tensors.append(self._tensor(value))
        return self.numbers[value]

    def _tensor(self, value: Value) -> t.Tensor:
        """Return the table of a value's tensor."""
        scales = value.scales
        quantization = t.Quantization(scales, value.zero_points, value.axis) if scales else None
        open_sizes = -1 in value.declared
        name = self._names.get(value, value.name)
        tensor = t.Tensor(
            name, value.dtype, value.storage, value.layout, list(value.declared),
            list(value.shape) if open_sizes else [], size=size_of(value), quantization=quantization,
        )  # fmt: skip
        if value.storage is Storage.CONSTANT:
            tensor.offset = self._constant_offset(value)
        else:
            tensor.offset = self._plan.offsets.get(value, 0)
        if value.storage is Storage.VARIABLE and value.array is not None:
            tensor.has_initial, tensor.initial = 1, self._constant_offset(value)
        return tensor

    def _constant_offset(self, value: Value) -> int:
        """Return the offset of a constant among the weights; equal constants are stored once."""
        assert value.array is not None
        content = value.array.tobytes()
        if not content:
            return 0
        if content not in self._shared:
            self._weights.extend(bytes(aligned(len(self._weights)) - len(self._weights)))
            self._shared[content] = len(self._weights)
            self._weights.extend(content)
        return self._shared[content]

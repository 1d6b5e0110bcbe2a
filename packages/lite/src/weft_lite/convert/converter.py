"""`Converter`: from a graph whose variables have values to the bytes of a `.weftlite` file."""

from __future__ import annotations

__all__ = ["Converter"]

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from weft_exec.config import SessionConfig
from weft_exec.devices.device import make_devices
from weft_exec.passes.prepare import prepare
from weft_exec.resources.resources import ResourceManager
from weft_exec.session.session import Session
from weft_graph.freezing import convert_variables_to_constants
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Node, Output
from weft_graph.ir.step_graph import ordered
from weft_graph.messages.graph_def import graph_to_def
from weft_graph.messages.import_graph_def import import_graph_def
from weft_lite.convert import agreement
from weft_lite.convert.fuse import fuse
from weft_lite.convert.lowered import Array, Lowered, Value
from weft_lite.convert.quantise import Noise, Quantiser, measure, samples_of
from weft_lite.convert.registry import Builder, NotInLiteError, OpKind, rules
from weft_lite.convert.writer import Writer
from weft_tensor import errors

KEY = "serving_default"


class Converter:
    """Converts a frozen graph.

    Args:
      graph: a graph without variables.
      inputs: what is given a value; outputs of it.
      outputs: what is computed.
      bounds: for inputs whose shapes leave sizes open, by name: a shape with the largest sizes.

    Examples:
      >>> x = wf.placeholder(wf.float32, [2], name="x")
      >>> y = wf.add(x, 1.0, name="y")
      >>> content = wf.lite.Converter(x.graph, [x], [y]).convert()
      >>> wf.lite.Interpreter(model_content=content).get_signature_runner()(x=[1.0, 2.0])["y"]
      array([2., 3.], dtype=float32)
    """

    def __init__(
        self,
        graph: Graph,
        inputs: Sequence[Output],
        outputs: Sequence[Output],
        bounds: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        self._graph = graph
        self._inputs = list(inputs)
        self._outputs = list(outputs)
        self._bounds = dict(bounds or {})

    @classmethod
    def from_session(
        cls,
        session: Any,
        inputs: Sequence[Output],
        outputs: Sequence[Output],
        bounds: Mapping[str, Sequence[int]] | None = None,
    ) -> Converter:
        """A converter of a session's graph, with its variables as constants.

        Args:
          session: a session that has initialised the variables.
          inputs: tensors that are given a value.
          outputs: tensors that are computed.
          bounds: for inputs whose shapes leave sizes open, by name: a shape with the largest sizes.
        Returns: a converter.
        Raises:
          FailedPreconditionError: a variable has no value.

        Examples:
          >>> x = wf.placeholder(wf.float32, [None, 2], name="x")
          >>> y = wf.nn.softmax(x, name="y")
          >>> with wf.Session() as session:
          ...     converter = wf.lite.Converter.from_session(session, [x], [y], {"x": [8, 2]})
          >>> interpreter = wf.lite.Interpreter(model_content=converter.convert())
          >>> interpreter.resize_tensor_input(0, [1, 2])
          >>> interpreter.get_signature_runner()(x=[[0.0, 0.0]])["y"].tolist()
          [[0.5, 0.5]]
        """
        names = [output.node.name for output in (*outputs, *inputs)]
        with session.graph.as_default():
            definition = graph_to_def(session.graph)
        frozen = convert_variables_to_constants(session, definition, list(dict.fromkeys(names)))
        graph = Graph()
        with graph.as_default():
            import_graph_def(frozen, name="")

        def found(output: Output) -> Output:
            return graph.get_operation_by_name(output.node.name).outputs[output.index]

        return cls(graph, [found(x) for x in inputs], [found(y) for y in outputs], bounds)

    def convert(
        self,
        samples: Mapping[str, Any] | None = None,
        limit: float | None = None,
        calibration: Iterable[Mapping[str, Any]] | None = None,
        keep_float: Iterable[str] = (),
    ) -> bytes:
        """The bytes of the file, after a trial: it must give what the graph gives for a sample.

        Args:
          samples: values of inputs by name, for the trial; floats that are not given are random
            normal numbers, and others zeros.
          limit: how far an output may be from the graph's: the largest difference as a part of its
            largest value, of integers and booleans the part that differs; 1e-3 if not given, and
            1e-2 for outputs of float16, and 0.1 in int8.
          calibration: samples of all inputs, by name; if given, the file computes in int8 what it
            can, with the ranges that values have on these. Inputs and outputs stay what they are.
            The first sample is also that of the trial.
          keep_float: results that stay in float all the same, by the names that `noise` gives.
        Returns: the content of a `.weftlite` file.
        Raises:
          UnimplementedError: lite cannot compute some nodes; lists all of them.
          InvalidArgumentError: an input leaves sizes open without a bound; a sample does not fit;
            the calibration set is empty, or an input in it is constant or not finite; a name in
            keep_float is of no result.
          DataLossError: an output differs by more than the limit; says which and by how much.

        Examples:
          >>> x = wf.placeholder(wf.float32, [1, 2], name="x")
          >>> with wf.Session() as session:
          ...     content = wf.lite.Converter.from_session(session, [x], [x + 1.0]).convert()
          >>> content[:8]
          b'weftlite'
        """
        bounds = [self._bound(x) for x in self._inputs]
        if limit is not None and not limit >= 0:
            raise errors.InvalidArgumentError(f"limit must be at least 0, not {limit}")
        keep_float = list(keep_float)
        if keep_float and calibration is None:
            raise errors.InvalidArgumentError("keep_float needs calibration: else all is in float")
        kept = None if calibration is None else samples_of(calibration, self._inputs, bounds)
        values = agreement.complete(samples or {}, self._inputs, bounds)
        if kept is not None:
            values = values if samples else kept[0]
            limit = agreement.INT8_LIMIT if limit is None else limit
        content = self._content(bounds, kept, keep_float)
        fed = dict(zip(self._inputs, values, strict=True))
        agreement.require(content, self._graph, fed, self._outputs, limit)
        return content

    def noise(
        self, calibration: Iterable[Mapping[str, Any]], keep_float: Iterable[str] = ()
    ) -> list[Noise]:
        """What int8 would do to each result, the worst first: candidates for `keep_float`.

        Args:
          calibration: samples of all inputs, by name, as `convert` takes them.
          keep_float: names of results that stay in float.
        Returns: a pair for each result of int8: its name, and the ratio of the signal to the error
          that it and what comes before it make, in decibels; infinite without an error.
        Raises: InvalidArgumentError: as `convert`.

        Examples:
          >>> x = wf.placeholder(wf.float32, [3], name="x")
          >>> converter = wf.lite.Converter(x.graph, [x], [wf.exp(wf.tanh(x, name="t") * 9.0)])
          >>> found = converter.noise([{"x": [-1.0, 0.1, 2.0]}])
          >>> [(name, decibels > 20) for name, decibels in found]
          [('mul', True), ('t', True)]
        """
        bounds = [self._bound(x) for x in self._inputs]
        samples = samples_of(calibration, self._inputs, bounds)
        lowered = self._lowered(bounds)
        quantiser = Quantiser(lowered, measure(lowered, samples), keep_float)
        quantiser.result()
        return quantiser.noise(samples)

    def _content(
        self,
        bounds: Sequence[tuple[int, ...]],
        calibration: Sequence[Sequence[Array]] | None = None,
        keep_float: Iterable[str] = (),
    ) -> bytes:
        """The bytes of the file, which nobody has tried yet."""
        lowered = self._lowered(bounds)
        if calibration is not None:
            ranges = measure(lowered, calibration)
            lowered = Quantiser(lowered, ranges, keep_float).result()
        inputs = {x.node.name: v for x, v in zip(self._inputs, lowered.inputs, strict=True)}
        outputs = {y.node.name: v for y, v in zip(self._outputs, lowered.outputs, strict=True)}
        return Writer(lowered).content([(KEY, inputs, outputs)])

    def _lowered(self, bounds: Sequence[tuple[int, ...]]) -> Lowered:
        """The graph as ops of lite."""
        open_sizes = any(None in self._dims(x) for x in self._inputs)
        host = make_devices(ResourceManager(), SessionConfig())[0]
        with self._graph.as_default():
            step = prepare(self._inputs, self._outputs, [], host)
        shapes = self._shapes(bounds)
        builder = Builder(shapes, open_sizes)
        for source, bound, fed in zip(self._inputs, bounds, step.feeds, strict=True):
            try:
                value = builder.new(source.node.name, source.dtype.name, bound)
            except NotInLiteError as error:
                raise errors.UnimplementedError(f"input {source.name}: {error}") from error
            value.declared = tuple(-1 if d is None else d for d in self._dims(source))
            builder.lowered.inputs.append(value)
            builder.same(fed, value)
        self._lower(ordered(set(step.graph.nodes)), builder)
        try:
            builder.lowered.outputs = self._results(builder, step.fetches)
        except NotInLiteError as error:
            raise errors.UnimplementedError(str(error)) from error
        fuse(builder.lowered)
        return builder.lowered

    def _dims(self, source: Output) -> tuple[int | None, ...]:
        dims = source.dims
        if dims is None:
            raise errors.InvalidArgumentError(f"input {source.name} has no known rank: give it one")
        return tuple(dims)

    def _bound(self, source: Output) -> tuple[int, ...]:
        dims = self._dims(source)
        bound = self._bounds.get(source.node.name, dims)
        fits = len(bound) == len(dims) and all(
            b is not None and d in (None, b) for b, d in zip(bound, dims, strict=True)
        )
        if not fits:
            raise errors.InvalidArgumentError(
                f"input {source.name} has shape {dims}: bounds must give it whole, not {bound}"
            )
        return tuple(int(b) for b in bound if b is not None)

    def _shapes(self, bounds: Sequence[tuple[int, ...]]) -> Any:
        """The shapes of outputs: static ones, or those of a run on zeros of the largest sizes."""
        feeds = {
            x: np.zeros(bound, x.dtype.as_numpy_dtype)
            for x, bound in zip(self._inputs, bounds, strict=True)
        }
        measured: dict[str, tuple[int, ...]] = {}

        def shape_of(output: Output) -> tuple[int, ...]:
            dims = output.dims
            if dims is not None and None not in dims:
                return tuple(int(size) for size in dims if size is not None)
            if output.name not in measured:
                source = self._graph.get_operation_by_name(output.node.name).outputs[output.index]
                try:
                    with Session(graph=self._graph) as session:
                        measured[output.name] = np.shape(session.run(source, feeds))
                except errors.OpError as error:
                    why = f"lite cannot tell its size, since on zeros {error.message}"
                    raise NotInLiteError(why) from error
            return measured[output.name]

        return shape_of

    def _lower(self, nodes: Sequence[Node], builder: Builder) -> None:
        refused: list[str] = []
        known = rules()
        for node in nodes:
            if node.type in ("Const", "_Arg", "_Fetch", "NoOp"):
                continue
            try:
                if node.type not in known:
                    raise NotInLiteError("lite has no such op")
                known[node.type](node, builder)
            except NotInLiteError as error:
                refused.append(f"{node.name} ({node.type}): {error}; made at {node.line}")
                for output in node.outputs:  # so that what follows is looked at as well
                    builder.same(output, Value(output.name, 1, (), ()))  # type: ignore[arg-type]  # because it is never written
        if refused:
            lines = "\n  ".join(refused)
            raise errors.UnimplementedError(f"{len(refused)} nodes are not for lite:\n  {lines}")

    def _results(self, builder: Builder, fetches: Sequence[Output]) -> list[Value]:
        """The outputs: an input, a constant or a value that is one already is copied."""
        found: list[Value] = []
        for output in fetches:
            value = builder.value(output)
            if value in builder.lowered.inputs or value in found or value.array is not None:
                copy = Value(value.name, value.dtype, value.shape, value.declared)
                builder.add(OpKind.Copy, [value], [copy], None, output.node.name)
                value = copy
            found.append(value)
        return found

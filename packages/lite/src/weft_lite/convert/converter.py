"""`Converter`: conversion of an initialized graph to a `.weftlite` file."""

from __future__ import annotations

__all__ = ["Converter"]

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Output
from weft_lite.convert import agreement, sources
from weft_lite.convert.calibration import (
    TRAINED,
    collect_samples,
    measure,
    require_method,
    value_names,
)
from weft_lite.convert.costs import warn_of_loss, warn_of_size
from weft_lite.convert.lowered import Array, Lowered
from weft_lite.convert.lowering import lower
from weft_lite.convert.quantize import (
    ACTIVATIONS,
    Noise,
    Quantizer,
    noise_of_weights,
    require_activations,
)
from weft_lite.convert.shrink import shrink
from weft_lite.convert.sources import Source
from weft_lite.convert.states import keep_states
from weft_lite.convert.tables import fuse_tables
from weft_lite.convert.writer import Writer
from weft_tensor import errors
from weft_tensor.shape import format_dims

KEY = "serving_default"

Bounds = Mapping[str, Sequence[int]]
Values = Mapping[Any, Any]
Shapes = Mapping[str, Sequence[int]]


class Converter:
    """Converter of a frozen graph.

    Inputs and outputs are named after their nodes, or as in a signature or an ONNX model if the
    graph comes from one: in `bounds`, in samples, and in the file's own signature.

    Placeholders that are not inputs become constants, with their value in `values` or their
    default. Conditionals that depend only on these are folded, so a batch normalization with
    `training = placeholder_with_default(False, [])` converts to its inference form.

    Args:
      graph: a graph without variables.
      inputs: the inputs of the file; outputs of nodes of the graph.
      outputs: the tensors that the file computes.
      bounds: largest shapes by name: of inputs with open sizes and of loop variables that grow; for
        a TensorArray that grows, the maximum number of elements.
      values: the values of tensors that are not inputs of the file, by tensor or by name, such
        as `{"keep_prob": 1.0}`. An input named here is no longer an input of the file.
      shapes: shapes, by name, of inputs with open sizes. Unlike with `bounds`, the file accepts
        only this shape, and the conversion computes everything that depends on sizes.

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
        bounds: Bounds | None = None,
        values: Values | None = None,
        shapes: Shapes | None = None,
    ) -> None:
        ends = sources.name_tensors(inputs), sources.name_tensors(outputs)
        self._take(sources.specialize(graph, *ends, values, shapes), bounds)

    def _take(self, source: Source, bounds: Bounds | None) -> None:
        """Set the source and the bounds."""
        self._source = source
        self._bounds = dict(bounds or {})

    @classmethod
    def _of(cls, source: Source, bounds: Bounds | None) -> Converter:
        """Return a converter of a source."""
        result = cls.__new__(cls)
        result._take(source, bounds)
        return result

    @classmethod
    def from_session(
        cls,
        session: Any,
        inputs: Sequence[Output],
        outputs: Sequence[Output],
        bounds: Bounds | None = None,
        variables: Collection[Any] = (),
        values: Values | None = None,
        shapes: Shapes | None = None,
    ) -> Converter:
        """Return a converter of a session's graph, with its variables as constants.

        Args:
          session: a session that has initialized the variables.
          inputs: the tensors to feed.
          outputs: the tensors to compute.
          bounds: as for the class.
          variables: variables, or their names, that keep their value between invocations; their
            initial value, also after `Interpreter.reset_all_variables`, is their current one.
          values: as for the class.
          shapes: as for the class.
        Returns: a converter.
        Raises:
          FailedPreconditionError: a variable has no value.
          NotFoundError: the graph has no such variable, or no tensor with a name in `values`.
          InvalidArgumentError: a value does not match its tensor.

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
        ends = sources.name_tensors(inputs), sources.name_tensors(outputs)
        return cls._of(sources.source_of_session(session, *ends, variables, values, shapes), bounds)

    @classmethod
    def from_frozen_graph(
        cls,
        frozen: Any,
        inputs: Sequence[str],
        outputs: Sequence[str],
        bounds: Bounds | None = None,
        values: Values | None = None,
        shapes: Shapes | None = None,
    ) -> Converter:
        """Return a converter of a graph whose variables are already constants.

        Args:
          frozen: a GraphDef, its bytes, or the path of a file with these bytes.
          inputs: names of the tensors to feed; ":0" may be omitted.
          outputs: names of the tensors to compute.
          bounds: as for the class.
          values: as for the class.
          shapes: as for the class.
        Returns: a converter.
        Raises:
          FileNotFoundError: the file does not exist.
          NotFoundError: a tensor does not exist.
          DataLossError: the file does not contain a GraphDef.
          InvalidArgumentError: the graph has variables.

        Examples:
          >>> x = wf.placeholder(wf.float32, [2], name="x")
          >>> y = wf.square(x, name="y")
          >>> frozen = x.graph.as_graph_def()
          >>> content = wf.lite.Converter.from_frozen_graph(frozen, ["x"], ["y"]).convert()
          >>> wf.lite.Interpreter(model_content=content).get_signature_runner()(x=[1.0, 2.0])["y"]
          array([1., 4.], dtype=float32)
        """
        return cls._of(
            sources.source_of_frozen_graph(frozen, inputs, outputs, values, shapes), bounds
        )

    @classmethod
    def from_saved_model(
        cls,
        saved_model_dir: Any,
        signature_key: str = KEY,
        tags: Iterable[str] = ("serve",),
        bounds: Bounds | None = None,
        variables: Collection[Any] = (),
        values: Values | None = None,
        shapes: Shapes | None = None,
    ) -> Converter:
        """Return a converter of a signature of a SavedModel.

        Args:
          saved_model_dir: the directory.
          signature_key: the key of the signature.
          tags: the tags of its graph.
          bounds: as for the class, by the signature's names of inputs.
          variables: names of variables that keep their value between invocations.
          values: as for the class, also by the signature's names of inputs.
          shapes: as for the class, by the signature's names of inputs.
        Returns: a converter.
        Raises: NotFoundError: the SavedModel, a graph with the tags, or the signature does not
          exist.

        Examples:
          >>> x = wf.placeholder(wf.float32, [None])
          >>> wf.saved_model.simple_save(wf.Session(), "./lite", {"x": x}, {"y": 2.0 * x})
          >>> converter = wf.lite.Converter.from_saved_model("./lite", bounds={"x": [4]})
          >>> interpreter = wf.lite.Interpreter(model_content=converter.convert())
          >>> interpreter.get_signature_list()
          {'serving_default': {'inputs': ['x'], 'outputs': ['y']}}
        """
        return cls._of(
            sources.source_of_saved_model(
                saved_model_dir, signature_key, tags, variables, values, shapes
            ),
            bounds,
        )

    @classmethod
    def from_checkpoint(
        cls,
        prefix: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        bounds: Bounds | None = None,
        variables: Collection[Any] = (),
        values: Values | None = None,
        shapes: Shapes | None = None,
    ) -> Converter:
        """Return a converter of a checkpoint's graph and values.

        Args:
          prefix: checkpoint prefix, as returned by `Saver.save`. `<prefix>.meta` has the graph.
          inputs: names of the tensors to feed; ":0" may be omitted.
          outputs: names of the tensors to compute.
          bounds: as for the class.
          variables: names of variables that keep their value between invocations.
          values: as for the class.
          shapes: as for the class.
        Returns: a converter.
        Raises: NotFoundError: the checkpoint or a tensor does not exist.

        Examples:
          >>> x = wf.placeholder(wf.float32, [2], name="x")
          >>> y = wf.multiply(x, wf.Variable(3.0), name="y")
          >>> with wf.Session() as session:
          ...     session.run(wf.global_variables_initializer())
          ...     prefix = wf.train.Saver().save(session, "./checkpoint/model")
          >>> content = wf.lite.Converter.from_checkpoint(prefix, ["x"], ["y"]).convert()
          >>> wf.lite.Interpreter(model_content=content).get_signature_runner()(x=[1.0, 2.0])["y"]
          array([3., 6.], dtype=float32)
        """
        return cls._of(
            sources.source_of_checkpoint(prefix, inputs, outputs, variables, values, shapes), bounds
        )

    @classmethod
    def from_onnx(
        cls,
        model: Any,
        bounds: Bounds | None = None,
        values: Values | None = None,
        shapes: Shapes | None = None,
    ) -> Converter:
        """Return a converter of an ONNX model; requires the extra `onnx` of weftml-io.

        Args:
          model: path, bytes or ModelProto.
          bounds: as for the class, by the model's names of inputs.
          values: as for the class, by the model's names of inputs.
          shapes: as for the class, by the model's names of inputs.
        Returns: a converter.
        Raises: as for `wf.onnx.import_model`.

        Examples:
          >>> from onnx import helper
          >>> x, y = (helper.make_tensor_value_info(n, 1, [2]) for n in "xy")
          >>> graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
          >>> content = wf.lite.Converter.from_onnx(helper.make_model(graph)).convert()
          >>> wf.lite.Interpreter(model_content=content).get_signature_runner()(x=[-1.0, 2.0])["y"]
          array([0., 2.], dtype=float32)
        """
        return cls._of(sources.source_of_onnx(model, values, shapes), bounds)

    def keep_states(
        self, states: Mapping[str, str], initial: Mapping[str, Any] | None = None
    ) -> Converter:
        """Keep pairs of inputs and outputs inside the file, as variables.

        At the end of an invocation, each of these outputs becomes the value of its input in the
        next one. `Interpreter.reset_all_variables` restores the first values.

        Args:
          states: the output that gives the next value of an input, by the input's name. Both have
            the same element type and the same known shape.
          initial: first values by the names of these inputs; zeros by default.
        Returns: this converter.
        Raises:
          NotFoundError: there is no such input or output, or `initial` names another input.
          InvalidArgumentError: types or shapes of a pair differ, a size is open, two inputs have
            the same output, no other output remains, or a first value does not match its input.

        Examples:
          >>> x, h = (wf.placeholder(wf.float32, [2], name=name) for name in ("x", "h"))
          >>> total, y = wf.add(h, x, name="total"), wf.multiply(h + x, 2.0, name="y")
          >>> converter = wf.lite.Converter(x.graph, [x, h], [total, y])
          >>> content = converter.keep_states({"h": "total"}).convert()
          >>> run = wf.lite.Interpreter(model_content=content).get_signature_runner()
          >>> run(x=[1.0, 2.0])["y"], run(x=[1.0, 2.0])["y"]
          (array([2., 4.], dtype=float32), array([4., 8.], dtype=float32))
        """
        self._source = keep_states(self._source, states, initial)
        return self

    def convert(
        self,
        samples: Mapping[str, Any] | None = None,
        limit: float | None = None,
        calibration: Iterable[Mapping[str, Any]] | None = None,
        keep_float: Iterable[str] = (),
        weights: str = "float32",
        ranges: str = "extremes",
        activations: str = "int8",
    ) -> bytes:
        """Return the bytes of the file, after checking its results against the graph's.

        Args:
          samples: values of inputs by name, for the check; omitted floats are random normal
            numbers, and others zeros.
          limit: maximum difference of an output from the graph's, relative to its largest value;
            for integers and booleans the maximum fraction of unequal elements. The default is 1e-3,
            1e-2 for outputs of float16, and 0.1 in int8.
          calibration: samples of all inputs, by name; if given, the file computes in int8 where
            possible, with the ranges of values on these samples. Inputs and outputs keep their
            types. Without `samples`, up to 16 of them are used for the check.
          keep_float: names of inputs, results or ops that stay in float, such as those that `noise`
            or an error lists; for an input, the ops that read it.
          weights: storage of the weights of float ops: "float32", "float16" (half the
            size), or "int8" with a scale per channel (a quarter). With "dynamic", int8 weights are
            multiplied by int8 activations in convolutions, dense layers and recurrent cells: each
            incoming image or row is quantized with its own scale.
          ranges: calibration method: "extremes" of all samples; "percentile",
            without the lowest and the highest hundredth of a percent of each sample; or the
            "average" of the samples' extremes. The range of a fake-quant op takes precedence. With
            "trained" these give all ranges, and the file computes in int8 without calibration.
          activations: "int8", or "int16" with int8 weights: the only loss is that of the weights,
            at twice the memory of "int8" and about the time of floats.
        Returns: the content of a `.weftlite` file.
        Raises:
          UnimplementedError: lite cannot compute some nodes; the message lists them.
          InvalidArgumentError: an input has open sizes and no bound; a sample does not match
            its input; a form, method or type is unknown, or has no effect; the calibration set is
            empty; on it a result is NaN, or is constant though inputs vary; fake-quant ops do not
            give all ranges; a name in keep_float is not found.
          DataLossError: an output differs by more than the limit; the message says which and by
            how much.

        Examples:
          >>> x = wf.placeholder(wf.float32, [1, 2], name="x")
          >>> with wf.Session() as session:
          ...     content = wf.lite.Converter.from_session(session, [x], [x + 1.0]).convert()
          >>> content[:8]
          b'weftlite'
        """
        bounds, inputs = self._input_bounds(), self._source.inputs
        if limit is not None and not limit >= 0:
            raise errors.InvalidArgumentError(f"limit must be at least 0, not {limit}")
        require_method(ranges, calibration is not None)
        keep_float, in_int8 = list(keep_float), calibration is not None or ranges == TRAINED
        require_activations(activations, in_int8)
        if limit is None and (weights in ("int8", "dynamic") or in_int8):
            limit = agreement.INT8_LIMIT
        if limit is None and weights == "float16":
            limit = agreement.HALF_LIMIT
        if keep_float and not in_int8:
            raise errors.InvalidArgumentError(
                "keep_float requires calibration: without it, everything stays in float"
            )
        calibration_samples = (
            None if calibration is None else collect_samples(calibration, inputs, bounds)
        )
        checked = calibration_samples
        if samples or checked is None:
            checked = [agreement.complete(samples or {}, inputs, bounds)]
        content = self._content(
            bounds, calibration_samples, keep_float, weights, ranges, activations
        )
        agreement.require(content, self._source, checked, limit)
        return content

    def noise(
        self,
        calibration: Iterable[Mapping[str, Any]],
        keep_float: Iterable[str] = (),
        weights: str | None = None,
        ranges: str = "extremes",
        activations: str = "int8",
    ) -> list[Noise]:
        """Return the quantization error of each result, worst first, to choose `keep_float`.

        Args:
          calibration: samples of all inputs, by name, as for `convert`.
          keep_float: as for `convert`.
          weights: "int8", "dynamic" or "float16" to measure the effect of smaller weights only.
          ranges: as for `convert`.
          activations: as for `convert`.
        Returns: for each result that is in int8, or in float with smaller weights: its name; its
          signal-to-noise ratio in decibels, including the errors of preceding ops, or infinity if
          it is exact; and its form. The form is "hybrid" for floats that are computed from int8
          weights in an int8 graph: recurrent cells, and rows of a table whose readers are in float.
        Raises: InvalidArgumentError: as for `convert`.

        Examples:
          >>> x = wf.placeholder(wf.float32, [3], name="x")
          >>> converter = wf.lite.Converter(x.graph, [x], [wf.exp(wf.tanh(x, name="t") * 9.0)])
          >>> found = converter.noise([{"x": [-1.0, 0.1, 2.0]}])
          >>> [(each.name, each.decibels > 20, each.form) for each in found]
          [('mul', True, 'int8'), ('t', True, 'int8')]
        """
        require_method(ranges, calibrated=ranges != TRAINED)
        require_activations(activations, quantized=weights is None)
        bounds = self._input_bounds()
        samples = collect_samples(calibration, self._source.inputs, bounds)
        lowered = self._lower(bounds)
        if weights is not None:
            small = self._lower(bounds)
            shrink(small, weights)
            return noise_of_weights(lowered, small, samples, weights)
        float_names = value_names(lowered, keep_float, self._source.inputs)
        measured = measure(lowered, samples, ranges, float_names, activations)
        quantizer = Quantizer(lowered, measured, float_names, ranges == TRAINED, activations)
        quantizer.result()
        return quantizer.noise(samples)

    def _content(
        self,
        bounds: Sequence[tuple[int, ...]],
        calibration: Sequence[Sequence[Array]] | None = None,
        keep_float: Iterable[str] = (),
        weights: str = "float32",
        ranges: str = "extremes",
        activations: str = "int8",
    ) -> bytes:
        """Return the bytes of the file, without checking it."""
        lowered = self._lower(bounds)
        if calibration is not None or ranges == TRAINED:
            float_names = value_names(lowered, keep_float, self._source.inputs)
            measured = measure(lowered, calibration or (), ranges, float_names, activations)
            in_float, float_bytes = list(lowered.ops), len(self._write(lowered))
            lowered = Quantizer(
                lowered, measured, float_names, ranges == TRAINED, activations
            ).result()
            fuse_tables(lowered)
            shrink(lowered, weights)
            content = self._write(lowered)
            if activations == ACTIVATIONS[0]:
                warn_of_loss(in_float, lowered)
            warn_of_size(len(content), float_bytes)
            return content
        shrink(lowered, weights)
        return self._write(lowered)

    def _write(self, lowered: Lowered) -> bytes:
        """Return the bytes of the file of a lowered graph."""
        inputs = dict(zip(self._source.inputs, lowered.inputs, strict=True))
        outputs = dict(zip(self._source.outputs, lowered.outputs, strict=True))
        return Writer(lowered).content([(KEY, inputs, outputs)])

    def _lower(self, bounds: Sequence[tuple[int, ...]]) -> Lowered:
        """Return the graph lowered to ops of lite."""
        named_bounds = {k: v for k, v in self._bounds.items() if k not in self._source.inputs}
        return lower(self._source, bounds, {k: tuple(map(int, v)) for k, v in named_bounds.items()})

    def _input_bounds(self) -> list[tuple[int, ...]]:
        """Return the largest shape of each input."""
        return [self._bound(name, x) for name, x in self._source.inputs.items()]

    def _bound(self, name: str, source: Output) -> tuple[int, ...]:
        """Return the largest shape of an input, from the bounds or its static shape."""
        dims = source.dims
        if dims is None:
            raise errors.InvalidArgumentError(
                f"input {source.name} has an unknown rank: pass its shape, "
                f"shapes={{{name!r}: [...]}} or --shape {name}=..."
            )
        bound = self._bounds.get(name, dims)
        fits = len(bound) == len(dims) and all(
            b is not None and b >= 0 and d in (None, b) for b, d in zip(bound, dims, strict=True)
        )
        if not fits:
            example = [16 if size is None else size for size in dims]
            raise errors.InvalidArgumentError(
                f"input {source.name} has shape {format_dims(dims)}, got the bound "
                f"{format_dims(tuple(bound))}: pass the largest value of each size, such as "
                f"bounds={{{name!r}: {example}}} or --bound {name}={','.join(map(str, example))}"
            )
        return tuple(int(b) for b in bound if b is not None)

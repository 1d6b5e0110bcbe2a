"""ONNX's backend interface, which its tests use."""

from __future__ import annotations

__all__ = ["Backend"]

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx.backend.base
from onnx import ModelProto, TypeProto

from weft_exec.session.session import Session
from weft_graph.ir.graph import Graph
from weft_io.onnx.importer import ImportedModel, import_model
from weft_io.onnx.model import read
from weft_io.resources.tensor_sequence import TensorSequence
from weft_io.streams.optional import OptionalValue
from weft_tensor import errors


class PreparedModel(onnx.backend.base.BackendRep):
    """A model with its own session.

    Attributes:
      model: the imported model.
      session: its session.
    """

    def __init__(self, proto: ModelProto, model: ImportedModel) -> None:
        self.model = model
        self.session = Session(graph=model.graph)
        self._types = {item.name: item.type for item in proto.graph.input}

    def run(self, inputs: Any, **_: Any) -> tuple[Any, ...]:
        """Run the model.

        Args:
          inputs: values by ONNX's names, or all of them in order; a list is a sequence, None an
            optional without a value.
        Returns: the outputs in order; sequences as lists.
        Raises: InvalidArgumentError: the number of inputs differs from the model's.
        """
        outputs = self.session.run(list(self.model.outputs.values()), self.feeds(inputs))
        return tuple(_take_rows_of(item) for item in outputs)

    def feeds(self, inputs: Any) -> dict[Any, Any]:
        """Return the feed dictionary of `Session.run` for `inputs`.

        Raises: InvalidArgumentError: the number or names of inputs differ from the model's.
        """
        names = list(self.model.inputs)
        if not isinstance(inputs, Mapping):
            values: Sequence[Any] = list(inputs)
            if len(values) > len(names):
                raise errors.InvalidArgumentError(
                    f"the model has {len(names)} inputs, got {len(values)} values"
                )
            inputs = dict(zip(names, values, strict=False))
        if unknown := sorted(set(inputs) - set(names)):
            raise errors.InvalidArgumentError(f"the model has inputs {names}, got {unknown}")
        return {
            self.model.inputs[name]: _convert_input(value, self._types[name])
            for name, value in inputs.items()
        }


class Backend(onnx.backend.base.Backend):
    """weft behind ONNX's interface `onnx.backend.base.Backend`.

    Examples:
      >>> from onnx import helper
      >>> x, y = (helper.make_tensor_value_info(n, 1, [2]) for n in "xy")
      >>> graph = helper.make_graph([helper.make_node("Abs", ["x"], ["y"])], "g", [x], [y])
      >>> wf.onnx.Backend.run_model(helper.make_model(graph), [np.float32([-1, 2])])
      (array([1., 2.], dtype=float32),)
    """

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **_: Any) -> PreparedModel:
        """Import a model into a new graph.

        Args:
          model: as for `import_model`.
          device: "CPU".
        Raises:
          InvalidArgumentError: the device is unknown, or the model is damaged.
          UnimplementedError: weft does not support an op.
        """
        if not cls.supports_device(device):
            raise errors.InvalidArgumentError(f"models run on 'CPU', got {device!r}")
        proto, _folder = read(model)
        with Graph().as_default():
            return PreparedModel(proto, import_model(model))

    @classmethod
    def run_model(cls, model: Any, inputs: Any, device: str = "CPU", **_: Any) -> tuple[Any, ...]:
        """Import a model and run it once.

        Args:
          model, device: as for `prepare`.
          inputs: as for `Prepared.run`.
        Returns: the outputs in order.
        Raises: as `prepare` does.
        """
        prepared = cls.prepare(model, device)
        with prepared.session:
            return prepared.run(inputs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Return True if the device is supported: "CPU" or "CPU:0"."""
        return device.split(":")[0] == "CPU"


def _convert_input(value: Any, kind: TypeProto) -> Any:
    if kind.HasField("optional_type"):
        if value is None:
            return OptionalValue(None)
        return OptionalValue((_convert_input(value, kind.optional_type.elem_type),))
    if isinstance(value, (list, tuple)) and kind.HasField("sequence_type"):
        return TensorSequence([array_of(item) for item in value])
    return value if isinstance(value, TensorSequence) else array_of(value)


def _take_rows_of(value: Any) -> Any:
    if isinstance(value, OptionalValue):
        return None if value.element is None else _take_rows_of(value.element[0])
    if isinstance(value, TensorSequence):
        return [_take_rows_of(item) for item in value]
    if isinstance(value, bytes):  # text of rank 0
        value = np.array(value, object)
    is_text = isinstance(value, np.ndarray) and value.dtype.hasobject
    return _text(value) if is_text else value


def _text(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Convert bytes to str, the type of ONNX's strings."""
    result = np.empty(value.size, object)
    result[:] = [item.decode("utf-8", "replace") for item in value.reshape(-1)]
    return result.reshape(value.shape)


def array_of(value: Any) -> np.ndarray[Any, Any]:
    """Convert a value to an array to feed; text becomes bytes."""
    array = np.asarray(value)
    if array.dtype.kind not in "UO":
        return array
    flat = [item.encode() if isinstance(item, str) else item for item in array.reshape(-1)]
    elements = np.empty(len(flat), object)
    elements[:] = flat
    return elements.reshape(array.shape)

"""The parameters of a model in another system's file: names, shapes, and values on demand."""

from __future__ import annotations

__all__ = ["read_parameters"]

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from weft_graph import proto
from weft_graph.ir.graph import Graph
from weft_graph.ir.op_def import traits_of
from weft_graph.ir.traits import Role
from weft_graph.messages.tensor_proto import make_ndarray
from weft_graph.variables.reference import global_variables
from weft_io.checkpoint.index import INDEX_SUFFIX
from weft_io.checkpoint.reader import CheckpointReader
from weft_io.checkpoint.state import latest_in
from weft_io.files import paths
from weft_io.files.message_files import read_message
from weft_tensor import dtypes, errors

Array: TypeAlias = np.ndarray[Any, Any]

_BOOKKEEPING = frozenset({"_CHECKPOINTABLE_OBJECT_GRAPH", "global_step"})


@dataclass(frozen=True)
class Parameter:
    """A weight of a model.

    Attributes:
      name: its name in the file or graph.
      shape: the static shape.
      dtype: name of the element type, such as "float32".
      read: returns the value; None if the file has no values.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    read: Callable[[], Array] | None = None

    @property
    def num_elements(self) -> int:
        """The number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))


Parameters: TypeAlias = dict[str, Parameter]


def read_parameters(source: Any, session: Any = None) -> Parameters:
    """Return the parameters of a model by name, in the order of the file.

    Args:
      source: one of
        - a graph: its global variables;
        - a mapping from names to arrays, such as a PyTorch `state_dict` converted to NumPy;
        - the path of a checkpoint, of weft or TensorFlow; a directory means its latest checkpoint;
        - a file `*.onnx`, `*.safetensors` or `*.npz`;
        - a GraphDef in binary or text form, `*.pb` or `*.pbtxt`: its variables, and constants of
          floating-point type that have at least rank 1.
      session: with a graph, the session that has the values of its variables.
    Raises:
      NotFoundError: the file does not exist.
      InvalidArgumentError, DataLossError: it cannot be read, or `source` is of another kind.
      ImportError: a package that reads such files is missing.

    Examples:
      >>> np.savez("model.npz", weights=np.ones([2, 3]))
      >>> wf.porting.read_parameters("model.npz")["weights"].shape
      (2, 3)
    """
    if isinstance(source, Graph):
        return _parameters_of_graph(source, session)
    if isinstance(source, Mapping):
        return _parameters_of_arrays({name: np.asarray(value) for name, value in source.items()})
    if not isinstance(source, str | os.PathLike):
        raise errors.InvalidArgumentError(
            f"parameters can be read from a graph, a mapping or a path, got {type(source).__name__}"
        )
    path = paths.as_path(source)
    reader = _READERS.get(Path(path).suffix, _parameters_of_checkpoint)
    return reader(path)


def _by_name(parameters: list[Parameter]) -> Parameters:
    return {p.name: p for p in parameters if p.name not in _BOOKKEEPING}


def _parameters_of_graph(graph: Graph, session: Any) -> Parameters:
    result = []
    with graph.as_default():
        variables = global_variables()
    for variable in variables:
        shape = variable.shape
        if not shape.is_fully_defined():
            raise errors.InvalidArgumentError(
                f"variable {variable.name!r} must have a static shape to be compared, got {shape}"
            )
        read = None if session is None else partial(session.run, variable.value())
        name = variable.name.removesuffix(":0")
        dtype = variable.dtype.base_dtype.name
        result.append(Parameter(name, tuple(shape.as_list()), dtype, read))
    return _by_name(result)


def _parameters_of_arrays(arrays: Mapping[str, Array]) -> Parameters:
    return _by_name(
        [
            Parameter(name, value.shape, value.dtype.name, partial(np.asarray, value))
            for name, value in arrays.items()
        ]
    )


def _parameters_of_checkpoint(path: str) -> Parameters:
    reader = CheckpointReader(latest_in(path.removesuffix(INDEX_SUFFIX)))
    types = reader.get_variable_to_dtype_map()
    return _by_name(
        [
            Parameter(name, tuple(shape), types[name].name, partial(reader.get_tensor, name))
            for name, shape in reader.get_variable_to_shape_map().items()
            if types[name] is not dtypes.string
        ]
    )


def _parameters_of_onnx(path: str) -> Parameters:
    from onnx import helper, numpy_helper

    from weft_io.onnx import model  # reports how to install onnx if it is missing

    read, folder = model.read(path)
    base = "" if folder is None else str(folder)
    return _by_name(
        [
            Parameter(
                tensor.name,
                tuple(tensor.dims),
                helper.tensor_dtype_to_np_dtype(tensor.data_type).name,
                partial(numpy_helper.to_array, tensor, base),
            )
            for tensor in read.graph.initializer
        ]
    )


def _parameters_of_safetensors(path: str) -> Parameters:
    try:
        from safetensors import SafetensorError, safe_open
    except ModuleNotFoundError as error:
        raise ImportError(
            f"reading {path} requires the package safetensors: pip install 'weftml-io[porting]'"
        ) from error
    try:
        file: Any = safe_open(path, framework="numpy")
    except FileNotFoundError:
        raise errors.NotFoundError(f"there is no file {path!r}") from None
    except SafetensorError as error:
        raise errors.DataLossError(f"{path} cannot be read: {error}") from error
    result = []
    for name in file.keys():  # noqa: SIM118  # not a mapping
        part = file.get_slice(name)
        dtype = _SAFETENSORS_TYPES.get(part.get_dtype(), part.get_dtype())
        read = partial(file.get_tensor, name)
        result.append(Parameter(name, tuple(part.get_shape()), dtype, read))
    return _by_name(result)


_SAFETENSORS_TYPES = {
    "BF16": "bfloat16", "BOOL": "bool", "F16": "float16", "F32": "float32", "F64": "float64",
    "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64", "U8": "uint8",
}  # fmt: skip


def _parameters_of_npz(path: str) -> Parameters:
    try:
        with np.load(path, allow_pickle=False) as file:
            return _parameters_of_arrays(dict(file))
    except FileNotFoundError:
        raise errors.NotFoundError(f"there is no file {path!r}") from None
    except (ValueError, OSError) as error:
        raise errors.DataLossError(f"{path} cannot be read: {error}") from error


def _parameters_of_graph_def(path: str) -> Parameters:
    message: Any = read_message(path, proto.GraphDef)
    result = []
    for node in message.node:
        role = traits_of(node.op).role
        if role is Role.VARIABLE:
            shape = tuple(dim.size for dim in node.attr["shape"].shape.dim)
            dtype = dtypes.as_dtype(node.attr["dtype"].type)
            result.append(Parameter(node.name, shape, dtype.name))
        elif role is Role.CONSTANT:
            dtype = dtypes.as_dtype(node.attr["dtype"].type)
            tensor = node.attr["value"].tensor
            shape = tuple(dim.size for dim in tensor.tensor_shape.dim)
            if shape and dtype.is_floating:
                result.append(
                    Parameter(node.name, shape, dtype.name, partial(make_ndarray, tensor))
                )
    return _by_name(result)


_READERS: dict[str, Callable[[str], Parameters]] = {
    ".npz": _parameters_of_npz,
    ".onnx": _parameters_of_onnx,
    ".pb": _parameters_of_graph_def,
    ".pbtxt": _parameters_of_graph_def,
    ".safetensors": _parameters_of_safetensors,
}

"""Reading of ONNX models, which are untrusted."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import GraphProto, ModelProto, NodeProto

from weft_io.onnx.large_weights import Bytes, extract_large_weights
from weft_tensor import errors
from weft_tensor.nesting import format_value


def read(model: Any) -> tuple[ModelProto, Path | None]:
    """Read a model; return it with its folder, which may contain external data.

    Args:
      model: path, bytes or ModelProto.
    Raises:
      NotFoundError: the file does not exist.
      InvalidArgumentError: the bytes are not a model, or are damaged.
    """
    if isinstance(model, ModelProto):
        return model, None
    data, label, folder = _bytes(model, Path.read_bytes)
    return _parse(bytes(data), label), folder


def read_with_extraction(model: Any) -> tuple[ModelProto, Path | None, Mapping[bytes, Bytes]]:
    """Read a model with keys in place of large weights; also return the bytes by key."""
    if isinstance(model, ModelProto):
        return model, None, {}
    data, label, folder = _bytes(model, _changeable)
    remainder, weights = extract_large_weights(data)
    del data  # weights hold references to the parts they need
    return _parse(remainder, label), folder, weights


def _bytes(
    model: Any, contents: Callable[[Path], bytes | memoryview]
) -> tuple[bytes | memoryview, str, Path | None]:
    """Return the bytes of a model, a description for messages, and the folder."""
    if isinstance(model, (bytes, bytearray, memoryview)):
        return bytes(model), f"{len(model)} bytes", None
    if not isinstance(model, (str, os.PathLike)):
        raise errors.InvalidArgumentError(
            f"a model must be a path, bytes or a ModelProto, got {format_value(model)}"
        )
    path = Path(model)
    try:
        return contents(path), repr(str(path)), path.parent
    except FileNotFoundError:
        raise errors.NotFoundError(f"no file {str(path)!r}") from None
    except OSError as error:
        raise errors.InvalidArgumentError(f"cannot read {str(path)!r}: {error}") from error


def _changeable(path: Path) -> memoryview:
    """Read a file into writable memory."""
    with path.open("rb", buffering=0) as file:
        data = np.empty(os.fstat(file.fileno()).st_size, np.uint8)  # of large pages, not cleared
        count = file.readinto(data.data) or 0
        if remainder := file.read():  # a single call may return less, for example for a pipe
            data = np.concatenate([data[:count], np.frombuffer(remainder, np.uint8)])
        elif count < data.size:
            data = data[:count]
    return data.data


def _parse(data: bytes, label: str) -> ModelProto:
    try:
        model = onnx.load_model_from_string(data)
    except DecodeError as error:
        raise errors.InvalidArgumentError(f"{label}: not an ONNX model: {error}") from error
    if not model.HasField("graph"):
        raise errors.InvalidArgumentError(f"{label}: the ONNX model has no graph")
    return model


def opsets(imports: Iterable[Any], label: str) -> dict[str, int]:
    """Return the opset version of each domain.

    Raises: InvalidArgumentError: a domain has two versions, or an invalid one.
    """
    result: dict[str, int] = {}
    for item in imports:
        domain = normalize_domain(item.domain)
        if not 1 <= item.version < 2**31 or result.setdefault(domain, item.version) != item.version:
            raise errors.InvalidArgumentError(
                f"{label} imports version {item.version} of the domain {domain or 'ai.onnx'!r}"
                + (f" and {result[domain]}" if domain in result else "")
            )
    return result


def normalize_domain(domain: str) -> str:
    """Return the domain; both names of the standard domain become ""."""
    return "" if domain == "ai.onnx" else domain


def subgraphs(node: NodeProto) -> list[GraphProto]:
    """Return the graphs in the attributes of a node."""
    graphs = []
    for attribute in node.attribute:
        if attribute.HasField("g"):
            graphs.append(attribute.g)
        graphs += attribute.graphs
    return graphs


def unsupported(message: str, remedy: str) -> errors.UnimplementedError:
    """Return the error for something that weft does not support, with what a user can do."""
    return errors.UnimplementedError(message, details={"remedy": remedy})


def add_location(error: errors.OpError, node: NodeProto) -> errors.OpError:
    """Add the ONNX node to an error, unless it already names an inner node."""
    if "onnx_node" not in error.details:
        name = node.name or ", ".join(node.output)
        error.details["onnx_node"] = name
        error.message = f"ONNX node {name!r} ({node.op_type}): {error.message}"
        error.args = (error.message,)
    return error

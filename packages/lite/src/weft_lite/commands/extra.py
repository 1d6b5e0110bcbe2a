"""What `convert` and `compare` share: they need the extra `convert`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from weft_lite.errors import BY_CODE, InvalidArgumentError, LiteError

if TYPE_CHECKING:
    from weft_graph.ir.graph import Graph


@contextmanager
def plain_errors() -> Iterator[None]:
    """What the packages of the extra raise, as errors of this one."""
    try:
        from weft_tensor.errors import OpError
    except ImportError as error:
        raise LiteError(
            f"this needs the extra: pip install 'weftml-lite[convert]' ({error})"
        ) from error
    try:
        yield
    except OpError as error:
        raise BY_CODE.get(error.code, LiteError)(error.message) from error
    except ImportError as error:  # onnx, which only some need
        raise LiteError(str(error)) from error


def read_graph(path: Path) -> Graph:
    """The graph of a file.

    Raises: InvalidArgumentError: it holds no GraphDef.
    """
    from google.protobuf.message import DecodeError

    from weft_graph import proto
    from weft_graph.ir.graph import Graph
    from weft_graph.messages.import_graph_def import import_graph_def

    message, graph = proto.GraphDef(), Graph()
    try:
        message.ParseFromString(path.read_bytes())
    except DecodeError as error:
        raise InvalidArgumentError(f"{path} holds no GraphDef: {error}") from error
    with graph.as_default():
        import_graph_def(message, name="")
    return graph

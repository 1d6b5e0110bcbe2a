"""Names of variables in object-based checkpoints."""

from __future__ import annotations

from typing import Final

from weft_graph import proto
from weft_io.checkpoint.reader import CheckpointReader
from weft_tensor import errors

GRAPH_KEY: Final = "_CHECKPOINTABLE_OBJECT_GRAPH"
"""The name of the tensor that describes the objects."""


def read_object_graph(reader: CheckpointReader) -> proto.TrackableObjectGraph | None:
    """Return the object graph of a checkpoint; None if it is not object-based.

    Raises: DataLossError: the checkpoint is damaged.
    """
    from google.protobuf.message import DecodeError

    if not reader.has_tensor(GRAPH_KEY):
        return None
    try:
        return proto.TrackableObjectGraph.FromString(bytes(reader.get_tensor(GRAPH_KEY)))
    except (DecodeError, TypeError) as cause:
        raise errors.DataLossError(
            f"the object graph of {reader.prefix} is damaged: {cause}"
        ) from cause


def names_of_objects(prefix: str) -> dict[str, str]:
    """Map variable names to their names in an object-based checkpoint; empty for other kinds."""
    message = read_object_graph(CheckpointReader(prefix))
    if message is None:
        return {}
    attributes = [attribute for node in message.nodes for attribute in node.attributes]
    return {
        attribute.full_name: attribute.checkpoint_key
        for attribute in attributes
        if attribute.full_name
    }

"""Registry of readable checkpoint formats: weft's, TensorFlow's, and those of packages.

A package adds one through the entry-point group `weft_io.checkpoint_formats`: a module that calls
`register_format` when it is imported. It is imported at the first index that is not weft's own.
"""

from __future__ import annotations

from typing import Final

from weft_graph.ir.registry import Registry
from weft_io.checkpoint.format import CheckpointFormat, CheckpointIndex
from weft_io.checkpoint.index import Index
from weft_io.checkpoint.weft_format import WeftFormat
from weft_tensor import errors

_formats: Final[Registry[CheckpointFormat]] = Registry(
    "checkpoint format", "weft_io.bundle.format", "weft_io.checkpoint_formats"
)
_WEFT: Final = WeftFormat()


def register_format(name: str, format: CheckpointFormat) -> None:
    """Add a format; its indexes have `name` as their `format`.

    Raises: AlreadyExistsError: the name is taken.
    """
    _formats.register(name, format)


register_format(Index.format, _WEFT)


def format_of(index: CheckpointIndex) -> CheckpointFormat:
    """Return the format of an index."""
    return _formats.lookup(index.format)


def recognize_format(data: bytes, path: str) -> CheckpointFormat:
    """Return the format of the bytes of an index file.

    Args:
      path: the file, for messages.
    Raises: DataLossError: no format recognizes it.
    """
    if _WEFT.recognizes(data):  # without loading the others
        return _WEFT
    for name in _formats:
        if (result := _formats.lookup(name)).recognizes(data):
            return result
    raise errors.DataLossError(
        f"{path} is damaged, or is not the index of a checkpoint in one of the formats "
        f"{', '.join(_formats)}"
    )


def parse_index(data: bytes, path: str) -> CheckpointIndex:
    """Parse the bytes of an index file; see `CheckpointFormat.parse` for arguments and errors."""
    return recognize_format(data, path).parse(data, path)

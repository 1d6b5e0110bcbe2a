"""Files of protobuf messages, in binary or text form."""

from __future__ import annotations

from typing import Any, Final, TypeVar

from weft_graph import proto
from weft_io.files import checksum_header, paths
from weft_tensor import errors
from weft_tensor.os_errors import convert_os_errors

M = TypeVar("M")

_MAX_BYTES: Final = 2**31 - 1
"""The maximum size of a message in bytes."""

_THEIRS: Final = "tensorflow."
_OURS: Final = "weft."


class _Types:
    """The descriptor pool for the messages inside an `Any` in text format."""

    def FindMessageTypeByName(self, name: str) -> Any:  # noqa: N802 - protobuf's name
        if name.startswith(_THEIRS):
            name = _OURS + name.removeprefix(_THEIRS)
        return proto.descriptor_pool().FindMessageTypeByName(name)


def read_message(path: str, kind: type[M], as_text: bool | None = None) -> M:
    """Read the message in a file.

    Args:
      kind: its class in `weft_graph.proto`.
      as_text: True if it is text; None to detect it.
    Raises:
      NotFoundError: the file does not exist.
      DataLossError: it does not contain such a message, or its checksum is wrong.
    """
    path = paths.as_path(path)
    with convert_os_errors("reading", path):
        data = paths.read_bytes(path)
    if len(data) > _MAX_BYTES:
        raise errors.DataLossError(
            f"{path} has {len(data)} bytes; a message can have at most {_MAX_BYTES}"
        )
    if not data:  # which would be a message without fields
        raise errors.DataLossError(f"{path} is empty")
    return parse_message(data, path, kind, as_text)


def parse_message(data: bytes, path: str, kind: type[M], as_text: bool | None = None) -> M:
    """Parse the message in a file's bytes; see `read_message` for arguments and errors."""
    from google.protobuf import text_format
    from google.protobuf.message import DecodeError

    untyped: Any = kind
    name = untyped.DESCRIPTOR.name
    reasons = []
    if not as_text:
        form = checksum_header.BINARY.get(name)
        begin = form.size if form is not None and form.begins(data, path) else 0
        try:
            message: M = untyped.FromString(memoryview(data)[begin:])
            return message
        except DecodeError as cause:
            reasons.append(f"as a binary message: {cause}")
    if as_text is not False:
        checksum_header.TEXT.begins(data, path)
        try:
            message = untyped()
            pool: Any = _Types()
            text_format.Parse(data.decode(), message, descriptor_pool=pool)  # type: ignore[type-var]
            return message
        except (text_format.ParseError, UnicodeDecodeError, RecursionError) as cause:
            reasons.append(f"as text: {cause}")
    raise errors.DataLossError(f"{path} is not a {name}: {'; '.join(reasons)}")


def message_bytes(message: Any, as_text: bool = False) -> bytes:
    """Serialize a message for a file; see `message_parts`."""
    return b"".join(message_parts(message, as_text))


def message_parts(message: Any, as_text: bool = False) -> list[bytes]:
    """Serialize a message for a file, after a checksum if its type has a form for one.

    Returns: the contents of the file in parts, so that a large message is not copied.
    Raises: InvalidArgumentError: the message has 2 GiB or more.
    """
    from google.protobuf import text_format
    from google.protobuf.message import EncodeError

    try:
        if as_text:
            return [
                checksum_header.TEXT.add_checksum(text_format.MessageToString(message).encode())
            ]
        data: bytes = message.SerializeToString(deterministic=True)
    except (EncodeError, ValueError) as cause:
        raise errors.InvalidArgumentError(
            f"a {message.DESCRIPTOR.name} must have less than 2 GiB: {cause}"
        ) from cause
    form = checksum_header.BINARY.get(message.DESCRIPTOR.name)
    return [data] if form is None else [form.start(data), data]


def write_message(path: str, message: Any, as_text: bool = False) -> None:
    """Write a message to a file atomically, creating its directory if needed."""
    path = paths.as_path(path)
    parts = message_parts(message, as_text)
    with convert_os_errors("writing", path):
        storage = paths.storage_of(path)
        storage.make_directory(paths.split_prefix(path)[0])
        storage.write_atomically(path, *parts)


# --------------------------------------------------------------------------- Any


def pack(message: Any) -> Any:
    """Return an `Any` that contains a message, under TensorFlow's type name."""
    kind = proto.descriptor_pool().FindMessageTypeByName("google.protobuf.Any")
    from google.protobuf import message_factory

    name = message.DESCRIPTOR.full_name.removeprefix(_OURS)
    return message_factory.GetMessageClass(kind)(
        type_url=f"type.googleapis.com/{_THEIRS}{name}",
        value=message.SerializeToString(deterministic=True),
    )


def unpack(item: Any, kind: type[M]) -> M | None:
    """Return the message in an `Any`; None if its type is not `kind`.

    Raises: DataLossError: its bytes cannot be parsed.
    """
    from google.protobuf.message import DecodeError

    untyped: Any = kind
    if item.type_url.rpartition(".")[2] != untyped.DESCRIPTOR.name:
        return None
    try:
        message: M = untyped.FromString(item.value)
    except DecodeError as cause:
        raise errors.DataLossError(
            f"an Any does not contain a {untyped.DESCRIPTOR.name}: {cause}"
        ) from cause
    return message


def is_any(item: Any) -> bool:
    """Return True if an object is an `Any` of any descriptor pool."""
    name = getattr(getattr(item, "DESCRIPTOR", None), "full_name", "")
    return bool(name == "google.protobuf.Any")

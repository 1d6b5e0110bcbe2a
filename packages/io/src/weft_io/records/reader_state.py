"""Serialization of the state of a reader.

    8 bytes  "weftread"
    4 bytes  version, 1
    4 bytes  length of the JSON
    n bytes  JSON: {"reader": kind, "settings": {...}, "records_produced": n,
             "work_units_completed": n, "current": null or [file, base, taken, number],
             "waiting": [file or [file, base, taken, number], ...]}
    4 bytes  CRC-32C of everything before

Integers are little-endian. Bytes of file names that are not UTF-8 are stored as lone surrogates.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from weft_io.records.sealed_state import Seal
from weft_tensor import errors

_SEAL: Final = Seal("a reader's state", b"weftread", 1, "I")
_LARGEST: Final = 2**63


class ReaderPosition(NamedTuple):
    """A position in a file.

    Attributes:
      base: the offset of a piece of the file.
      taken: number of records of that piece that were returned.
      number: number of records of the file that were returned.
    """

    base: int
    taken: int
    number: int


START: Final = ReaderPosition(0, 0, 0)


class ReaderState(NamedTuple):
    """The state of a reader.

    Attributes:
      kind, settings: kind and settings of the reader.
      records_produced, work_units_completed: its counters.
      current: the current file and the position in it.
      waiting: files to read next, and the positions to start at.
    """

    kind: str
    settings: Mapping[str, Any]
    records_produced: int
    work_units_completed: int
    current: tuple[bytes, ReaderPosition] | None
    waiting: list[tuple[bytes, ReaderPosition]]


def encode(state: ReaderState) -> bytes:
    """Serialize a state."""
    fields = {
        "reader": state.kind,
        "settings": dict(state.settings),
        "records_produced": state.records_produced,
        "work_units_completed": state.work_units_completed,
        "current": state.current and [_text(state.current[0]), *state.current[1]],
        "waiting": [
            _text(path) if position == START else [_text(path), *position]
            for path, position in state.waiting
        ],
    }
    return _SEAL.close(json.dumps(fields).encode())


def decode(data: bytes) -> ReaderState:
    """Deserialize a state.

    Raises: InvalidArgumentError: the bytes are not a reader's state, or of a newer version;
      DataLossError: they are damaged.
    """
    _SEAL.check(data)
    return _state_of(data[_SEAL.start : -4])


def _state_of(body: bytes) -> ReaderState:
    try:
        fields = json.loads(body)
        current = fields["current"]
        return ReaderState(
            kind=_validate(fields["reader"], str),
            settings=_validate(fields["settings"], dict),
            records_produced=_count(fields["records_produced"]),
            work_units_completed=_count(fields["work_units_completed"]),
            current=None if current is None else _part(current),
            waiting=[
                _part(file) if isinstance(file, list) else (_path(file), START)
                for file in _validate(fields["waiting"], list)
            ],
        )
    except (ValueError, KeyError, TypeError, IndexError, RecursionError) as cause:
        raise errors.InvalidArgumentError(
            f"a reader's state does not have the required fields: {cause!r}"
        ) from cause


def _part(fields: Any) -> tuple[bytes, ReaderPosition]:
    return _path(fields[0]), _parse_position(fields[1:])


def _parse_position(numbers: Any) -> ReaderPosition:
    base, num_read, number = _validate(numbers, list)
    return ReaderPosition(_count(base), _count(num_read), _count(number))


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < _LARGEST:
        raise ValueError(f"a count must be in [0, 2**63), got {value!r}")
    return value


def _validate(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError(f"must be {kind.__name__}, got {value!r}")
    return value


def _text(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")


def _path(text: Any) -> bytes:
    path: bytes = _validate(text, str).encode("utf-8", "surrogateescape")
    return path

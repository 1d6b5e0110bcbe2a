"""Measurements in a JSON file whose header identifies the format and checks the rest.

    {"format":"weft cost model","version":1,"bytes":N,"crc32":C,"measurements":{...}}

`bytes` is the length of the value of `measurements` in UTF-8, and `crc32` its checksum. The value
contains a string table, to which `nodes`, `ops` and `sizes` refer by index.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final

from weft_exec.costs.measurements import Mean, Measurements, Ratio
from weft_tensor import errors

_FORMAT: Final = "weft cost model"
_VERSION: Final = 1
_LARGEST: Final = 1 << 26
"""Maximum file size in bytes; a full model with ordinary names takes a third of this."""
_GREATEST: Final = 1e18
"""Maximum number of seconds, bytes or executions; sums of a few of these remain finite."""
_HEADER: Final = re.compile(
    rb'\{"format":"weft cost model","version":(\d{1,9}),'
    rb'(?:"bytes":(\d{1,12}),"crc32":(\d{1,10}),"measurements":)?'
)


class _DamagedFile(Exception):  # noqa: N818 - internal: becomes a DataLossError with the file's name
    """Signal that a file is damaged; the message has the requirement and the actual content."""


# --------------------------------------------------------------------------- writing


def write(path: str, measurements: Measurements) -> None:
    """Write measurements to a file atomically.

    Raises:
      ResourceExhaustedError: they exceed the maximum file size.
      NotFoundError: the directory does not exist.
    """
    body = json.dumps(_to_json(measurements), separators=(",", ":"), allow_nan=False).encode()
    head = (
        f'{{"format":"{_FORMAT}","version":{_VERSION},"bytes":{len(body)},'
        f'"crc32":{zlib.crc32(body)},"measurements":'
    ).encode()
    size = len(head) + len(body) + 2
    if size > _LARGEST:
        raise errors.ResourceExhaustedError(
            f"{path}: a cost model file must have at most {_LARGEST} bytes, but this one would "
            f"have {size}"
        )
    try:
        _replace(path, head + body + b"}\n")
    except FileNotFoundError as error:
        raise errors.NotFoundError(f"{path}: the directory does not exist") from error


def _replace(path: str, data: bytes) -> None:
    directory, base = os.path.split(path)
    temporary_path = os.path.join(directory, f".{base}.{os.urandom(8).hex()}")
    try:
        with open(temporary_path, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary_path, path)
    except BaseException:  # because no temporary file may be left behind
        with suppress(FileNotFoundError):
            os.unlink(temporary_path)
        raise


def _to_json(measurements: Measurements) -> dict[str, Any]:
    texts: dict[str, int] = {}

    def row(key: tuple[str, ...], *values: Any) -> list[Any]:
        return [*(texts.setdefault(part, len(texts)) for part in key), *values]

    nodes = [row(key, mean.value, mean.weight) for key, mean in measurements.nodes.items()]
    ops = [row(key, mean.value, mean.weight) for key, mean in measurements.ops.items()]
    sizes = [
        row(key, [part for mean in means for part in mean[:2]])
        for key, means in measurements.sizes.items()
    ]
    return {
        "texts": list(texts),
        "nodes": nodes,
        "ops": ops,
        "sizes": sizes,
        "ratios": {kind: list(ratio) for kind, ratio in measurements.ratios.items()},
        "unknown": None if measurements.unknown is None else list(measurements.unknown[:2]),
    }


# --------------------------------------------------------------------------- reading


def read(path: str, loader: Callable[[], Measurements]) -> Measurements:
    """Read the measurements in a file.

    Args:
      path: the file.
      loader: returns the empty measurements to fill.
    Raises:
      NotFoundError: the file does not exist.
      InvalidArgumentError: it is not a cost model file, has another version, or is too large.
      DataLossError: it is damaged.
    """
    body = _body(path, _encode_contents(path))
    try:
        return _parse_measurements(json.loads(body, parse_constant=_reject_number), loader())
    except (_DamagedFile, ValueError, RecursionError) as error:
        raise errors.DataLossError(f"{path}: {error}") from error


def _encode_contents(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            data = file.read(_LARGEST + 1) if size <= _LARGEST else b""
    except FileNotFoundError as error:
        raise errors.NotFoundError(f"{path}: the file does not exist") from error
    if max(size, len(data)) > _LARGEST:
        raise errors.InvalidArgumentError(
            f"{path}: a cost model file must have at most {_LARGEST} bytes, got "
            f"{max(size, len(data))}"
        )
    return data


def _body(path: str, data: bytes) -> bytes:
    header = _HEADER.match(data)
    if header is None:
        raise errors.InvalidArgumentError(
            f"{path} is not a cost model file: it must begin with {_FORMAT!r}, got {data[:48]!r}"
        )
    if int(header[1]) != _VERSION:
        raise errors.InvalidArgumentError(
            f"{path}: a cost model of version {int(header[1])} is not supported; this release "
            f"reads version {_VERSION}"
        )
    if header[2] is None:
        raise errors.DataLossError(f"{path}: damaged or truncated at byte {header.end()}")
    body, length = data[header.end() : -2], int(header[2])
    if len(body) != length or data[-2:] != b"}\n":
        raise errors.DataLossError(
            f"{path}: {length} bytes are required from byte {header.end()} on, "
            f"got {len(data) - header.end()} bytes"
        )
    if zlib.crc32(body) != int(header[3]):
        raise errors.DataLossError(
            f"{path}: the checksum of bytes {header.end()} to {header.end() + length} must be "
            f"{int(header[3])}, got {zlib.crc32(body)}"
        )
    return body


def _parse_measurements(item: Any, measurements: Measurements) -> Measurements:
    fields = _require_type(item, dict, "measurements")
    texts = [_require_type(text, str, "texts") for text in _field(fields, "texts", list)]
    for key, value in _rows(fields, "nodes", 3, texts):
        measurements.nodes.put(key, _mean(value, "nodes"))
    for key, value in _rows(fields, "ops", 2, texts):
        measurements.ops.put(key, _mean(value, "ops"))
    for key, value in _rows(fields, "sizes", 2, texts):
        measurements.sizes.put(key, _means(value))
    for kind, value in _field(fields, "ratios", dict).items():
        measurements.ratios[kind] = Ratio(*_numbers(value, 3, "ratios"))
    unknown = fields.get("unknown")
    measurements.unknown = None if unknown is None else _mean(unknown, "unknown")
    return measurements


def _rows(
    fields: dict[str, Any], name: str, width: int, texts: list[str]
) -> Iterator[tuple[tuple[str, ...], list[Any]]]:
    for row in _field(fields, name, list):
        indices = _require_type(row, list, name)[:width]
        if len(indices) != width or not all(
            type(index) is int and 0 <= index < len(texts) for index in indices
        ):
            raise _DamagedFile(
                f"a row of {name} must begin with {width} indices of strings, got {row!r}"
            )
        yield tuple(texts[index] for index in indices), row[width:]


def _mean(value: Any, name: str) -> Mean:
    mean, weight = _numbers(value, 2, name)
    if not weight:
        raise _DamagedFile(f"a mean in {name} must have a positive weight, got 0")
    return Mean(mean, weight, fresh=True)


def _means(value: list[Any]) -> tuple[Mean, ...]:
    if len(value) != 1:
        raise _DamagedFile(f"a row of sizes must end with one list, got {value!r}")
    numbers = _require_type(value[0], list, "sizes")
    return tuple(_mean(numbers[i : i + 2], "sizes") for i in range(0, len(numbers), 2))


def _numbers(value: Any, count: int, name: str) -> list[float]:
    numbers = _require_type(value, list, name)
    if len(numbers) != count:
        raise _DamagedFile(f"{name} must have {count} numbers, got {len(numbers)}")
    for number in numbers:
        if type(number) not in (int, float) or not 0 <= number <= _GREATEST:
            raise _DamagedFile(
                f"a number in {name} must be between 0 and {_GREATEST:g}, got {number!r}"
            )
    return [float(number) for number in numbers]


def _field(fields: dict[str, Any], name: str, kind: type) -> Any:
    if name not in fields:
        raise _DamagedFile(f"measurements must have {name!r}, got {sorted(fields)}")
    return _require_type(fields[name], kind, name)


def _require_type(value: Any, kind: type, name: str) -> Any:
    if type(value) is not kind:
        raise _DamagedFile(f"{name} must be of type {kind.__name__}, got {type(value).__name__}")
    return value


def _reject_number(text: str) -> float:
    raise _DamagedFile(f"a number must be finite and not negative, got {text}")

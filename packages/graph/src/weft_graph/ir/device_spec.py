"""Device names: parsing, merging of partial requests, and the canonical form."""

from __future__ import annotations

__all__ = ["DeviceSpec"]

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from weft_tensor import errors


class DeviceParts(NamedTuple):
    """An immutable full or partial device name; None for unspecified parts."""

    job: str | None = None
    replica: int | None = None
    task: int | None = None
    device_type: str | None = None
    device_index: int | None = None

    def to_string(self) -> str:
        """Return the canonical form, without unspecified parts."""
        parts = []
        if self.job is not None:
            parts.append(f"/job:{self.job}")
        if self.replica is not None:
            parts.append(f"/replica:{self.replica}")
        if self.task is not None:
            parts.append(f"/task:{self.task}")
        if self.device_type is not None:
            index = "*" if self.device_index is None else self.device_index
            parts.append(f"/device:{self.device_type}:{index}")
        return "".join(parts)

    def merge(self, inner: DeviceParts) -> DeviceParts:
        """Return this request overridden by `inner`; a new type resets the index.

        TensorFlow keeps the index: "/gpu:1" merged with "/cpu" is "/cpu:1" there.
        """
        merged = [
            own_part if inner_part is None else inner_part
            for own_part, inner_part in zip(self, inner, strict=True)
        ]
        if self.device_type not in (None, merged[3]):
            merged[4] = inner.device_index
        return DeviceParts(*merged)  # type: ignore[arg-type]


def _part(name: str, convert: Callable[[Any], Any], doc: str) -> Any:
    def get(self: DeviceSpec) -> Any:
        return getattr(self.parts, name)

    def set_part(self: DeviceSpec, value: Any) -> None:
        value = None if value is None else convert(value)
        self.parts = self.parts._replace(**{name: value})

    return property(get, set_part, doc=doc)


def _upper(device_type: Any) -> str:
    return str(device_type).upper()


class DeviceSpec:
    """A full or partial device name; None for unspecified parts.

    `/job:worker/replica:0/task:17/device:GPU:3`

    Its parts can be set. They determine its hash, so do not change a key of a mapping.

    Args:
      job: name of the job.
      replica, task: numbers.
      device_type: "CPU" or "GPU", in any case.
      device_index: index of the device among those of its type.

    Attributes:
      parts: the current parts, as a tuple.

    Examples:
      >>> wf.DeviceSpec(job="worker", task=1, device_type="GPU", device_index=0).to_string()
      '/job:worker/task:1/device:GPU:0'
    """

    __slots__ = ("parts",)

    job: str | None = _part("job", str, "Name of the job.")
    replica: int | None = _part("replica", int, "Number of the replica.")
    task: int | None = _part("task", int, "Number of the task.")
    device_type: str | None = _part("device_type", _upper, "Type of the device, in capitals.")
    device_index: int | None = _part("device_index", int, "Number of the device in its type.")

    def __init__(
        self,
        job: str | None = None,
        replica: int | None = None,
        task: int | None = None,
        device_type: str | None = None,
        device_index: int | None = None,
    ) -> None:
        self.parts = DeviceParts(
            None if job is None else str(job),
            None if replica is None else int(replica),
            None if task is None else int(task),
            None if device_type is None else _upper(device_type),
            None if device_index is None else int(device_index),
        )

    @staticmethod
    def from_string(spec: str) -> DeviceSpec:
        """Parse any form that TensorFlow or the paper uses: `/gpu:0`, `/cpu:0`, `/device:GPU:*`.

        Raises: InvalidArgumentError: a part is malformed or given twice.
        """
        return DeviceSpec().parse_from_string(spec)

    def parse_from_string(self, spec: str) -> DeviceSpec:
        """Copy all parts of `spec`; return self.

        Raises: InvalidArgumentError: a part is malformed or given twice.
        """
        self.parts = parse(spec)
        return self

    def to_string(self) -> str:
        """Return the canonical form, without unspecified parts."""
        return self.parts.to_string()

    def merge_from(self, dev: DeviceSpec) -> None:
        """Override the parts that `dev` sets."""
        self.parts = self.parts.merge(dev.parts)

    def make_merged_spec(self, dev: DeviceSpec) -> DeviceSpec:
        """Return a copy of this request overridden by `dev`."""
        return DeviceSpec(*self.parts.merge(dev.parts))

    def replace(self, **kwargs: Any) -> DeviceSpec:
        """Return a copy of this request with some parts changed."""
        return DeviceSpec(**{**self.parts._asdict(), **kwargs})

    def matches(self, device: DeviceSpec) -> bool:
        """Return True if `device` satisfies this request."""
        pairs = zip(self.parts, device.parts, strict=True)
        return all(expected is None or expected == actual for expected, actual in pairs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeviceSpec) and self.parts == other.parts

    def __hash__(self) -> int:
        return hash(self.parts)

    def __repr__(self) -> str:
        return f"<DeviceSpec {self.to_string()!r}>"


@functools.lru_cache(maxsize=4096)
def parse(text: str) -> DeviceParts:
    """Return the parts of a device name, parsed like `DeviceSpec.from_string`."""
    values: dict[str, str | int | None] = {}

    def set_part(key: str, value: str | int | None) -> None:
        if key in values:
            raise errors.InvalidArgumentError(f"device name {text!r} specifies {key} twice")
        values[key] = value

    for part in text.strip().split("/"):
        if not part:
            continue
        fields = part.split(":")
        key = fields[0].lower()
        if key == "job" and len(fields) == 2 and fields[1]:
            set_part("job", fields[1])
        elif key in ("replica", "task") and len(fields) == 2:
            set_part(key, _index(text, fields[1]))
        elif key == "device" and len(fields) in (2, 3) and _is_type(fields[1]):
            set_part("device_type", fields[1].upper())
            set_part("device_index", _index(text, fields[2]) if len(fields) == 3 else None)
        elif key.isalpha() and key not in ("job", "replica", "task", "device"):
            if len(fields) > 2:
                raise _malformed_name_error(text, part)
            set_part("device_type", key.upper())
            set_part("device_index", _index(text, fields[1]) if len(fields) == 2 else None)
        else:
            raise _malformed_name_error(text, part)
    return DeviceParts(**values)  # type: ignore[arg-type]


def _is_type(field: str) -> bool:
    return field.replace("_", "").isalnum()


def _malformed_name_error(text: str, part: str) -> errors.InvalidArgumentError:
    return errors.InvalidArgumentError(
        f"device name {text!r}: {part!r} is not one of job:NAME, replica:N, task:N, device:TYPE:N, "
        "cpu:N, gpu:N"
    )


def _index(text: str, field: str) -> int | None:
    if field == "*":
        return None
    if not field.isdigit():
        raise errors.InvalidArgumentError(
            f"device name {text!r}: an index must be a number or *, got {field!r}"
        )
    return int(field)


def canonical(text: str) -> str:
    """Return the canonical form of a device name."""
    return parse(text).to_string()

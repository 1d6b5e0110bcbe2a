"""Device names: parsing every accepted form, merging partial requests, the canonical form."""

from __future__ import annotations

import functools
from typing import NamedTuple

from weft_tensor import errors


class DeviceSpec(NamedTuple):
    """A full or partial device name; None where a part is left open.

    `/job:worker/replica:0/task:17/device:GPU:3`
    """

    job: str | None = None
    replica: int | None = None
    task: int | None = None
    device_type: str | None = None
    device_index: int | None = None

    @staticmethod
    def from_string(text: str) -> DeviceSpec:
        """Parse any form that TensorFlow or the paper uses: `/gpu:0`, `/cpu:0`, `/device:GPU:*`.

        Raises: InvalidArgumentError: a part is malformed or given twice.
        """
        return _parse(text)

    def to_string(self) -> str:
        """The canonical form, the open parts left out."""
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

    def merge(self, inner: DeviceSpec) -> DeviceSpec:
        """This request refined by `inner`, whose parts win."""
        merged = [mine if his is None else his for mine, his in zip(self, inner, strict=True)]
        if inner.device_type is not None:
            merged[4] = inner.device_index
        return DeviceSpec(*merged)  # type: ignore[arg-type]

    def matches(self, full: DeviceSpec) -> bool:
        """Whether the device named `full` satisfies this request."""
        return all(want is None or want == have for want, have in zip(self, full, strict=True))


@functools.lru_cache(maxsize=4096)
def _parse(text: str) -> DeviceSpec:
    found: dict[str, str | int | None] = {}

    def put(key: str, value: str | int | None) -> None:
        if key in found:
            raise errors.InvalidArgumentError(f"device name {text!r} gives its {key} twice")
        found[key] = value

    for part in text.strip().split("/"):
        if not part:
            continue
        fields = part.split(":")
        key = fields[0].lower()
        if key == "job" and len(fields) == 2 and fields[1]:
            put("job", fields[1])
        elif key in ("replica", "task") and len(fields) == 2:
            put(key, _index(text, fields[1]))
        elif key == "device" and len(fields) in (2, 3) and fields[1]:
            put("device_type", fields[1].upper())
            put("device_index", _index(text, fields[2]) if len(fields) == 3 else None)
        elif key.isalpha() and key not in ("job", "replica", "task", "device"):
            if len(fields) > 2:
                raise _malformed(text, part)
            put("device_type", key.upper())
            put("device_index", _index(text, fields[1]) if len(fields) == 2 else None)
        else:
            raise _malformed(text, part)
    return DeviceSpec(**found)  # type: ignore[arg-type]


def _malformed(text: str, part: str) -> errors.InvalidArgumentError:
    return errors.InvalidArgumentError(
        f"device name {text!r}: {part!r} is none of job:NAME, replica:N, task:N, device:TYPE:N, "
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
    """The canonical form of a device name."""
    return _parse(text).to_string()

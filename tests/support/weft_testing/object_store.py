"""A store of objects for fsspec, kept in a directory, that fails or dies on request."""

from __future__ import annotations

import io
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import fsspec
from fsspec import AbstractFileSystem


class Died(BaseException):
    """Error after the simulated death of the writer's process."""


class ObjectStore(AbstractFileSystem):
    """`objects://<path>`: an object appears as a whole when it is closed.

    Attributes of the class, for tests:
      root: directory that the objects are kept in.
      calls: names of the requests that were made.
      fail_at: number of the request that fails, counted from 1; None for none.
      dies: then nothing works any more.
    """

    protocol = "objects"
    cachable = False
    root = Path()
    calls: ClassVar[list[str]] = []
    fail_at: int | None = None
    dies = False

    @classmethod
    def reset(cls, root: Path, fail_at: int | None = None, dies: bool = False) -> None:
        cls.root, cls.calls, cls.fail_at, cls.dies = root, [], fail_at, dies

    def _request(self, name: str) -> None:
        cls = ObjectStore
        cls.calls.append(name)
        if cls.fail_at is None or len(cls.calls) < cls.fail_at:
            return
        if cls.dies:
            raise Died
        if len(cls.calls) == cls.fail_at:
            raise RefusedError(f"the store refused request {cls.fail_at}, {name}")

    def _place(self, path: str) -> Path:
        return self.root / self._strip_protocol(path).strip("/")

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        self._request("ls")
        place = self._place(path)
        if not place.is_dir():
            raise FileNotFoundError(path)
        base = self._strip_protocol(path).strip("/")
        found = [self._describe(f"{base}/{name}") for name in sorted(os.listdir(place))]
        return found if detail else [entry["name"] for entry in found]

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        self._request("info")
        return self._describe(self._strip_protocol(path).strip("/"))

    def _describe(self, name: str) -> dict[str, Any]:
        place = self.root / name
        if not place.exists():
            raise FileNotFoundError(name)
        kind = "directory" if place.is_dir() else "file"
        return {"name": name, "size": place.stat().st_size, "type": kind}

    def modified(self, path: str) -> datetime:
        self._request("modified")
        return datetime.fromtimestamp(self._place(path).stat().st_mtime, UTC)

    def rm_file(self, path: str) -> None:
        self._request("rm")
        self._place(path).unlink()

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        self._place(path).mkdir(parents=True, exist_ok=True)

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        self._request("put")
        self._replace(self._place(path), value)

    @staticmethod
    def _replace(place: Path, data: bytes) -> None:
        aside = place.with_name(place.name + "~")
        aside.write_bytes(data)
        os.replace(aside, place)

    def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        self._request("open " + mode)
        if mode == "rb":
            return open(self._place(path), "rb")
        return _Object(self, self._place(path))


class RefusedError(Exception):
    """A store-specific error, which is not an OSError."""


class _Object(io.BytesIO):
    def __init__(self, store: ObjectStore, place: Path) -> None:
        super().__init__()
        self._store = store
        self._place = place

    def write(self, data: Any) -> int:
        self._store._request("write")
        return super().write(data)

    def discard(self) -> None:
        super().close()

    def close(self) -> None:
        if self.closed:
            return
        try:
            self._store._request("put")
            self._store._replace(self._place, self.getvalue())
        finally:
            super().close()


class MovingStore(ObjectStore):
    """`moving://<path>`: the same with its own move, and puts that may end halfway."""

    protocol = "moving"

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        self._request("open wb")
        self._place(path).write_bytes(value[: len(value) // 2])
        self._request("put")
        self._place(path).write_bytes(value)

    def mv(self, path1: str, path2: str, **_: Any) -> None:
        self._request("mv")
        os.replace(self._place(path1), self._place(path2))


def register() -> None:
    """Register the URL schemes."""
    for store in (ObjectStore, MovingStore):
        fsspec.register_implementation(store.protocol, store, clobber=True)

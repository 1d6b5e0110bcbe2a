"""Builds the message classes from the compiled descriptors in `weft.binpb`."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper

DESCRIPTORS = Path(__file__).with_name("weft.binpb")

_lock = threading.Lock()
_pool: Any = None
_symbols: dict[str, Any] = {}


def descriptor_pool() -> Any:
    """Return the pool of weft's messages, for `text_format` and `json_format` to resolve `Any`."""
    global _pool
    with _lock:
        if _pool is None:
            pool = DescriptorPool()
            files = descriptor_pb2.FileDescriptorSet.FromString(DESCRIPTORS.read_bytes()).file
            for file in files:
                pool.AddSerializedFile(file.SerializeToString())
            _index(pool.FindFileByName(file.name) for file in files)
            # Last: who sees the pool without the lock must see it whole.
            _pool = pool
    return _pool


def find(name: str) -> Any:
    """Return the message class, enum or enum value with a name, or None."""
    if name == "descriptor_pool":
        return descriptor_pool
    if _pool is None:
        descriptor_pool()
    symbol = _symbols.get(name)
    if symbol is None or isinstance(symbol, (int, EnumTypeWrapper)):
        return symbol
    return message_factory.GetMessageClass(symbol)


def names() -> Iterable[str]:
    """Return all names that `find` knows."""
    descriptor_pool()
    return ("descriptor_pool", *_symbols)


def _index(files: Iterable[Any]) -> None:
    for file in files:
        if not file.package.startswith("weft"):
            continue
        _symbols.update(file.message_types_by_name)
        for name, enum in file.enum_types_by_name.items():
            _symbols[name] = EnumTypeWrapper(enum)
            _symbols.update((value.name, value.number) for value in enum.values)

"""Relocatable objects loaded into the process."""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from llvmlite import binding

from weft_compiler.codegen.targets import host
from weft_tensor import errors

T = TypeVar("T")

_NUMBERS: Final = itertools.count()
_LOCK: Final = threading.Lock()


def once(make: Callable[[], T]) -> Callable[[], T]:
    """Return a function that calls `make` once, even if several threads call it first.

    `functools.cache` would call it for each of them and keep one result. Code whose address was
    taken from another result would be unloaded.
    """
    made, lock = functools.cache(make), threading.Lock()

    @functools.wraps(make)
    def call() -> T:
        with lock:
            return made()

    return call


class Library:
    """An object in memory: its functions may run as long as this is alive.

    Undefined symbols are resolved by name in the process.

    Args:
      image: a relocatable object.
      names: the functions to look up.
      imports: the addresses of functions of other libraries, which must live as long.
    Raises: InternalError: it cannot be linked.
    """

    def __init__(
        self, image: bytes, names: Sequence[str], imports: Mapping[str, int] | None = None
    ) -> None:
        builder = binding.JITLibraryBuilder().add_object_img(image).add_current_process()
        for name in names:
            builder.export_symbol(name)
        for name, address in (imports or {}).items():
            builder.import_symbol(name, address)
        with _LOCK:
            try:
                self._tracker = builder.link(_jit(), f"weft.{next(_NUMBERS)}")
            except RuntimeError as error:
                raise errors.InternalError(f"machine code cannot be linked: {error}") from error

    def address(self, name: str) -> int:
        """Return the address of a function."""
        return int(self._tracker[name])


@functools.cache
def _jit() -> Any:
    host()
    return binding.create_lljit_compiler(use_jit_link=False, suppress_errors=True)

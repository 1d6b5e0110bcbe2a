"""Loading of relocatable objects into the process."""

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


def call_once(make: Callable[[], T]) -> Callable[[], T]:
    """Return a function that calls `make` only once, even if several threads call it concurrently.

    `functools.cache` would call it in each thread and keep one result. The other results would be
    unloaded although the address of their code may be in use.
    """
    cached, lock = functools.cache(make), threading.Lock()

    @functools.wraps(make)
    def call() -> T:
        with lock:
            return cached()

    return call


class Library:
    """An object in memory, whose functions can be called as long as this instance is alive.

    Undefined symbols are resolved by name in the process.

    Args:
      image: a relocatable object.
      names: the functions to look up.
      imports: the addresses of functions of other libraries, which must live at least as long.
    Raises: InternalError: the object cannot be linked.
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

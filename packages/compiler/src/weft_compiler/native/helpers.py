"""The threads of this process that help programs: see `weft_compiler.codegen.threads`.

They are made when a program first wants them, and are those of all sessions.
"""

from __future__ import annotations

import atexit
import ctypes
import os
from typing import Final

from weft_compiler.codegen import threads
from weft_compiler.codegen.targets import host
from weft_compiler.native.linking import Library, once
from weft_compiler.native.shared_objects import load_shared

_PROCEDURE: Final = ctypes.CFUNCTYPE(None)


@once
def library() -> Library:
    """Their machine code, which stays until the process ends."""
    text = threads.text(host())
    made = load_shared("threads", text, host(), lambda image: Library(image, threads.EXPORTS))
    reset = _PROCEDURE(made.address(threads.RESET))
    reset()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=reset)  # threads are not forked
    atexit.register(_PROCEDURE(made.address(threads.STOP)))  # before their code goes
    return made


def imports() -> dict[str, int]:
    """Where the functions are that programs call."""
    return {name: library().address(name) for name in (threads.SHARE, threads.BEGIN, threads.END)}

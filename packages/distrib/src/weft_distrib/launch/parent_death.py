"""Runner of a program that receives SIGTERM when its parent dies; uses only the standard library.

Arguments: the process id of the parent, and the program with its arguments.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(parent: int, program: list[str]) -> None:
    """Replace this process by the program."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it has died meanwhile
        return
    try:
        os.execvp(program[0], program)
    except OSError as error:
        sys.exit(f"cannot run {program[0]}: {error.strerror}")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])

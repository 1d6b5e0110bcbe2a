"""Saves twice, the second time asynchronously and slowly, and ends during that save.

Run as a program with a mode and a directory: "returns", "exits" and "raises" end in these ways,
"atexit" saves when the program is ending already, "fails" meets a full disk, and "hangs" would
write for an hour.
"""

from __future__ import annotations

import atexit
import errno
import logging
import os
import sys
import time
from typing import Any

import numpy as np

import weft_io.saving.saver
from weft_exec import Session
from weft_graph.variables.reference import Variable
from weft_io import Saver


def main(mode: str, directory: str) -> None:
    logging.basicConfig()
    v = Variable(np.zeros(5), name="v")
    saver = Saver(asynchronous=True)
    session = Session()

    def save(step: int) -> None:
        v.load(np.full(5, float(step)), session)
        saver.save(session, f"{directory}/m", step)

    save(1)
    saver.close()
    real = weft_io.saving.saver.write_checkpoint

    def slow(*arguments: Any) -> Any:
        time.sleep(3600 if mode == "hangs" else 0.3)
        if mode == "fails":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*arguments)

    weft_io.saving.saver.write_checkpoint = slow
    if mode == "atexit":
        atexit.register(save, 2)
    else:
        save(2)
    sys.stdout.write("saved\n")
    sys.stdout.flush()
    if mode == "exits":
        sys.exit(1)
    if mode == "raises":
        raise ValueError("the program fails")
    if mode == "hangs":
        time.sleep(3600)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""The server's side of heartbeats: a counter, and the probe process that reports the counter."""

from __future__ import annotations

import mmap
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final

from weft_distrib.security.credentials import Credentials

BEAT_SECONDS: Final = 0.1

_PROGRAM = Path(__file__).with_name("probe_process.py")


class Heartbeat:
    """Counter that advances while the interpreter runs; the probe process reports it to peers.

    Args:
      host: the address on which the probe process listens.
      credentials: credentials that callers must have.
    Attributes:
      port: the port of the probe process.
    """

    def __init__(self, host: str, credentials: Credentials | None = None) -> None:
        self._files = credentials.paths[:3] if credentials and credentials.secure else ()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family, backlog=512)
        self.port: int = self._listener.getsockname()[1]
        self._memory = os.memfd_create("weft-heart")
        os.ftruncate(self._memory, mmap.PAGESIZE)
        self._count = mmap.mmap(self._memory, mmap.PAGESIZE)
        self._stop = threading.Event()
        self._process = self._start_process()
        self._thread = threading.Thread(target=self._beat, name="weft-heart", daemon=True)
        self._thread.start()

    def _start_process(self) -> subprocess.Popen[bytes]:
        handed = (self._listener.fileno(), self._memory)
        arguments = [*map(str, handed), str(os.getpid()), *self._files]
        return subprocess.Popen(
            [sys.executable, "-I", "-S", str(_PROGRAM), *arguments],
            pass_fds=handed,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _beat(self) -> None:
        beats = 0
        while not self._stop.wait(BEAT_SECONDS):
            beats += 1
            self._count[:8] = beats.to_bytes(8, "little")
            if self._process.poll() is not None:
                self._process = self._start_process()

    def close(self) -> None:
        """Stop the probe process."""
        self._stop.set()
        self._thread.join()
        self._process.kill()
        self._process.wait()
        self._listener.close()
        self._count.close()
        os.close(self._memory)

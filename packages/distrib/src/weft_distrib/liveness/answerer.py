"""The process beside a server that says how the server is. It needs no package, not even weft's.

Arguments: the descriptors of a listening socket and of the memory with the server's count, and the
server's process. It ends with the server. The answer to each byte is `ANSWER`.
"""

import mmap
import os
import selectors
import signal
import socket
import struct
import sys

ANSWER = struct.Struct("<QQ?")
"""How often the server came round; its processor time in ticks; whether it is stopped."""

_STOPPED = frozenset("Tt")


def main(listening: int, memory: int, server: int) -> None:
    """Answer until the server ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    beats = mmap.mmap(memory, mmap.PAGESIZE, prot=mmap.PROT_READ)
    listener = socket.socket(fileno=listening)
    end = os.pidfd_open(server)
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        selector.register(end, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj == end:
                    return
                if key.fileobj is listener:
                    sock, _ = listener.accept()
                    sock.setblocking(False)
                    selector.register(sock, selectors.EVENT_READ, sock)
                elif not _answer(key.data, beats, server):
                    selector.unregister(key.data)
                    key.data.close()


def _answer(sock: socket.socket, beats: mmap.mmap, server: int) -> bool:
    try:
        if not sock.recv(1):
            return False
        count = int.from_bytes(beats[:8], "little")
        sock.send(ANSWER.pack(count, *_vitals(server)))
    except (OSError, ValueError):
        return False
    return True


def _vitals(server: int) -> tuple[int, bool]:
    """The ticks of processor time of a process, and whether it is stopped."""
    with open(f"/proc/{server}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12]), fields[0] in _STOPPED


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

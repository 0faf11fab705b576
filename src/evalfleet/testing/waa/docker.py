"""Stands in for Docker's command line: a client that knows nothing, and asks the daemon whose socket lies beside it.

As with Docker, what `exec` starts is a child of the daemon: killing the client leaves it running, and only closes its
standard input.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
import threading

HEAD = struct.Struct(">BI")
OUT, ERROR, END = 1, 2, 3


def main() -> int:
    args = sys.argv[1:]
    link = socket.socket(socket.AF_UNIX)
    try:
        link.connect(os.path.join(os.path.dirname(os.path.abspath(__file__)), "docker.sock"))
    except OSError:
        print("Cannot connect to the Docker daemon. Is the docker daemon running?", file=sys.stderr)
        return 1
    link.sendall(json.dumps({"args": args, "environ": dict(os.environ)}).encode() + b"\n")
    if "--interactive" in args or "--password-stdin" in args:
        threading.Thread(target=_pump, args=(link,), daemon=True).start()
    with link.makefile("rb") as answers:
        while True:
            head = answers.read(HEAD.size)
            if len(head) < HEAD.size:
                print("error during connect: the daemon is gone", file=sys.stderr)
                return 1
            stream, size = HEAD.unpack(head)
            data = answers.read(size)
            if stream == END:
                sys.stdout.flush()
                os._exit(int(data))  # the pump still waits for its input
            target = sys.stdout if stream == OUT else sys.stderr
            target.buffer.write(data)
            target.buffer.flush()


def _pump(link: socket.socket) -> None:
    while True:
        data = os.read(0, 65536)
        if not data:
            link.shutdown(socket.SHUT_WR)
            return
        link.sendall(data)


if __name__ == "__main__":
    sys.exit(main())

"""Docker's command line on an emulated machine: asks the emulator, which is the daemon of all its machines.

As with Docker, what `exec` starts is no child of this program: who kills it only closes that process's input.
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


def settings() -> dict[str, str]:
    found: dict[str, str] = {}
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "etc", "evalfleet", "host")) as file:
        for line in file:
            name, _, value = line.rstrip("\n").partition("=")
            found[name] = value.strip("'")
    return found


def main() -> int:
    known = settings()
    address, _, port = known["docker"].rpartition(":")
    try:
        link = socket.create_connection((address, int(port)))
    except (OSError, ValueError):
        sys.stderr.write("Cannot connect to the Docker daemon. Is the docker daemon running?\n")
        return 1
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    args = sys.argv[1:]
    first: dict[str, object] = {"vm": known["vm"], "args": args, "environ": dict(os.environ)}
    if "--password-stdin" in args:
        first["password"] = sys.stdin.readline().strip()
    link.sendall(json.dumps(first).encode() + b"\n")
    if "-i" in args or "--interactive" in args:
        threading.Thread(target=pump, args=(link,), daemon=True).start()
    with link.makefile("rb") as answers:
        while True:
            head = answers.read(HEAD.size)
            if len(head) < HEAD.size:
                sys.stderr.write("error during connect: the daemon is gone\n")
                return 1
            stream, size = HEAD.unpack(head)
            data = answers.read(size)
            if stream == END:
                sys.stdout.flush()
                os._exit(int(data))  # the pump still waits for its input
            target = sys.stdout if stream == OUT else sys.stderr
            target.buffer.write(data)
            target.buffer.flush()


def pump(link: socket.socket) -> None:
    while True:
        data = os.read(0, 65536)
        if not data:
            link.shutdown(socket.SHUT_WR)
            return
        link.sendall(data)


if __name__ == "__main__":
    sys.exit(main())

"""Connects standard input and output to the runner."""

from __future__ import annotations

import os
import select
import socket
import sys

from .daemon import serve

PIECE = 1 << 18


def stdio(folder: str, idle_s: float, version: str) -> int:
    """Start a runner if none runs, and connect standard input and output to its socket until either side ends."""
    try:
        line = serve(folder, idle_s, version)
    except OSError as error:
        line = {"error": "io_error", "message": str(error)}
    if "error" in line:
        sys.stderr.write("%s\n" % line["message"])
        return 1
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.connect(line["socket"])
        join(0, 1, peer.fileno())
    return 0


def join(source: int, sink: int, peer: int) -> None:
    """Copy bytes in both directions until the source or the peer ends.

    Neither direction waits for the other: a runner that reads nothing until its events are read would otherwise block those events.
    """
    for fd in (source, sink, peer):
        os.set_blocking(fd, False)
    there: bytes | None = None  # None: nothing is on its way
    back: bytes | None = None
    try:
        while there != b"" and back != b"":
            reads = ([] if there else [source]) + ([] if back else [peer])
            writes = ([peer] if there else []) + ([sink] if back else [])
            readable, _, _ = select.select(reads, writes, [])
            if source in readable:
                there = _read(source)
            if peer in readable:
                back = _read(peer)
            there = _write(peer, there) if there else there
            back = _write(sink, back) if back else back
    except ConnectionError:
        pass  # one of them ended without a word


def _read(fd: int) -> bytes | None:
    """The available bytes; empty at the end, None if there are none yet."""
    try:
        return os.read(fd, PIECE)
    except BlockingIOError:
        return None


def _write(fd: int, data: bytes) -> bytes | None:
    """Write, and return what is left to write."""
    try:
        return data[os.write(fd, data) :] or None
    except BlockingIOError:
        return data

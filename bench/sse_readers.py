"""Many readers of the live feed in one process, so that they are not measured with anybody else.

    python bench/sse_readers.py PORT TOKEN READERS [AFTER EVENTS]

Says `ready` once all listen. With AFTER and EVENTS it reads until every reader has that many events, looks at a tenth of the readers
closely, and prints their delays in ms as JSON: from the moment that stands in an event, which is before its commit, to its arrival.
Without, it throws away what comes until it is ended, at the lowest priority: browsers have machines of their own.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import sys
import time

CLOSELY = 10  # one of so many
HELLO = b"event: hello"
MARK = b"\nid: "
BLOCK = 1 << 20


def connect(port: int, token: str, after: int) -> socket.socket:
    """A reader that was greeted."""
    sock = socket.create_connection(("127.0.0.1", port))
    head = (
        f"GET /api/v1/events?after={after} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n\r\n"
    )
    sock.sendall(head.encode())
    said = b""
    while HELLO not in said:
        data = sock.recv(BLOCK)
        assert data, said
        said += data
    sock.setblocking(False)
    return sock


class Reader:
    def __init__(self, sock: socket.socket, *, closely: bool) -> None:
        self.sock = sock
        self.closely = closely
        self.seen = 0
        self.delays_ms: list[float] = []
        self._rest = b""

    def take(self, data: bytes, now: float) -> None:
        text = self._rest + data
        if not self.closely:
            self.seen += text.count(MARK)
            self._rest = text[-len(MARK) + 1 :]  # what may be the beginning of a mark
            return
        *lines, self._rest = text.split(b"\n")
        for line in lines:
            if line.startswith(b'data: {"number"'):
                self.seen += 1
                self.delays_ms.append((now - json.loads(line[6:])["at"]) * 1000)


def measure(readers: list[Reader], wanted: int) -> list[float]:
    selector = selectors.DefaultSelector()
    for reader in readers:
        selector.register(reader.sock, selectors.EVENT_READ, reader)
    left = len(readers)
    while left:
        for key, _ in selector.select(timeout=60):
            reader: Reader = key.data
            data = reader.sock.recv(BLOCK)
            assert data, f"disconnected after {reader.seen} events"
            reader.take(data, time.time())
            if reader.seen >= wanted:
                selector.unregister(reader.sock)
                left -= 1
    return [delay for reader in readers for delay in reader.delays_ms]


def drain(socks: list[socket.socket]) -> None:
    os.nice(19)
    selector = selectors.DefaultSelector()
    for sock in socks:
        selector.register(sock, selectors.EVENT_READ)
    buffer = bytearray(BLOCK)
    while True:
        for key, _ in selector.select():
            assert key.fileobj.recv_into(buffer), "disconnected"  # pyright: ignore[reportAttributeAccessIssue]


def main() -> None:
    port, token, count = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    after, wanted = (int(sys.argv[4]), int(sys.argv[5])) if len(sys.argv) > 4 else (0, 0)
    socks = [connect(port, token, after) for _ in range(count)]
    print("ready", flush=True)
    if wanted:
        readers = [Reader(sock, closely=number % CLOSELY == 0) for number, sock in enumerate(socks)]
        print(json.dumps(measure(readers, wanted)), flush=True)
    else:
        drain(socks)


if __name__ == "__main__":
    main()

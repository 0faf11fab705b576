"""A server's port, and the descriptors that it inherits."""

from __future__ import annotations

import errno
import socket
from contextlib import closing

import pytest

from evalfleet.runner.server.process import ReservedPort, inherited


def listening(port: int, *options: int) -> socket.socket:
    found = socket.socket()
    for option in options:
        found.setsockopt(socket.SOL_SOCKET, option, 1)
    try:
        found.bind(("127.0.0.1", port))
        found.listen()
    except OSError:
        found.close()
        raise
    return found


def test_a_port_is_reserved_until_the_trial_is_over():
    """While it is held nobody is given it who asks for any port, and a server that is told its number may listen there."""
    held = [ReservedPort() for _ in range(200)]
    try:
        assert len({port.number for port in held}) == 200
        for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
            with closing(listening(held[0].number, option)):
                others = [socket.create_server(("127.0.0.1", 0)) for _ in range(200)]
                taken = {other.getsockname()[1] for other in others}
                for other in others:
                    other.close()
                assert taken.isdisjoint(port.number for port in held)
        with pytest.raises(OSError, match="in use") as refused:
            listening(held[0].number)  # one that shares with nobody
        assert refused.value.errno == errno.EADDRINUSE
        held[0].release()
        listening(held[0].number).close()
    finally:
        for port in held:
            port.release()


@pytest.mark.parametrize(("said", "found"), [("", ()), ("7", (7,)), ("7,12", (7, 12)), ("x,3", (3,))])
def test_descriptors_come_from_the_runner(monkeypatch: pytest.MonkeyPatch, said: str, found: tuple[int, ...]):
    monkeypatch.setenv("EVALFLEET_GPU_LOCK_FDS", said)
    assert inherited() == found

#!/usr/bin/env python3
"""Reaches a machine without a public address through Azure Bastion; for `azure.proxy_command`.

    proxy_command = "python3 examples/azure/bastion.py BASTION GROUP {resource_id} {port}"

It opens a tunnel with `az network bastion tunnel` (Bastion of the Standard SKU, with native client support) on a free local port,
and connects standard input and output with it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time

PATIENCE_S = 60


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def connected(port: int, tunnel: subprocess.Popen[bytes]) -> socket.socket:
    """Wait until the tunnel listens."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until and tunnel.poll() is None:
        with contextlib.suppress(OSError):
            return socket.create_connection(("127.0.0.1", port), timeout=5)
        time.sleep(0.1)
    sys.exit("bastion.py: the tunnel does not listen; run `az network bastion tunnel` by hand to see why")


def send(out: socket.socket) -> None:
    while chunk := os.read(0, 65536):
        out.sendall(chunk)
    with contextlib.suppress(OSError):
        out.shutdown(socket.SHUT_WR)


def main(bastion: str, group: str, target: str, target_port: str) -> None:
    port = free_port()
    command = ["az", "network", "bastion", "tunnel", "--name", bastion, "--resource-group", group]
    command += ["--target-resource-id", target, "--resource-port", target_port, "--port", str(port)]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr) as tunnel:
        try:
            with connected(port, tunnel) as stream:
                stream.settimeout(None)
                threading.Thread(target=send, args=(stream,), daemon=True).start()
                while chunk := stream.recv(65536):
                    os.write(1, chunk)
        finally:
            tunnel.terminate()


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit("usage: bastion.py BASTION GROUP RESOURCE_ID PORT")
    main(*sys.argv[1:])

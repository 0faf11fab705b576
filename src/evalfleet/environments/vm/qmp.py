"""QEMU's machine protocol: one command at a time over a connected socket, each with a deadline."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Mapping
from typing import Any

from evalfleet.errors import VmError

_FORWARD = re.compile(r"TCP\[HOST_FORWARD\]\s+\S+\s+\S+\s+(\d+)\s")


class Qmp:
    """The owner's end of a QEMU's monitor. Owns the socket."""

    def __init__(self, sock: socket.socket, *, timeout_s: float) -> None:
        self._socket = sock
        self._rest = b""
        deadline = time.monotonic() + timeout_s
        self._next(deadline)  # the greeting
        self.execute("qmp_capabilities", timeout_s=max(0.1, deadline - time.monotonic()))

    def execute(self, command: str, arguments: Mapping[str, Any] | None = None, *, timeout_s: float = 20.0) -> Any:
        """Return what a command returns.

        Raises:
            VmError: QEMU refused, is gone, or does not answer in time.
        """
        deadline = time.monotonic() + timeout_s
        order: dict[str, Any] = {"execute": command, **({"arguments": dict(arguments)} if arguments else {})}
        try:
            self._socket.settimeout(timeout_s)
            self._socket.sendall(json.dumps(order).encode() + b"\n")
        except OSError as error:
            raise VmError(f"QEMU is gone: {error}") from None
        while True:
            answer = self._next(deadline)
            if "error" in answer:
                raise VmError(f"QEMU refused {command}: {answer['error'].get('desc', answer['error'])}")
            if "return" in answer:
                return answer["return"]

    def forwarded_port(self) -> int:
        """Return the port of this machine that leads to the guest's agent."""
        told: str = self.execute("human-monitor-command", {"command-line": "info usernet"})
        found = _FORWARD.search(told)
        if found is None:
            raise VmError("QEMU forwards no port to the guest")
        return int(found[1])

    def migrate(self, command: str, uri: str, *, timeout_s: float) -> None:
        """Save or load the state of the devices, and return when that is done. Memory is in its own file."""
        deadline = time.monotonic() + timeout_s
        capabilities = [{"capability": "x-ignore-shared", "state": True}]
        self.execute("migrate-set-capabilities", {"capabilities": capabilities})
        self.execute(command, {"uri": uri}, timeout_s=timeout_s)
        while True:
            told = self.execute("query-migrate")
            if told.get("status") == "completed":
                return
            if told.get("status") in ("failed", "cancelled"):
                raise VmError(f"QEMU could not {command}: {told.get('error-desc', told['status'])}")
            if time.monotonic() > deadline:
                raise VmError(f"QEMU did not {command} within {timeout_s:g} s")
            time.sleep(0.005)

    def close(self) -> None:
        self._socket.close()

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\n" not in self._rest:
            try:
                self._socket.settimeout(max(0.001, deadline - time.monotonic()))
                block = self._socket.recv(1 << 16)
            except TimeoutError:
                raise VmError("QEMU does not answer") from None
            except OSError as error:
                raise VmError(f"QEMU is gone: {error}") from None
            if not block:
                raise VmError("QEMU is gone")
            self._rest += block
        line, _, self._rest = self._rest.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

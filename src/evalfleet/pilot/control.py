"""Sessions that are for the pilot itself, not for its runner: lines of JSON, one answer each."""

from __future__ import annotations

import json
import socket
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict

    Commands = Dict[str, Callable[[Dict[str, Any]], Dict[str, Any]]]


class ControlServer:
    """Answers the commands of one session."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands

    def connect(self) -> socket.socket:
        """The other end of a connection to it. It ends with that connection."""
        ours, theirs = socket.socketpair()
        threading.Thread(target=self._serve, args=(ours,), daemon=True).start()
        return theirs

    def _serve(self, peer: socket.socket) -> None:
        with peer, peer.makefile("rwb") as file:
            try:
                for line in file:
                    file.write(json.dumps(self._answer(line)).encode() + b"\n")
                    file.flush()
            except OSError:
                pass  # the session ended

    def _answer(self, line: bytes) -> dict[str, Any]:
        number = None
        try:
            order = dict(json.loads(line.decode()))
            number = order.get("id")
            return dict(self._commands[str(order.get("do"))](order), id=number, ok=True)
        except (OSError, ValueError, KeyError, TypeError) as error:
            return {"id": number, "ok": False, "error": "refused", "message": repr(error)}

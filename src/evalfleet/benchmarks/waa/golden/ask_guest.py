"""Asks Windows from inside the container: its text is handed to the container's Python. Standard library only, Python >= 3.8.

Called with one JSON object: ``guest`` (address and port) with ``exists`` (pairs of folder and file) or ``shutdown``; or one of
these with the port of QEMU's monitor: ``qmp`` (whether the machine still runs), ``screen``, ``saved`` (whether there is a
snapshot), ``save`` or ``load``. It answers with one JSON object.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import sys
import tempfile
import urllib.error
import urllib.request
from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import IO, Any

    Json = dict[str, Any]

TIMEOUT_S = 15.0
SNAPSHOT_S = 300.0  # to write or read the memory of Windows
SAVED = "evalfleet"  # name of the snapshot


def post(guest: list[Any], path: str, body: Json) -> int:
    """The status of the answer."""
    request = urllib.request.Request(
        f"http://{guest[0]}:{guest[1]}{path}",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def command(link: socket.socket, lines: IO[str], name: str, **arguments: str) -> Json:
    """Give QEMU a command, and return its answer; events in between are passed over."""
    link.sendall(json.dumps({"execute": name, "arguments": arguments}).encode() + b"\n")
    for line in lines:
        answer = json.loads(line)
        if "return" in answer or "error" in answer:
            return answer
    raise OSError("QEMU closed the connection")


@contextmanager
def monitor(port: int, timeout_s: float) -> Generator[tuple[socket.socket, IO[str]], None, None]:
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as link, link.makefile() as lines:
        link.settimeout(timeout_s)
        lines.readline()  # its greeting
        command(link, lines, "qmp_capabilities")
        yield link, lines


def screen(port: int) -> str:
    """A picture of the screen, base64."""
    path = os.path.join(tempfile.mkdtemp(), "screen.png")
    with monitor(port, TIMEOUT_S) as (link, lines):
        answer = command(link, lines, "screendump", filename=path, format="png")
        if "error" in answer:  # QEMU before 7.1 has one format
            command(link, lines, "screendump", filename=path)
    with open(path, "rb") as file:
        return base64.b64encode(file.read()).decode()


def snapshot(port: int, verb: str) -> Json:
    """Say whether the running Windows was saved, save it (memory and disk), or put it back to what was saved.

    It is kept in the temporary file that takes the writes of Windows, so that it lives as long as its QEMU.
    """
    with monitor(port, SNAPSHOT_S) as (link, lines):

        def do(line: str) -> str:
            """What QEMU says to a line that a person could type; nothing where all is well."""
            answer = command(link, lines, "human-monitor-command", **{"command-line": line})
            return answer["error"]["desc"] if "error" in answer else answer["return"].strip()

        there = SAVED in do("info snapshots").split()
        if verb == "saved":
            return {"saved": there}
        if verb == "load" and not there:
            return {"error": "nothing was saved"}
        said = do(f"{verb}vm {SAVED}")
        if said and verb == "save":
            do("cont")  # a Windows that could not be saved goes on
        return {"error": said} if said else {}


def runs(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), TIMEOUT_S).close()
    except OSError:
        return False
    return True


def main(plan: Json) -> Json:
    if "exists" in plan:
        asked = [{"path": folder, "file_name": name} for folder, name in plan["exists"]]
        return {"there": [post(plan["guest"], "/file_exists", body) == 200 for body in asked]}
    if "shutdown" in plan:
        return {"status": post(plan["guest"], "/shutdown", {})}
    if "qmp" in plan:
        return {"runs": runs(plan["qmp"])}
    if "screen" in plan:
        return {"screen": screen(plan["screen"])}
    ((verb, port),) = plan.items()
    return snapshot(port, verb)


if __name__ == "__main__":
    try:
        print(json.dumps(main(json.loads(sys.argv[1]))))
    except (OSError, ValueError) as error:
        print(json.dumps({"error": str(error) or type(error).__name__}))

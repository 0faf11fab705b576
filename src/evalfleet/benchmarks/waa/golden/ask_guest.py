"""Asks Windows from inside the container: its text is handed to the container's Python. Standard library only, Python >= 3.8.

Called with one JSON object: ``guest`` (address and port), and one of ``exists`` (pairs of folder and file), ``shutdown``,
``qmp`` (a port: whether the machine still runs) or ``screen`` (a QMP port). It answers with one JSON object.
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

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, Any

    Json = dict[str, Any]

TIMEOUT_S = 15.0


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


def screen(port: int) -> str:
    """A picture of the screen, base64."""
    path = os.path.join(tempfile.mkdtemp(), "screen.png")
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as link, link.makefile() as lines:
        link.settimeout(TIMEOUT_S)
        command(link, lines, "qmp_capabilities")
        answer = command(link, lines, "screendump", filename=path, format="png")
        if "error" in answer:  # QEMU before 7.1 has one format
            command(link, lines, "screendump", filename=path)
    with open(path, "rb") as file:
        return base64.b64encode(file.read()).decode()


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
    return {"screen": screen(plan["screen"])}


if __name__ == "__main__":
    try:
        print(json.dumps(main(json.loads(sys.argv[1]))))
    except (OSError, ValueError) as error:
        print(json.dumps({"error": str(error) or type(error).__name__}))

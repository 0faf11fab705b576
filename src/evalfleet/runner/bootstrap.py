"""Runs on a host before the runner: stores the runner's file, then becomes it. Not part of the zipapp.

It is the same text for every host and is read from standard input, so that no data of a run appears in a command line. It is
followed by one line of JSON with its orders (`folder, sha256, size, words, keep`) and, if it asks for them, the bytes of the
runner. It answers with one marked line, because a login shell may print other lines first.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MARK = "EVALFLEET-HOST "


def main() -> None:
    # unbuffered: the rest of the input is for the runner, which replaces this program
    with open(0, "rb", buffering=0, closefd=False) as given:
        orders: dict[str, Any] = json.loads(given.readline().decode("utf-8"))
    folder: str = os.path.expanduser(orders["folder"].replace("{hostname}", socket.gethostname()))
    program = os.path.join(folder, "runner-%s.pyz" % orders["sha256"][:12])
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        has = _sum_of(program) == orders["sha256"]
    except OSError as error:
        _say({"error": _words(error, folder)})
        sys.exit(1)
    _say({"has": has, "python": "%d.%d.%d" % sys.version_info[:3], "folder": folder})
    try:
        if not has:
            _store(program, _read(orders["size"]), orders["sha256"])
        words: list[str] = [sys.executable, "-I", "-S", program, *orders["words"]]
        # The small environment that the runner wants at once, or it would have to begin again to leave the rest behind.
        kept = {name: os.environ[name] for name in orders["keep"] if name in os.environ}
        os.execve(sys.executable, [folder if word == "{folder}" else word for word in words], kept)
    except OSError as error:
        sys.exit(_words(error, folder))  # on standard error: standard output is the runner's by now


def _words(error: OSError, folder: str) -> str:
    return "%s: %s" % (error.filename or folder, error.strerror or error)


def _say(line: dict[str, Any]) -> None:
    sys.stdout.write(MARK + json.dumps(line) + "\n")
    sys.stdout.flush()


def _sum_of(path: str) -> str | None:
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except FileNotFoundError:
        return None


def _read(size: int) -> bytes:
    pieces: list[bytes] = []
    while size:
        piece = os.read(0, min(size, 1 << 18))
        if not piece:
            raise OSError("the connection ended before the runner was copied")
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def _store(path: str, data: bytes, wanted: str) -> None:
    if hashlib.sha256(data).hexdigest() != wanted:
        raise OSError("the runner arrived damaged")
    partial = "%s.%d.partial" % (path, os.getpid())
    fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.rename(partial, path)
    except OSError:
        os.unlink(partial)
        raise


if __name__ == "__main__":
    main()

"""Shows the files of an attempt while it still runs, and connects to its screen, if it has one.

Like `logs`, it is sent to the host's Python as text; it is not part of the zipapp, starts no runner and writes nothing. It is followed
by one line of JSON with its orders, then one line per request, each answered by one line. A request names an attempt and a file
below its folder: nothing outside is ever opened, and links are not followed.
"""

from __future__ import annotations

import base64
import json
import os
import re
import socket
import stat
import sys
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MARK = "EVALFLEET-HOST "
ATTEMPT = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
STREAMS = ("stdout", "stderr")
SCREEN = "vnc.sock"
MOST_FILES = 2000
MOST_DEPTH = 32
MOST_BYTES = 1 << 18
BLOCK = 1 << 16
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def main() -> None:
    with open(0, "rb", buffering=0, closefd=False) as given:
        orders: dict[str, Any] = json.loads(given.readline().decode("utf-8"))
    folder: str = os.path.expanduser(orders["folder"].replace("{hostname}", socket.gethostname()))
    attempts = os.path.join(folder, "attempts")
    try:
        if orders["do"] == "relay":
            relay(attempts, orders["attempt"])
        else:
            say(MARK + json.dumps({"has": os.path.isdir(attempts)}))
            with open(0, "rb", closefd=False) as questions:
                for line in questions:
                    say(json.dumps(answer(attempts, json.loads(line.decode("utf-8")))))
    except BrokenPipeError:
        os._exit(0)  # the client is gone


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def answer(attempts: str, asked: dict[str, Any]) -> dict[str, Any]:
    try:
        if asked["do"] == "screens":
            told: dict[str, Any] = {"attempts": screens(attempts)}
        else:
            here = entered(attempts, asked["attempt"])
            try:
                told = look(here) if asked["do"] == "look" else read(here, asked)
            finally:
                os.close(here)
    except (OSError, ValueError) as error:
        told = {"missing": str(getattr(error, "strerror", None) or error)}
    return dict(told, id=asked["id"])


def entered(attempts: str, name: str) -> int:
    """Open the folder of an attempt."""
    if not ATTEMPT.fullmatch(name):
        raise ValueError("that is not the name of an attempt")
    return os.open(os.path.join(attempts, name), FOLDER)


def look(here: int) -> dict[str, Any]:
    """The current state: sizes of the logs and event lines, all artifacts, whether there is a screen."""
    logs = {stream: size_of(here, stream + ".log") for stream in STREAMS}
    files: list[tuple[str, int, float]] = []
    try:
        artifacts = os.open("artifacts", FOLDER, dir_fd=here)
    except OSError:
        artifacts = -1  # not yet
    if artifacts >= 0:
        walk(artifacts, "", files, 0)
    return {"logs": logs, "events": size_of(here, "events.jsonl"), "files": files, "screen": has_screen(here)}


def size_of(here: int, name: str) -> int:
    try:
        found = os.stat(name, dir_fd=here, follow_symlinks=False)
    except OSError:
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else 0


def walk(here: int, above: str, files: list[tuple[str, int, float]], depth: int) -> None:
    """Regular files below; takes ownership of the descriptor. The number of files is limited; names that are not UTF-8 are skipped."""
    try:
        names = sorted(os.listdir(here))
        for name in names:
            if len(files) >= MOST_FILES:
                return
            try:
                name.encode("utf-8")
                found = os.stat(name, dir_fd=here, follow_symlinks=False)
                if stat.S_ISREG(found.st_mode):
                    files.append((above + name, found.st_size, found.st_mtime))
                elif stat.S_ISDIR(found.st_mode) and depth < MOST_DEPTH:
                    walk(os.open(name, FOLDER, dir_fd=here), above + name + "/", files, depth + 1)
            except (OSError, UnicodeError):
                continue  # it is gone already, or closed to us
    finally:
        os.close(here)


def read(here: int, asked: dict[str, Any]) -> dict[str, Any]:
    """A piece of a file, and the file's size."""
    parts: list[str] = asked["path"].split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise ValueError("that is not a valid path")
    opened: list[int] = []
    try:
        for part in parts[:-1]:
            here = os.open(part, FOLDER, dir_fd=here)
            opened.append(here)
        fd = os.open(parts[-1], FILE, dir_fd=here)
        opened.append(fd)
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("that is not a regular file")
        data = os.pread(fd, min(asked["limit"], MOST_BYTES), asked["offset"])
        return {"data": base64.b64encode(data).decode(), "size": found.st_size}
    finally:
        for fd in opened:
            os.close(fd)


def has_screen(here: int) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(SCREEN, dir_fd=here, follow_symlinks=False).st_mode)
    except OSError:
        return False


def screens(attempts: str) -> list[str]:
    """The attempts that have a screen, newest first."""
    found: list[tuple[float, str]] = []
    try:
        names = os.listdir(attempts)
    except OSError:
        return []
    for name in names:
        try:
            at = os.stat(os.path.join(attempts, name, SCREEN), follow_symlinks=False)
        except OSError:
            continue
        if stat.S_ISSOCK(at.st_mode) and ATTEMPT.fullmatch(name):
            found.append((at.st_mtime, name))
    return [name for _, name in sorted(found, reverse=True)]


def relay(attempts: str, name: str) -> None:
    """Connect standard input and output to the attempt's screen."""
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        here = entered(attempts, name)
        # The very socket that was looked at, whatever is put into its place meanwhile; and its path may be long.
        fd = os.open(SCREEN, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
        if not stat.S_ISSOCK(os.fstat(fd).st_mode):
            raise ValueError("that is not a socket")
        peer.connect("/proc/self/fd/%d" % fd)
    except (OSError, ValueError) as error:
        say(MARK + json.dumps({"missing": str(getattr(error, "strerror", None) or error)}))
        return
    say(MARK + json.dumps({"has": True}))
    threading.Thread(target=pump_in, args=(peer,), daemon=True).start()
    while True:
        try:
            data = peer.recv(BLOCK)
        except OSError:
            data = b""
        if not data:
            os._exit(0)
        while data:
            data = data[os.write(1, data) :]


def pump_in(peer: socket.socket) -> None:
    data = b"?"
    while data:
        data = os.read(0, BLOCK)
        try:
            peer.sendall(data)
        except OSError:
            break
    os._exit(0)  # the viewer or the screen is gone


if __name__ == "__main__":
    main()

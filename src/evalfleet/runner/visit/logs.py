"""Shows the runner's log, the output of live attempts, pictures of the screen, and whether guests answer.

It is sent to the host's Python as text; it is not part of the zipapp, starts no runner and writes nothing. It is followed by one line
of JSON with its orders. It answers with a marked line, because a login shell may print other lines first, and then with lines of
JSON until it is done or its standard input ends.
"""

from __future__ import annotations

import base64
import json
import os
import re
import select
import socket
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

MARK = "EVALFLEET-HOST "
POLL_S = 0.3
BLOCK = 1 << 16
HEAD = 400  # of an event's line: what the runner itself writes there comes first
KIND = re.compile(rb'"type":"([a-z_]+)"')
TAIL = 1 << 18  # no more than this is looked through for the last lines
LARGEST = 32 << 20
DOCKER_S = 30.0
PNG, PNG_END = b"\x89PNG\r\n\x1a\n", b"IEND\xaeB`\x82"
GET = (
    "import sys, urllib.request as u; "
    "sys.stdout.buffer.write(u.build_opener(u.ProxyHandler({})).open(sys.argv[1], timeout=20).read())"
)

PROBE = (
    "import sys, urllib.request as u; u.build_opener(u.ProxyHandler({})).open(sys.argv[1], timeout=float(sys.argv[2]))"
)


def main() -> None:
    with open(0, "rb", buffering=0, closefd=False) as given:
        orders: dict[str, Any] = json.loads(given.readline().decode("utf-8"))
    folder: str = os.path.expanduser(orders["folder"].replace("{hostname}", socket.gethostname()))
    sys.stdout.write(MARK + json.dumps({"has": os.path.isdir(os.path.join(folder, "attempts"))}) + "\n")
    try:
        {"tail": tail, "picture": picture, "guests": guests}[orders["do"]](folder, orders)
        sys.stdout.flush()
    except BrokenPipeError:
        os._exit(0)  # the client is gone


def say(**line: Any) -> None:
    sys.stdout.write(json.dumps(line) + "\n")


def live(folder: str) -> list[str]:
    """The attempts without an end record, in order."""
    try:
        names = sorted(os.listdir(os.path.join(folder, "attempts")))
    except OSError:
        return []
    return [name for name in names if not is_over(os.path.join(folder, "attempts", name, "journal.jsonl"))]


def is_over(journal: str) -> bool:
    """Whether the journal's last line is the end record. The line may be long; its type is at its start."""
    head = b""
    try:
        with open(journal, "rb") as file:
            begin = file.seek(0, os.SEEK_END)
            while begin > 0:
                size = min(BLOCK, begin)
                file.seek(begin - size)
                data = file.read(size)
                text = (data if head else data.rstrip(b"\n")) + head
                cut = text.rfind(b"\n") + 1
                head = text[cut : cut + HEAD]
                if cut:
                    break
                begin -= size
    except OSError:
        return True  # it was never launched, or is being removed
    kind = KIND.search(head)
    return kind is not None and kind.group(1) == b"ended"


class LogSource:
    """A growing log, reported in whole lines."""

    def __init__(self, folder: str, path: str, source: str, stream: str) -> None:
        self.path = path
        self.source = source
        self.offset = 0
        self._file = os.path.join(folder, path)
        self._stream = stream

    def skip(self, lines: int) -> None:
        try:
            with open(self._file, "rb") as file:
                end = file.seek(0, os.SEEK_END)
                begin = max(0, end - TAIL)
                file.seek(begin)
                data = file.read(end - begin)
        except OSError:
            return
        wanted = data.rstrip(b"\n").split(b"\n")[-lines:] if lines else []
        self.offset = end - (len(data) - len(data.rstrip(b"\n"))) - len(b"\n".join(wanted)) if wanted else end

    def tell(self, last: bool) -> None:
        """Report what is new, including an incomplete line if it is the last time."""
        try:
            with open(self._file, "rb") as file:
                if os.fstat(file.fileno()).st_size < self.offset:
                    self.offset = 0  # it was put aside, and begun anew
                file.seek(self.offset)
                while True:
                    data = file.read(BLOCK)
                    whole = data[: data.rfind(b"\n") + 1] or (data if last or len(data) == BLOCK else b"")
                    if not whole:
                        return
                    self._say(whole)
                    file.seek(self.offset)
        except OSError:
            return  # nothing was written yet, or it is collected

    def _say(self, whole: bytes) -> None:
        self.offset += len(whole)
        text = whole.decode("utf-8", "replace")
        lines = (text[:-1] if text.endswith("\n") else text).split("\n")
        say(source=self.source, stream=self._stream, lines=lines, path=self.path, offset=self.offset)


def sources(folder: str) -> Iterator[LogSource]:
    yield LogSource(folder, "runner.log", "runner", "log")
    for name in live(folder):
        for stream in ("stdout", "stderr"):
            yield LogSource(folder, "attempts/%s/%s.log" % (name, stream), name, stream)


def tail(folder: str, orders: dict[str, Any]) -> None:
    """The last lines of every log; with `follow` also new lines. `seen` says what the caller has already."""
    seen: dict[str, int] = orders["seen"]
    follow: bool = orders["follow"]
    known: dict[str, LogSource] = {}
    for source in sources(folder):
        known[source.path] = source
        if source.path in seen:
            source.offset = seen[source.path]
        else:
            source.skip(orders["lines"])
        source.tell(not follow)
    while follow and not _hung_up():
        found = {source.path: source for source in sources(folder)}
        for path, source in list(known.items()):
            source.tell(path not in found)
            if path not in found:
                del known[path]
                if path.endswith("stderr.log"):
                    say(source=source.source, over=True)
        for path, source in found.items():
            if path not in known:
                known[path] = source
                source.tell(False)


def _hung_up() -> bool:
    sys.stdout.flush()
    return bool(select.select([0], [], [], POLL_S)[0]) and not os.read(0, BLOCK)


def picture(folder: str, orders: dict[str, Any]) -> None:
    """The screen of Windows in a container, else the newest picture of a live attempt."""
    tried: list[str] = []
    for container in orders["containers"]:
        try:
            data = _of_guest(orders, container)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            tried.append("container %s: %s" % (container, error))
        else:
            say(png=base64.b64encode(data).decode(), of="container " + container, age_s=0.0)
            return
    attempts = live(folder)
    for _, path, name in sorted(_pictures(folder, attempts), reverse=True):
        shown = _whole(path)
        if shown is not None:
            say(png=base64.b64encode(shown[0]).decode(), of="attempt " + name, age_s=max(0.0, time.time() - shown[1]))
            return
    tried.append(
        "%d live attempts, none with a picture in its artifacts" % len(attempts) if attempts else "no live attempt"
    )
    say(none=tried)


def _of_guest(orders: dict[str, Any], container: str) -> bytes:
    docker: str = orders["docker"]
    try:
        running = _docker(docker, "container", "inspect", "--format", "{{.State.Running}}", container)
    except FileNotFoundError:
        raise ValueError("there is no %s" % docker) from None
    if running.strip() != b"true":
        raise ValueError("it is not running")
    data = _docker(docker, "exec", container, orders["python"], "-c", GET, orders["url"])
    if not data.startswith(PNG):
        raise ValueError("the answer of %s is not a PNG" % orders["url"])
    return data


def guests(_folder: str, orders: dict[str, Any]) -> None:
    """For each container: whether the guest in it answers, and the port of this host that shows its screen."""
    containers: list[str] = orders["containers"]
    with ThreadPoolExecutor(max_workers=len(containers)) as threads:
        for asked in [threads.submit(_guest, orders, container) for container in containers]:
            say(**asked.result())


def _guest(orders: dict[str, Any], container: str) -> dict[str, Any]:
    """`state` is answers, silent, stopped or missing, or unknown where Docker itself does not answer; `seen` says more."""
    docker: str = orders["docker"]
    limit_s: float = orders["limit_s"]
    row: dict[str, Any] = {"container": container, "state": "unknown", "seen": "", "port": None}
    try:
        found = json.loads(_docker(docker, "container", "inspect", container, limit_s=limit_s))[0]
        row["port"] = _published(found, orders["screen_port"])
        if not found["State"]["Running"]:
            return dict(row, state="stopped", seen="the container is %s" % found["State"]["Status"])
        row["state"] = "silent"
        words = ("exec", container, orders["python"], "-c", PROBE, orders["url"], str(limit_s))
        _docker(docker, *words, limit_s=limit_s + 2)  # the program in the container says more than a killed client
    except FileNotFoundError:
        return dict(row, state="missing", seen="there is no %s" % docker)
    except subprocess.TimeoutExpired:
        return dict(row, seen="docker did not answer within %g s" % limit_s)
    except (OSError, ValueError, LookupError) as error:
        if "no such container" in str(error).lower():
            return dict(row, state="missing", seen="there is no such container")
        return dict(row, seen=str(error))
    return dict(row, state="answers")


def _published(found: dict[str, Any], port: int) -> int | None:
    """The port of the host that leads to a port of the container."""
    if found.get("HostConfig", {}).get("NetworkMode") == "host":
        return port
    ports: dict[str, list[dict[str, str]] | None] = found["NetworkSettings"].get("Ports") or {}
    places = ports.get("%d/tcp" % port) or []
    return int(places[0]["HostPort"]) if places else None


def _docker(program: str, *words: str, limit_s: float = DOCKER_S) -> bytes:
    done = subprocess.run(
        [program, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=limit_s,
        check=False,
    )
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise ValueError(said[-1] if said else "docker %s ended with %d" % (words[0], done.returncode))
    return done.stdout


def _pictures(folder: str, attempts: list[str]) -> Iterator[tuple[float, str, str]]:
    """Time, path and attempt of each picture. Follows no links."""
    for name in attempts:
        for place, _, files in os.walk(os.path.join(folder, "attempts", name, "artifacts")):
            for file in files:
                path = os.path.join(place, file)
                if file.lower().endswith(".png"):
                    try:
                        yield os.lstat(path).st_mtime, path, name
                    except OSError:
                        continue


def _whole(path: str) -> tuple[bytes, float] | None:
    """The picture and when it was written; None if it is not a picture, or not complete yet."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(fd, "rb") as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST:
            return None
        data = file.read(LARGEST)
    return (data, found.st_mtime) if data.startswith(PNG) and data.endswith(PNG_END) else None


if __name__ == "__main__":
    main()

"""The program inside the container: its text is handed to the container's Python. Standard library only, Python >= 3.8.

Called with one JSON object, it does one of three things:

- ``wait``: wait until Windows answers.
- ``end``: end everything that an attempt left in this container.
- ``run``: both, then call run.py, follow what it writes, and end everything again.

It tells what happens in JSON lines on standard output: ``guest`` (it does not answer: why), ``ready``, ``out`` (what
run.py printed), ``file`` (a file of the task's folder, base64), ``traj`` (a line of traj.jsonl), ``quiet`` (no news for
most of the stall limit: whether the guest answers), ``exit``. It ends when standard input does: whoever kills the other
end of the connection ends this side as well.

Processes of an attempt are known by a variable of their environment, so that none escapes by a session of its own, and
no number of a process that is long gone is ever killed.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict

    Plan = Dict[str, Any]

MARK = "EVALFLEET_CONTAINER"
LARGEST = 32 << 20  # of a file that is passed on
PROBE_S = 7.0


def say(**news: Any) -> None:
    sys.stdout.write(json.dumps(news) + "\n")
    sys.stdout.flush()


def end_all(mark: str, deadline_s: float = 3.0) -> None:
    """Kill every other process that carries the mark, until none is left."""
    wanted = (MARK + "=" + mark).encode()
    until = time.monotonic() + deadline_s
    while time.monotonic() < until:
        found = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _carries(pid, wanted)]
        if not found:
            return
        for pid in found:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def _carries(pid: int, wanted: bytes) -> bool:
    if pid == os.getpid():
        return False
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return wanted in file.read().split(b"\0")
    except OSError:
        return False


def guest_error(address: list[Any]) -> str | None:
    """Why Windows does not answer; None if it does."""
    try:
        with socket.create_connection(tuple(address), PROBE_S) as link:
            link.settimeout(PROBE_S)
            link.sendall(b"GET /probe HTTP/1.0\r\nHost: guest\r\n\r\n")
            head = link.recv(4096)
            while link.recv(4096):  # to its end, so that it is not told of a broken connection
                pass
    except OSError as error:
        return str(error) or type(error).__name__
    words = head.split(b"\r\n")[0].decode("latin-1")
    return None if " 200" in words else f"it answered {words!r}"


def wait_for_guest(plan: Plan) -> bool:
    """Return whether it answered in time."""
    until = time.monotonic() + plan["guest_timeout_s"]
    while True:
        error = guest_error(plan["guest"])
        if error is None:
            return True
        if time.monotonic() >= until:
            say(guest=error)
            return False
        time.sleep(min(1.0, plan["poll_s"]))


class Task:
    """What run.py leaves of the one task, found as it grows."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._sent: set[str] = set()
        self._offset = 0
        self._folder: str | None = None
        self.lines = 0
        self.done = False  # its result is written

    def look(self) -> bool:
        """Pass on the new lines of the trajectory; return whether there were any."""
        folder = self._find()
        if folder is None:
            return False
        before = self.lines
        for line in self._new_lines(os.path.join(folder, "traj.jsonl")):
            self._send_picture(folder, line)
            say(traj=line)
            self.lines += 1
        self.done = _read(os.path.join(folder, "result.txt")).endswith(b"\n")
        return self.lines > before

    def send_all(self) -> None:
        root = self._plan["result_dir"]
        for folder, prefix in ((self._find() or "", ""), (os.path.join(root, "logs"), "logs")):
            for place, _, names in os.walk(folder):  # of no folder: nothing
                for name in sorted(names):
                    path = os.path.join(place, name)
                    self._send(path, os.path.join(prefix, os.path.relpath(path, folder)))

    def _find(self) -> str | None:
        wanted = os.path.join(str(self._plan["domain"]), str(self._plan["id"]))
        if self._folder is None:
            for place, _, _ in os.walk(self._plan["result_dir"]):
                if place.endswith(os.sep + wanted):
                    self._folder = place
        return self._folder

    def _new_lines(self, path: str) -> list[str]:
        """Whole lines only: the last one may be half written."""
        data = _read(path, self._offset)
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return whole.decode("utf-8", "replace").splitlines()

    def _send_picture(self, folder: str, line: str) -> None:
        try:
            shown: Any = json.loads(line).get("screenshot")
        except (ValueError, AttributeError):
            return
        if isinstance(shown, str) and shown:
            name = os.path.basename(shown)
            self._send(os.path.join(folder, name), name)

    def _send(self, path: str, name: str) -> None:
        if name in self._sent or os.path.islink(path) or not os.path.isfile(path):
            return
        self._sent.add(name)
        if os.path.getsize(path) <= LARGEST:
            say(file=name, data=base64.b64encode(_read(path)).decode())
        else:
            say(out=f"evalfleet: {name} is too large and was left out\n")


def _read(path: str, offset: int = 0) -> bytes:
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            return file.read()
    except OSError:
        return b""


def run(plan: Plan) -> None:
    shutil.rmtree(plan["result_dir"], ignore_errors=True)
    # WAA trusts any file in its download cache, also one that was cut off when an earlier attempt was killed.
    shutil.rmtree(os.path.join("cache", plan["id"]), ignore_errors=True)
    os.makedirs(plan["result_dir"])
    with open(plan["meta_path"], "w") as file:
        json.dump({plan["domain"]: [plan["id"]]}, file)
    child = subprocess.Popen(
        plan["command"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    say(ready=True)
    task = Task(plan)
    assert child.stdout is not None
    source = child.stdout.fileno()
    if _follow(plan, child, source, task):
        task.look()
        end_all(plan["mark"])
        _print_rest(source)
        task.send_all()
        say(exit=child.wait(), lines=task.lines)


def _follow(plan: Plan, child: subprocess.Popen[bytes], source: int, task: Task) -> bool:
    """Return True when run.py is over, or False when nobody listens any more."""
    news_at, told, done_at = time.monotonic(), False, 0.0
    sources = [0, source]
    while child.poll() is None:
        ready = select.select(sources, [], [], plan["poll_s"])[0]
        if 0 in ready and not os.read(0, 4096):
            return False
        if source in ready and not _print(source):
            sources.pop()
        now = time.monotonic()
        if task.look():
            news_at, told = now, False
        if task.done:
            done_at = done_at or now
            if now - done_at > 0.1 * plan["stall_s"]:  # it has said all that it has to say
                return True
        elif not told and now - news_at > 0.75 * plan["stall_s"]:
            told = True
            say(quiet=True, guest=guest_error(plan["guest"]), lines=task.lines)
    return True


def _print(source: int) -> bool:
    data = os.read(source, 65536)
    if data:
        say(out=data.decode("utf-8", "replace"))
    return bool(data)


def _print_rest(source: int) -> None:
    while select.select([source], [], [], 0)[0] and _print(source):
        pass


def main() -> None:
    plan = json.loads(sys.argv[1])
    if plan["do"] in ("end", "run"):
        end_all(plan["mark"])
    if plan["do"] == "end" or not wait_for_guest(plan):
        return
    if plan["do"] == "wait":
        say(ready=True)
        return
    try:
        run(plan)
    finally:
        end_all(plan["mark"])
        shutil.rmtree(plan["result_dir"], ignore_errors=True)


if __name__ == "__main__":
    main()

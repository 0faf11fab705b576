"""The program inside the container: its text is handed to the container's Python. Standard library only, Python >= 3.8.

Called with one JSON object, it does one of these:

- ``wait``: wait until Windows answers.
- ``end``: end everything that an attempt left in this container.
- ``shutdown``: end that, then ask Windows to shut down, and wait until its machine is off.
- ``run``: end that, wait for Windows, call run.py, follow what it writes, and end everything again.

It tells what happens in JSON lines on standard output: ``guest`` (it does not answer: why), ``ready``, ``out`` (what
run.py printed), ``file`` (a file of the task's folder, base64; with ``offset`` it is a part of a growing one), ``traj`` (a line
of traj.jsonl), ``quiet`` (no news for most of the stall limit: whether the guest works), ``slow`` (the time limit is near, and
Windows is slow), ``link`` (bytes for the model's endpoint), ``exit``. Standard input brings the endpoint's bytes. This program
ends when standard input does: whatever kills the other end of the connection ends this side as well.

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
import threading
import time
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict

    Plan = Dict[str, Any]

MARK = "EVALFLEET_CONTAINER"
LARGEST = 32 << 20  # of a file that is passed on
PROBE_S = 7.0
LONGEST_PROBE_S = 30.0
SLOW_S = 15.0  # for one look at the screen; a Windows that works needs a few seconds
VIEWS = ("/obs_winagent", "/accessibility?backend=uia")  # what run.py asks for at every step
GROWING = (".log", ".html")
QUIET, LATE = 0.75, 0.85  # parts of the limits for stall and time

_saying = threading.Lock()


def say(**news: Any) -> None:
    with _saying:
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


def guest_error(address: list[Any], path: str = "/probe", limit_s: float = PROBE_S) -> str | None:
    """Why Windows does not answer; None if it does."""
    until = time.monotonic() + limit_s
    try:
        with socket.create_connection(tuple(address), limit_s) as link:
            link.sendall(b"GET " + path.encode() + b" HTTP/1.0\r\nHost: guest\r\n\r\n")
            head = part = _receive(link, until)
            while part:  # to its end, so that it is not told of a broken connection
                part = _receive(link, until)
    except OSError as error:
        return str(error) or type(error).__name__
    words = head.split(b"\r\n")[0].decode("latin-1")
    # An image without a view answers 404: that is an answer.
    fine = " 200" in words or (path != "/probe" and " 4" in words)
    return None if fine else f"it answered {words!r}"


def _receive(link: socket.socket, until: float) -> bytes:
    left = until - time.monotonic()
    if left <= 0:
        raise socket.timeout("timed out")
    link.settimeout(left)
    return link.recv(65536)


def view_error(address: list[Any], limit_s: float) -> str | None:
    """Which of the things that run.py needs at every step Windows does not give; None if it gives all."""
    error = guest_error(address)
    if error is not None:
        return error
    for path in VIEWS:
        error = guest_error(address, path, limit_s)
        if error is not None:
            return f"GET {path}: {error}"
    return None


def slowest_view(address: list[Any], limit_s: float) -> tuple[str, float]:
    """The slowest of the views, and how long it took."""
    took: dict[str, float] = {}
    for path in VIEWS:
        begun = time.monotonic()
        guest_error(address, path, limit_s)
        took[path] = time.monotonic() - begun
    path = max(took, key=took.__getitem__)
    return path, took[path]


def wait_for_guest(plan: Plan) -> bool:
    """Return whether it answered in time. A virtual machine whose process is gone is not waited for."""
    until = time.monotonic() + plan["guest_timeout_s"]
    seen = False
    while True:
        error = guest_error(plan["guest"])
        if error is None:
            return True
        runs = machine_runs(plan["qmp_port"])
        if seen and not runs:
            error = f"the process of its virtual machine ended ({error})"
        seen = seen or runs
        if time.monotonic() >= until or (seen and not runs):
            say(guest=error)
            return False
        time.sleep(min(1.0, plan["poll_s"]))


def machine_runs(qmp_port: int) -> bool:
    """Whether the QEMU of this container runs, which has its monitor there: another one is none of our business."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        name, command = _read(f"/proc/{pid}/comm"), _read(f"/proc/{pid}/cmdline")
        if name.startswith(b"qemu-system") and b":%d," % qmp_port in command:
            return True
    return False


def shut_down(plan: Plan) -> None:
    """Ask Windows to shut down through QEMU's monitor, and wait until the machine is off, which closes the connection."""
    until = time.monotonic() + plan["shutdown_s"]
    try:
        with socket.create_connection(("127.0.0.1", plan["qmp_port"]), PROBE_S) as link:
            for command in ("qmp_capabilities", "system_powerdown"):
                _receive(link, until)  # its greeting, and its answer
                link.sendall(json.dumps({"execute": command}).encode() + b"\n")
            while _receive(link, until):
                pass
    except OSError as error:
        say(off=False, error=str(error) or type(error).__name__)
        return
    say(off=True)


class Tunnel:
    """A port on the container's loopback whose connections are carried to the other side, where the model's proxy is."""

    def __init__(self) -> None:
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(16)
        self.port = self._listener.getsockname()[1]
        self._links: dict[int, socket.socket] = {}
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            link, _ = self._listener.accept()
            number = len(self._links) + 1
            self._links[number] = link
            threading.Thread(target=self._read, args=(number, link), daemon=True).start()

    def _read(self, number: int, link: socket.socket) -> None:
        data = b"\0"
        while data:
            try:
                data = link.recv(65536)
            except OSError:
                data = b""
            say(link=number, data=base64.b64encode(data).decode())

    def deliver(self, news: Plan) -> None:
        """Pass on what the endpoint sent; nothing means that it is done."""
        link, data = self._links[news["link"]], base64.b64decode(news["data"])
        with suppress(OSError):
            if data:
                link.sendall(data)
            else:
                link.shutdown(socket.SHUT_RDWR)


class Input(threading.Thread):
    """Reads standard input to its end."""

    def __init__(self, tunnel: Tunnel | None) -> None:
        super().__init__(daemon=True)
        self._tunnel = tunnel
        self.over = threading.Event()

    def run(self) -> None:
        for line in sys.stdin:
            if self._tunnel is not None:
                self._tunnel.deliver(json.loads(line))
        self.over.set()


class Task:
    """What run.py leaves of the one task, found as it grows."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._sent: dict[str, int] = {}  # bytes of each file that were passed on
        self._sizes: dict[str, int] = {}
        self._offset = 0
        self._folder: str | None = None
        self.lines = 0
        self.done = False  # its result is written

    def look(self) -> bool:
        """Pass on what is new; return whether there were new lines in the trajectory."""
        folder = self._find()
        if folder is None:
            self.send_all(whole=False)
            return False
        before = self.lines
        for line in self._new_lines(os.path.join(folder, "traj.jsonl")):
            self._send_picture(folder, line)
            say(traj=line)
            self.lines += 1
        self.send_all(whole=False)
        self.done = _read(os.path.join(folder, "result.txt")).endswith(b"\n")
        return self.lines > before

    def send_all(self, *, whole: bool) -> None:
        """Pass on all files; unless the whole is wanted, only logs, and files that have stopped growing."""
        root = self._plan["result_dir"]
        for folder, prefix in ((self._find() or "", ""), (os.path.join(root, "logs"), "logs")):
            for place, _, names in os.walk(folder):  # of no folder: nothing
                for name in sorted(names):
                    path = os.path.join(place, name)
                    shown = os.path.join(prefix, os.path.relpath(path, folder))
                    if whole or name.endswith(GROWING) or (name != "traj.jsonl" and self._is_at_rest(path)):
                        self._send(path, shown)

    def _is_at_rest(self, path: str) -> bool:
        size = os.path.getsize(path)
        before, self._sizes[path] = self._sizes.get(path), size
        return size > 0 and before == size

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
        if os.path.islink(path) or not os.path.isfile(path):
            return
        sent, size = self._sent.get(name), os.path.getsize(path)
        if sent is None and size > LARGEST:
            say(out=f"evalfleet: {name} is too large and was left out\n")
            self._sent[name] = LARGEST
        elif sent is None or (name.endswith(GROWING) and sent < min(size, LARGEST)):
            data = _read(path, sent or 0)
            self._sent[name] = (sent or 0) + len(data)
            say(file=name, offset=sent or 0, data=base64.b64encode(data).decode())


def _read(path: str, offset: int = 0) -> bytes:
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            return file.read()
    except OSError:
        return b""


def run(plan: Plan) -> None:
    tunnel = Tunnel() if plan["model"] else None
    source = Input(tunnel)
    source.start()
    if not wait_for_guest(plan):
        return
    # What was left by an attempt whose container was restarted: it may hold the environment of run.py.
    shutil.rmtree(os.path.dirname(plan["result_dir"]), ignore_errors=True)
    # WAA trusts any file in its download cache, also one that was cut off when an earlier attempt was killed.
    shutil.rmtree(os.path.join("cache", plan["id"]), ignore_errors=True)
    os.makedirs(plan["result_dir"])
    with open(plan["meta_path"], "w") as file:
        json.dump({plan["domain"]: [plan["id"]]}, file)
    proxied = ["env", f"OPENAI_BASE_URL=http://127.0.0.1:{tunnel.port}/v1"] if tunnel else []
    child = subprocess.Popen(
        proxied + plan["command"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    say(ready=True)
    task = Task(plan)
    assert child.stdout is not None
    output = child.stdout.fileno()
    if _follow(plan, child, output, task, source):
        task.look()
        end_all(plan["mark"])
        _print_rest(output)
        task.send_all(whole=True)
        say(exit=child.wait(), lines=task.lines)


def _follow(plan: Plan, child: subprocess.Popen[bytes], output: int, task: Task, source: Input) -> bool:
    """Return True when run.py is over, or False when the other side is gone."""
    begun = news_at = time.monotonic()
    told, late, done_at = False, False, 0.0
    outputs = [output]
    while child.poll() is None:
        ready = select.select(outputs, [], [], min(0.5, plan["poll_s"]))[0] if outputs else source.over.wait(0.5)
        if source.over.is_set():
            return False
        if outputs and ready and not _print(output):
            outputs = []
        now = time.monotonic()
        if task.look():
            news_at, told = now, False
        if task.done:
            done_at = done_at or now
            if now - done_at > 0.1 * plan["stall_s"]:  # it has said all that it has to say
                return True
        elif not told and now - news_at > QUIET * plan["stall_s"]:
            told = True
            limit_s = min(LONGEST_PROBE_S, 0.1 * plan["stall_s"])
            say(quiet=True, guest=view_error(plan["guest"], limit_s), lines=task.lines)
        if not late and plan["timeout_s"] and now - begun > LATE * plan["timeout_s"]:
            late = True
            path, took_s = slowest_view(plan["guest"], min(LONGEST_PROBE_S, 0.05 * plan["timeout_s"]))
            if took_s >= min(SLOW_S, 0.05 * plan["timeout_s"]):
                say(slow=path, took_s=round(took_s, 1))
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
    if "mark" in plan:
        end_all(plan["mark"])
    if plan["do"] == "shutdown":
        shut_down(plan)
    elif plan["do"] == "wait":
        if wait_for_guest(plan):
            say(ready=True)
    elif plan["do"] == "run":
        try:
            run(plan)
        finally:
            end_all(plan["mark"])
            shutil.rmtree(os.path.dirname(plan["result_dir"]), ignore_errors=True)


if __name__ == "__main__":
    main()

"""A Windows for WAA's unchanged client: the endpoints of its guest's server that the tests need, QEMU's monitor, and a disk.

WAA has the ports of both in its code, so only one may run at a time on an address; `guest()` waits for its turn. What the agent's code
does in this Windows is Python, as in the real one: `open` and `os` act on the disk, `clock` stands for the Clock app.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import socketserver
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from evalfleet.benchmarks.waa.readiness import SNAPSHOT
from evalfleet.emulator.docker import state
from evalfleet.testing.pages import picture

ADDRESS, PORT, MONITOR = "127.5.0.1", 5000, 7200
HOME = "C:\\Users\\Docker"
TREE = (
    '<desktop xmlns:st="uri:deskat:state.at-spi.gnome.org" xmlns:cp="uri:deskat:component.at-spi.gnome.org">'
    '<window name="Calculator" st:visible="true" cp:screencoord="(10, 10)" cp:size="(100, 50)"/></desktop>'
)


class _File:
    """What the agent's `open` gives: a file that is written at once."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, text: str) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(text)


class Windows:
    """The state of the guest: its disk, and what is wrong with it (`fault`, by path: a status, "drop", "hang" or "broken")."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.disk = folder / "disk"
        self.fault: dict[str, int | str] = {}
        self.pause_s: dict[str, float] = {}
        self.follow: Callable[[], state.Container | None] = lambda: None
        self._restarts = 0
        self.executed: list[str] = []
        self._make_disk()

    def _make_disk(self) -> None:
        shutil.rmtree(self.disk, ignore_errors=True)
        for name in ("Desktop", "Documents", "Downloads"):
            (self.disk / "Users" / "Docker" / name).mkdir(parents=True)
        (self.disk / "clock.json").write_text("[]")

    def boot(self) -> None:
        """After a restart of its container a disk whose writes are thrown away is the golden one."""
        container = self.follow()
        if container is not None and container.restarts != self._restarts:
            self._restarts = container.restarts
            if any(SNAPSHOT in one for one in container.env):
                self._make_disk()

    def path(self, name: str) -> Path:
        return self.disk / name.removeprefix("C:").replace("\\", "/").strip("/")

    def execute(self, code: str) -> None:
        self.executed.append(code)

        def opened(name: str, _mode: str) -> _File:
            return _File(self.path(name))

        def clock(entry: list[Any]) -> None:
            file = self.disk / "clock.json"
            file.write_text(json.dumps([*json.loads(file.read_text()), entry]))

        def move(source: str, target: str) -> None:
            self.path(source).rename(self.path(target))

        exec(code, {"open": opened, "clock": clock, "move": move})

    def has_clock(self, entry: list[Any]) -> bool:
        return entry in json.loads((self.disk / "clock.json").read_text())


class _Server(BaseHTTPRequestHandler):
    windows: Windows

    def do_GET(self) -> None:
        self._serve(b"")

    def do_POST(self) -> None:
        self._serve(self.rfile.read(int(self.headers.get("Content-Length") or 0)))

    def _serve(self, body: bytes) -> None:
        path, windows = self.path.partition("?")[0], self.windows
        windows.boot()
        time.sleep(windows.pause_s.get(path, 0.0))
        fault = windows.fault.get(path)
        if fault == "hang":
            time.sleep(600)
        if fault in ("drop", "hang"):
            return  # the connection is closed without a word
        status, answer = (fault, {"error": "fault"}) if isinstance(fault, int) else self._answer(path, body, fault)
        data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header(
            "Content-Type", "application/octet-stream" if isinstance(answer, bytes) else "application/json"
        )
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _answer(self, path: str, body: bytes, fault: object) -> tuple[int, Any]:
        windows = self.windows
        asked: Any = json.loads(body) if body.startswith(b"{") else {}
        match path:
            case "/obs_winagent":
                shown = base64.b64encode(picture()).decode()
                view = {
                    "image": shown,
                    "window_title": "Calculator",
                    "rect": [0, 0, 10, 10],
                    "window_names_str": "Calculator",
                }
                return 200, {**view, "computer_clipboard": None, "human_input": None}
            case "/accessibility":
                return 200, {"AT": "<desktop" if fault == "broken" else TREE}
            case "/execute_windows":
                try:
                    windows.execute(asked["command"])
                except Exception as error:
                    return 500, {"status": "error", "message": str(error)}
                return 200, {"status": "success"}
            case "/setup/create_folder":
                windows.path(asked["path"]).mkdir(parents=True, exist_ok=True)
                return 200, {"status": "success"}
            case "/setup/open_file":
                return (200, {}) if windows.path(asked["path"]).exists() else (404, {"error": "File not found"})
            case "/desktop_path":
                return 200, {"desktop_path": f"{HOME}\\Desktop"}
            case "/documents_path":
                return 200, {"documents_path": f"{HOME}\\Documents"}
            case "/folder_exists" | "/file_exists":
                found = windows.path(f"{asked['path']}\\{asked.get('folder_name') or asked.get('file_name')}")
                return (200 if found.exists() else 400), {}
            case "/file":
                file = windows.path(parse_qs(body.decode())["file_path"][0])
                return (200, file.read_bytes()) if file.is_file() else (404, {"error": "File not found"})
            case "/check_if_timer_started":
                return (200 if windows.has_clock([asked["hours"], asked["minutes"], asked["seconds"]]) else 400), {}
            case "/check_if_world_clock_exists":
                return (200 if windows.has_clock([asked["city"], asked["country"]]) else 400), {}
            case _:
                return 200, {"status": "success"}

    def log_message(self, format: str, *args: Any) -> None:
        pass


class _Monitor(socketserver.StreamRequestHandler):
    windows: Windows

    def handle(self) -> None:
        if self.windows.fault.get("qmp") == "drop":
            return
        self.wfile.write(b'{"QMP": {"version": {}, "capabilities": []}}\n')
        for line in self.rfile:
            asked: Any = json.loads(line)
            if asked["execute"] == "screendump":
                # Into place in one step: an earlier call's file may be under the client's eyes.
                data = b"" if self.windows.fault.get("qmp") == "broken" else picture()
                with tempfile.NamedTemporaryFile(dir="/tmp", delete=False) as file:
                    file.write(data)
                os.replace(file.name, asked["arguments"]["filename"])
            answer = {"return": {"status": "running"} if asked["execute"] == "query-status" else {}}
            self.wfile.write(json.dumps(answer).encode() + b"\n")


class _MonitorServer(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


@contextmanager
def guest(folder: Path) -> Iterator[Windows]:
    """A Windows at `ADDRESS`, while the context is open."""
    windows = Windows(folder)
    server = type("Server", (_Server,), {"windows": windows})
    monitor = type("Monitor", (_Monitor,), {"windows": windows})
    with (Path(tempfile.gettempdir()) / "evalfleet-waa-guest.lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        with (
            ThreadingHTTPServer((ADDRESS, PORT), server) as http,
            _MonitorServer(("127.0.0.1", MONITOR), monitor) as qmp,
        ):
            http.daemon_threads = True
            for each in (http, qmp):
                threading.Thread(target=each.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
            try:
                yield windows
            finally:
                http.shutdown()
                qmp.shutdown()

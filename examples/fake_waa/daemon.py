"""The daemon behind the stand-in's `docker`: the emulator's fake Docker on one machine that is a folder, and Windows.

    python daemon.py FOLDER CONTAINER…

The containers run from the beginning. These files in FOLDER make things go wrong: `registry-password` (a pull wants a
login with it), `pulls/<n>-<fault>` (spoils one pull: `fail`, or `hang` until the client is gone), `broken-<container>`
(it cannot be started, until it is removed), `silent` (Windows does not answer) and `model` (what the model's endpoint answers:
a status with the words, such as `401 Incorrect API key`, or `hang`). FOLDER/calls records every call of Docker, FOLDER/model-keys
the keys that the endpoint was given.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import threading
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Coroutine, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from examples.fake_waa import installation
from examples.fake_waa.installation import Installation, Monitor
from msgspec import Struct, field

from evalfleet import config
from evalfleet.benchmarks.waa.settings import WaaSettings
from evalfleet.emulator.docker import state
from evalfleet.emulator.docker.daemon import Dockerd
from evalfleet.emulator.docker.images import IMAGE_GB
from evalfleet.emulator.docker.state import Container, Image
from evalfleet.emulator.faults import Fault
from evalfleet.emulator.machines import condition, processes
from evalfleet.emulator.machines.condition import Condition, Surroundings
from evalfleet.testing.pages import picture

IMAGE = WaaSettings().image
_RESET = "error pulling image configuration: read tcp: connection reset by peer"
_FAULTS = {"fail": Fault(op="host.docker", exit=1, stderr=_RESET), "hang": Fault(op="host.docker", hang=True)}
_BROKEN = Fault(op="host.docker", exit=1, stderr="Error response from daemon: failed to create task for container")


class Guest(BaseHTTPRequestHandler):
    """Windows, as far as a probe can tell."""

    folder = Path()
    installation: Installation | None = None
    monitor: Monitor

    def do_GET(self) -> None:
        if (self.folder / "silent").exists():
            return
        self.send_response(200)
        self.end_headers()
        if self.path == "/screenshot":
            self.wfile.write(picture())
            return
        self.wfile.write(b'{"status": "Probe successful", "message": "Service is operational"}')

    def do_POST(self) -> None:
        asked = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path.endswith("/chat/completions"):
            self._answer_as_model()
            return
        lacks = self.folder / "lacks"
        is_there = not lacks.exists() or lacks.read_text("utf-8").encode() not in asked
        self.send_response(200 if self.path != "/file_exists" or is_there else 404)
        self.end_headers()
        if self.path == "/shutdown" and self.installation is not None:
            self.installation.shut_down()

    def _answer_as_model(self) -> None:
        with (self.folder / "model-keys").open("a", encoding="utf-8") as file:
            file.write(f"{self.headers.get('Authorization')}\n")
        fault = self.folder / "model"
        status, _, words = fault.read_text("utf-8").partition(" ") if fault.exists() else ("200", "", "")
        if status == "hang":
            time.sleep(3600)
        message = {"role": "assistant", "content": "```python\ncomputer.mouse.single_click()\n```"}
        usage = {"prompt_tokens": 1000, "completion_tokens": 50, "total_tokens": 1050}
        answer = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage}
        body = json.dumps(answer if status == "200" else {"error": {"message": words, "code": None}}).encode()
        self.send_response(int(status))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class FolderMachine(Struct, frozen=True, kw_only=True):
    """Implements `DockerMachine`: this machine, with Docker's state and what goes wrong in a folder."""

    folder: Path
    boots: int = 1
    condition: Condition = field(default_factory=Condition)

    def now(self) -> float:
        return time.time()

    def called(self, args: Sequence[str]) -> None:
        with (self.folder / "calls").open("a", encoding="utf-8") as file:
            file.write(json.dumps(list(args[:12])) + "\n")
        Guest.installation = installation.begun(self.folder, args, Guest.monitor) or Guest.installation

    def changed(self, what: str, container: str) -> None:
        pass  # the calls tell

    def fault(self, line: str) -> Fault | None:
        words = [word for word in line.split(" ") if not word.startswith("-")]
        broken = self.folder / f"broken-{words[-1]}"
        if words[0] == "start" and broken.exists():
            return _BROKEN
        if words[0] == "rm":
            broken.unlink(missing_ok=True)
        if "pull" in words[:2]:
            with contextlib.suppress(OSError, ValueError):
                first = min((self.folder / "pulls").iterdir())
                first.unlink()
                return _FAULTS[first.name.partition("-")[2]]
        return None

    def wants_login(self, registry: str) -> bool:
        return (self.folder / "registry-password").exists()

    def takes_password(self, password: str) -> bool:
        return password == (self.folder / "registry-password").read_text("utf-8")

    async def spawn(self, argv: Sequence[str], environ: Mapping[str, str], folder: str) -> Process:
        env = {"PATH": config.environment()["PATH"], **environ}
        return await asyncio.create_subprocess_exec(
            *argv, env=env, cwd=folder, stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True
        )

    async def sync_guests(self) -> None:
        pass  # it is there from the beginning

    async def wait_for_layer(self) -> None:
        pass

    async def show_disk(self) -> None:
        pass

    def start_soon(self, function: Callable[..., Coroutine[Any, Any, None]], *args: object) -> None:
        raise NotImplementedError("no fault here starts anything")


async def serve(folder: Path, names: Sequence[str]) -> None:
    """Serve until SIGTERM; then nothing runs in the containers any more."""
    containers = {name: Container(name=name, image=IMAGE, boot=1) for name in names}
    state.save(folder, state.DockerState(images={IMAGE: Image(name=IMAGE, gb=IMAGE_GB)}, containers=containers))
    machine = FolderMachine(folder=folder)
    Guest.folder, Guest.monitor = folder, Monitor()
    (folder / "qmp-port").write_text(str(Guest.monitor.server_address[1]), "utf-8")
    guest = ThreadingHTTPServer(("127.0.0.1", 0), Guest)
    threading.Thread(target=guest.serve_forever, daemon=True).start()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with await asyncio.start_server(Dockerd(lambda _: machine).serve, "127.0.0.1", 0, backlog=128) as server:
        docker = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        where = Surroundings(path="", vm="stand-in", docker=docker, images_gb=IMAGE_GB, clock=True)
        condition.write(machine.condition, folder.parent, where)
        partial = folder / "guest-port.partial"
        partial.write_text(str(guest.server_port), "utf-8")
        partial.rename(folder / "guest-port")
        await stop.wait()
        processes.end_all(folder / "containers")
        os._exit(0)  # clients that hang are not waited for


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), sys.argv[2:]))

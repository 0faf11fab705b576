"""Stands in for Docker's daemon and for Windows: containers are names, their processes are this program's children.

    python -m evalfleet.testing.waa.daemon FOLDER CONTAINER…

Listens on FOLDER/docker.sock, and answers `/probe` and `/screenshot` as Windows would on a port of its own, written to
FOLDER/guest-port; while there is a file FOLDER/silent it does not answer. `docker run` makes a container of any name.

The image is there unless there is a file FOLDER/no-image. A pull brings it, and wants a login where there is a file
FOLDER/registry-password; a file FOLDER/pulls/<n>-<fault> spoils one pull: `fail`, or `hang` until nobody waits any more. A
file FOLDER/broken-<container> keeps that container from being started. FOLDER/calls tells of every call.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import socketserver
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from evalfleet import config
from evalfleet.benchmarks.waa.in_container import end_all
from evalfleet.testing.pages import picture
from evalfleet.testing.waa.docker import END, ERROR, HEAD, OUT

_OPTIONS = {"--workdir", "--env", "-t", "--format", "--name", "--platform", "--cap-add", "--stop-timeout", "--device",
            "--volume", "--entrypoint", "--config", "--username", "--filter", "--label", "--tail"}  # fmt: skip
LAYERS = ("0a1b2c3d4e5f", "1a1b2c3d4e5f", "2a1b2c3d4e5f")


class Guest(BaseHTTPRequestHandler):
    """Windows, as far as a probe can tell."""

    folder = Path()

    def do_GET(self) -> None:
        if (self.folder / "silent").exists():
            return
        self.send_response(200)
        self.end_headers()
        if self.path == "/screenshot":
            self.wfile.write(picture())
            return
        self.wfile.write(b'{"status": "Probe successful", "message": "Service is operational"}')

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Containers:
    """Which containers there are, and what runs in them."""

    def __init__(self, folder: Path, names: list[str]) -> None:
        self._folder = folder
        self._states = dict.fromkeys(names, "running")
        self._labels: dict[str, str] = {}
        self._processes: dict[str, list[subprocess.Popen[bytes]]] = {}
        self._lock = threading.Lock()

    def inspect(self, name: str, form: str) -> str:
        with self._lock:
            state = self._states[name]
            if "Labels" in form:
                return self._labels.get(name, "<no value>")
            return str(state == "running").lower() if "Running" in form else state

    def start(self, name: str) -> None:
        with self._lock:
            if self._states[name] and (self._folder / f"broken-{name}").exists():
                raise OSError("failed to create task for container")
            self._states[name] = "running"

    def make(self, name: str, label: str) -> None:
        with self._lock:
            if name in self._states:
                raise OSError(f"the container name {name} is already in use")
            self._states[name] = "running"
            self._labels[name] = label.partition("=")[2]

    def end(self, name: str) -> None:
        """As when the machine in it broke down."""
        with self._lock:
            self._states[name] = "exited"

    def remove(self, name: str) -> None:
        with self._lock:
            del self._states[name]
            (self._folder / f"broken-{name}").unlink(missing_ok=True)

    def prune(self) -> None:
        with self._lock:
            for name in [name for name, state in self._states.items() if state != "running" and name in self._labels]:
                del self._states[name]

    def restart(self, name: str) -> None:
        """End all that runs in a container; a line in FOLDER/restarts tells of it."""
        with self._lock:
            if name not in self._states:
                raise KeyError(name)
            with (self._folder / "restarts").open("a", encoding="utf-8") as file:
                file.write(f"{name}\n")
            self._states[name] = "running"
            processes = self._processes.pop(name, [])
        for process in processes:
            if process.returncode is None:
                process.kill()
        end_all(name)

    def spawn(self, name: str, command: list[str], env: dict[str, str], folder: str | None) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._states[name] != "running":
                raise OSError(f"container {name} is not running")
            process = subprocess.Popen(
                command,
                env=env,
                cwd=folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
            self._processes.setdefault(name, []).append(process)
            return process


class Connection(socketserver.StreamRequestHandler):
    """One client."""

    containers = Containers(Path(), [])
    folder = Path()

    def setup(self) -> None:
        super().setup()
        self._sending = threading.Lock()

    def handle(self) -> None:
        asked = json.loads(self.rfile.readline())
        try:
            self._end(self._obey(asked["args"], asked["environ"]))
        except KeyError as error:
            self._send(ERROR, f"Error: No such container: {error.args[0]}\n".encode())
            self._end(1)
        except OSError as error:
            self._send(ERROR, f"OCI runtime exec failed: {error}\n".encode())
            self._end(126)

    def _obey(self, args: list[str], environ: dict[str, str]) -> int:
        options, words = _parse(args)
        with (self.folder / "calls").open("a", encoding="utf-8") as file:
            file.write(json.dumps(args[:12]) + "\n")
        match words:
            case ["version"]:
                self._send(OUT, b"28.0.0-stand-in\n")
            case ["info"]:
                self._send(OUT, str(self.folder).encode() + b"\n")
            case ["login", *_]:
                return self._login(options)
            case ["pull", image]:
                return self._pull(image, options)
            case ["image", *rest]:
                return self._image(rest)
            case ["exec", name, *command]:
                return self._exec(name, command, options, environ)
            case _:
                return self._container(words, options)
        return 0

    def _container(self, words: list[str], options: dict[str, list[str]]) -> int:
        match words:
            case ["container", "inspect", name]:
                self._send(OUT, self.containers.inspect(name, options["--format"][0]).encode() + b"\n")
            case ["container", "prune"]:
                self.containers.prune()
            case ["start", name]:
                self.containers.start(name)
            case ["restart", name]:
                self.containers.restart(name)
            case ["kill", name]:
                self.containers.end(name)
            case ["rm", name]:
                self.containers.remove(name)
            case ["logs", name]:
                self._send(OUT, f"{name} said this last\n".encode())
            case ["run", *_]:
                self.containers.make(options["--name"][0], options.get("--label", [""])[0])
            case _:
                self._send(ERROR, f"docker: unknown command: {' '.join(words)[:100]}\n".encode())
                return 1
        return 0

    def _image(self, words: list[str]) -> int:
        if words[0] == "inspect":
            if (self.folder / "no-image").exists():
                self._send(ERROR, f"Error: No such image: {words[1]}\n".encode())
                return 1
            self._send(OUT, b"sha256:0\n")
        return 0

    def _login(self, options: dict[str, list[str]]) -> int:
        """As Docker does, with what it leaves in the folder of its configuration."""
        given = self.rfile.read()
        if given != (self.folder / "registry-password").read_bytes():
            self._send(ERROR, b"Error response from daemon: unauthorized: authentication required\n")
            return 1
        auth = base64.b64encode(options["--username"][0].encode() + b":" + given).decode()
        Path(options["--config"][0], "config.json").write_text(json.dumps({"auths": {"it": {"auth": auth}}}), "utf-8")
        return 0

    def _pull(self, image: str, options: dict[str, list[str]]) -> int:
        login = Path(options["--config"][0], "config.json") if "--config" in options else None
        if (self.folder / "registry-password").exists() and (login is None or not login.exists()):
            self._send(ERROR, f"Error response from daemon: pull access denied for {image}\n".encode())
            return 1
        fault = self._fault()
        for layer in LAYERS:
            self._send(OUT, f"{layer}: Pulling fs layer\n".encode())
        self._send(OUT, f"{LAYERS[0]}: Pull complete\n".encode())
        if fault == "hang":
            self.connection.recv(1)  # nothing comes but the client's end
            return 1
        if fault == "fail":
            self._send(ERROR, b"error pulling image configuration: read tcp: connection reset by peer\n")
            return 1
        for layer in LAYERS[1:]:
            self._send(OUT, f"{layer}: Pull complete\n".encode())
        (self.folder / "no-image").unlink(missing_ok=True)
        return 0

    def _fault(self) -> str:
        """What spoils this pull; it is used up."""
        with contextlib.suppress(OSError, ValueError):
            first = min((self.folder / "pulls").iterdir())
            first.unlink()
            return first.name.partition("-")[2]
        return ""

    def _exec(self, name: str, command: list[str], options: dict[str, list[str]], environ: dict[str, str]) -> int:
        env = {"PATH": config.environment()["PATH"], "LANG": "C.UTF-8"}
        for word in options.get("--env", []):
            variable, given, value = word.partition("=")
            env[variable] = value if given else environ.get(variable, "")
        process = self.containers.spawn(name, command, env, options.get("--workdir", [None])[0])
        assert process.stdin
        assert process.stdout
        assert process.stderr
        threads = [
            threading.Thread(target=self._relay, args=(process.stdout.fileno(), OUT)),
            threading.Thread(target=self._relay, args=(process.stderr.fileno(), ERROR)),
        ]
        for thread in threads:
            thread.start()
        if "--interactive" in options:
            threading.Thread(target=self._feed, args=(process,), daemon=True).start()
        else:
            process.stdin.close()
        for thread in threads:
            thread.join()
        return process.wait()

    def _relay(self, source: int, stream: int) -> None:
        """Pass on what comes; while nobody listens any more, take it all the same, as Docker does."""
        while data := os.read(source, 65536):
            with contextlib.suppress(OSError):
                self._send(stream, data)

    def _feed(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin
        with contextlib.suppress(OSError):
            while data := self.connection.recv(65536):
                process.stdin.write(data)
                process.stdin.flush()
        with contextlib.suppress(OSError):
            process.stdin.close()

    def _send(self, stream: int, data: bytes) -> None:
        with self._sending:
            self.connection.sendall(HEAD.pack(stream, len(data)) + data)

    def _end(self, status: int) -> None:
        with contextlib.suppress(OSError):
            self._send(END, str(status if status >= 0 else 128 - status).encode())


def _parse(args: list[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Docker's options stand before the container's name; what follows it is a command and is left alone."""
    options: dict[str, list[str]] = {}
    words: list[str] = []
    rest = list(args)
    while rest and not (words and words[0] in ("exec", "run") and len(words) > 1):
        word = rest.pop(0)
        if word in _OPTIONS:
            options.setdefault(word, []).append(rest.pop(0))
        elif word.startswith("-"):
            options[word] = []
        else:
            words.append(word)
    return options, words + rest


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 128


def _stop(_signal: int, _frame: object) -> None:
    sys.exit(0)


def main() -> None:
    folder, *names = sys.argv[1:]
    Guest.folder = Connection.folder = Path(folder)
    Connection.containers = Containers(Path(folder), names)
    guest = ThreadingHTTPServer(("127.0.0.1", 0), Guest)
    threading.Thread(target=guest.serve_forever, daemon=True).start()
    with Server(str(Path(folder, "docker.sock")), Connection) as server:
        signal.signal(signal.SIGTERM, _stop)
        partial = Path(folder, "guest-port.partial")
        partial.write_text(str(guest.server_port), "utf-8")
        partial.rename(Path(folder, "guest-port"))
        try:
            server.serve_forever(poll_interval=0.05)
        finally:
            for name in names:
                Connection.containers.restart(name)


if __name__ == "__main__":
    main()

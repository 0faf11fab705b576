"""Stands in for Docker's daemon and for Windows: containers are names, their processes are this program's children.

    python -m evalfleet.testing.waa.daemon FOLDER CONTAINER…

Listens on FOLDER/docker.sock, and answers `/probe` and `/screenshot` as Windows would on a port of its own, written to
FOLDER/guest-port; while there is a file FOLDER/silent it does not answer. `docker run` makes a container of any name.
"""

from __future__ import annotations

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
from evalfleet.benchmarks.waa.inside import end_all
from evalfleet.testing.pages import picture
from evalfleet.testing.waa.docker import END, ERROR, HEAD, OUT

_OPTIONS = {"--workdir", "--env", "-t", "--format", "--name", "--platform", "--cap-add", "--stop-timeout", "--device",
            "--volume", "--entrypoint"}  # fmt: skip


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
        self._running = dict.fromkeys(names, True)
        self._processes: dict[str, list[subprocess.Popen[bytes]]] = {}
        self._lock = threading.Lock()

    def inspect(self, name: str) -> str:
        with self._lock:
            return str(self._running[name]).lower()

    def start(self, name: str) -> None:
        with self._lock:
            self._running[name] = True

    def restart(self, name: str) -> None:
        """End all that runs in a container; a line in FOLDER/restarts tells of it."""
        with self._lock:
            if name not in self._running:
                raise KeyError(name)
            with (self._folder / "restarts").open("a", encoding="utf-8") as file:
                file.write(f"{name}\n")
            self._running[name] = True
            processes = self._processes.pop(name, [])
        for process in processes:
            if process.returncode is None:
                process.kill()
        end_all(name)

    def spawn(self, name: str, command: list[str], env: dict[str, str], folder: str | None) -> subprocess.Popen[bytes]:
        with self._lock:
            if not self._running[name]:
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
        match words:
            case ["version"]:
                self._send(OUT, b"28.0.0-stand-in\n")
            case ["image", "inspect", _]:
                self._send(OUT, b"sha256:0\n")
            case ["container", "inspect", name]:
                self._send(OUT, self.containers.inspect(name).encode() + b"\n")
            case ["start", name]:
                self.containers.start(name)
            case ["restart", name]:
                self.containers.restart(name)
            case ["run", *_]:
                self.containers.start(options["--name"][0])
            case ["exec", name, *command]:
                return self._exec(name, command, options, environ)
            case _:
                self._send(ERROR, f"docker: unknown command: {' '.join(args)[:100]}\n".encode())
                return 1
        return 0

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
    Guest.folder = Path(folder)
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

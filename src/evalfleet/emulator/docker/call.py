"""One call of `docker` on a machine, and what every command of it needs."""

from __future__ import annotations

import asyncio
import json
import os
import struct
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct

from evalfleet.emulator.docker import state
from evalfleet.emulator.docker.command_line import Asked
from evalfleet.emulator.docker.machine import DockerMachine
from evalfleet.emulator.docker.state import Container, DockerState
from evalfleet.emulator.presets import DockerFailure

HEAD = struct.Struct(">BI")
OUT, ERROR, END = 1, 2, 3
HUB = "https://index.docker.io/v1/"


class Call(Struct):
    """One call of `docker` on one machine, and the connection to its client."""

    machine: DockerMachine
    asked: Asked
    environ: Mapping[str, str]
    password: str | None
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    dies_after_s: float | None = None  # the container that it starts, by a fault

    def send(self, stream: int, data: bytes) -> None:
        if not self.writer.is_closing():
            self.writer.write(HEAD.pack(stream, len(data)) + data)

    def say(self, text: str) -> int:
        self.send(OUT, text.encode() + b"\n")
        return 0

    def complain(self, text: str, status: int = 1) -> int:
        self.send(ERROR, text.encode() + b"\n")
        return status

    def shelf(self) -> DockerState:
        """Read what the machine has now; other calls change it at the same time."""
        return state.load(self.machine.folder)

    @contextmanager
    def change(self) -> Generator[DockerState]:
        """Change what the machine has. Nothing may be awaited inside, so that no other call comes between."""
        shelf = self.shelf()
        yield shelf
        state.save(self.machine.folder, shelf)

    def container(self) -> Container:
        """Return the container that the call names.

        Raises:
            KeyError: there is none.
        """
        return self.shelf().containers[self.asked.words[0]]


Command: TypeAlias = Callable[[Call], Awaitable[int]]


def mishap(call: Call, what: DockerFailure) -> int:
    image = call.asked.words[0] if call.asked.words else ""
    return call.complain(what.stderr.format(image=image), what.exit)


def folder_of(machine: DockerMachine, container: str) -> Path:
    return machine.folder / "containers" / container


def tagged(image: str) -> str:
    return image if ":" in image.rpartition("/")[2] or "@" in image else f"{image}:latest"


def registry_of(image: str) -> str:
    head, slash, _ = image.partition("/")
    return head if slash and (set(head) & {".", ":"} or head == "localhost") else HUB


def config_file(call: Call) -> Path:
    """Where the caller's Docker keeps its logins."""
    default = os.path.join(call.environ.get("HOME", "/"), ".docker")
    folder = call.asked.option("--config") or call.environ.get("DOCKER_CONFIG") or default
    return Path(folder) / "config.json"


def auths(file: Path) -> dict[str, Any]:
    try:
        return json.loads(file.read_text())["auths"]
    except (OSError, ValueError, KeyError):
        return {}

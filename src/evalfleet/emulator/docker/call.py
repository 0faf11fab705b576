"""One call of `docker` on an emulated machine, and what every command of it needs."""

from __future__ import annotations

import asyncio
import json
import os
import struct
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct

from evalfleet.emulator.docker import state
from evalfleet.emulator.docker.command_line import Asked
from evalfleet.emulator.docker.state import Container, Shelf
from evalfleet.emulator.machines.machines import Machine
from evalfleet.emulator.presets import Mishap

HEAD = struct.Struct(">BI")
OUT, ERROR, END = 1, 2, 3


class Call(Struct):
    """One call of `docker` on one machine, and the way back to who made it."""

    machine: Machine
    asked: Asked
    environ: Mapping[str, str]
    password: str | None
    shelf: Shelf
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, stream: int, data: bytes) -> None:
        if not self.writer.is_closing():
            self.writer.write(HEAD.pack(stream, len(data)) + data)

    def say(self, text: str) -> int:
        self.send(OUT, text.encode() + b"\n")
        return 0

    def complain(self, text: str, status: int = 1) -> int:
        self.send(ERROR, text.encode() + b"\n")
        return status

    def container(self) -> Container:
        """Return the container that the call names.

        Raises:
            KeyError: there is none.
        """
        return self.shelf.containers[self.asked.words[0]]

    def save(self) -> None:
        state.save(self.machine.host.docker_folder, self.shelf)


Command: TypeAlias = Callable[[Call], Awaitable[int]]


def mishap(call: Call, what: Mishap) -> int:
    image = call.asked.words[0] if call.asked.words else ""
    return call.complain(what.stderr.format(image=image), what.exit)


def folder_of(machine: Machine, container: str) -> Path:
    return machine.host.docker_folder / "containers" / container


def tagged(image: str) -> str:
    return image if ":" in image.rpartition("/")[2] or "@" in image else f"{image}:latest"


def config_file(call: Call) -> Path:
    """Where the caller's Docker keeps its logins."""
    folder = call.environ.get("DOCKER_CONFIG") or os.path.join(call.environ.get("HOME", "/"), ".docker")
    return call.machine.host.outside(Path(folder)) / "config.json"


def auths(file: Path) -> dict[str, Any]:
    try:
        return json.loads(file.read_text())["auths"]
    except (OSError, ValueError, KeyError):
        return {}

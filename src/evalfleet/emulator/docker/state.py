"""What Docker knows on one machine: images and containers. It lies on the machine's disk, and goes into its image."""

from __future__ import annotations

import json
import os
import time
import uuid
from pathlib import Path
from typing import Any

import msgspec

FILE = "state.json"


class Image(msgspec.Struct):
    """A container's image on a machine."""

    name: str
    gb: float
    id: str = msgspec.field(default_factory=lambda: f"sha256:{uuid.uuid4().hex * 2}")


class Container(msgspec.Struct):
    """A container: a name that programs can be started in while it runs."""

    name: str
    image: str
    boot: int  # of the machine, at its last start: a machine that went off took it along
    command: list[str] = []
    labels: dict[str, str] = {}
    env: list[str] = []  # NAME=value
    ports: dict[str, int] = {}  # published: the container's, such as "8006/tcp", and the machine's
    restart: str = "no"
    running: bool = True
    exit_code: int = 0
    started_at: float = msgspec.field(default_factory=time.time)
    restarts: int = 0
    id: str = msgspec.field(default_factory=lambda: uuid.uuid4().hex * 2)

    def inspect(self, boot: int) -> dict[str, Any]:
        runs = self.runs(boot)
        state = {"Running": runs, "Status": "running" if runs else "exited", "ExitCode": 0 if runs else self.exit_code}
        return {
            "Id": self.id,
            "Name": f"/{self.name}",
            "RestartCount": self.restarts,
            "State": state,
            "NetworkSettings": {
                "Ports": {inner: [{"HostIp": "127.0.0.1", "HostPort": str(port)}] for inner, port in self.ports.items()}
            },
            "Config": {"Image": self.image, "Cmd": self.command, "Labels": self.labels, "Env": self.env},
        }

    def runs(self, boot: int) -> bool:
        """Whether it runs on a machine that was switched on so many times."""
        return self.running and (self.boot == boot or self.restart in ("always", "unless-stopped"))


class DockerState(msgspec.Struct):
    images: dict[str, Image] = {}
    containers: dict[str, Container] = {}

    def images_gb(self) -> float:
        return sum(image.gb for image in self.images.values())


def load(folder: Path) -> DockerState:
    try:
        return msgspec.convert(json.loads((folder / FILE).read_text("utf-8")), DockerState)
    except FileNotFoundError:
        return DockerState()


def save(folder: Path, shelf: DockerState) -> None:
    """Write in one step; the folder of a machine that is gone stays gone."""
    if not folder.parent.exists():
        return
    folder.mkdir(exist_ok=True)
    partial = folder / f"{FILE}.partial"
    partial.write_text(json.dumps(msgspec.to_builtins(shelf)), "utf-8")
    os.replace(partial, folder / FILE)

"""Sets up the stand-in in a folder: a `docker` command, its daemon with containers, and WAA's client."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from examples.fake_waa.client import LEDGER
from examples.fake_waa.daemon import IMAGE
from msgspec import Struct

from evalfleet.benchmarks.waa.catalogue import ALL, FOLDER, index
from evalfleet.emulator.docker import state
from evalfleet.emulator.docker.state import Image
from evalfleet.emulator.machines import programs

_HERE = Path(__file__).parent
_START_S = 30.0
_PRICE = '[[llm.price]]\nmodel = "*"\ninput_usd_per_million = 2.0\noutput_usd_per_million = 10.0\n'


class Arena(Struct, frozen=True, kw_only=True):
    """A stand-in that runs."""

    folder: Path
    containers: tuple[str, ...]
    port: int

    @property
    def docker(self) -> Path:
        """The folder of the `docker` command, to be put first on PATH."""
        return self.folder / "bin"

    @property
    def client(self) -> Path:
        return self.folder / "client"

    def config(self, **more: object) -> str:
        """The tables `[waa]` and `[llm]` that fit. Values are written as JSON, which is TOML for texts, numbers and lists."""
        table: dict[str, object] = {
            "containers": list(self.containers),
            "docker": str(self.docker / "docker"),
            "client": str(self.client),
            "python": sys.executable,
            "results": str(self.folder / "results"),
            "guest": "127.0.0.1",
            "guest_port": self.port,
            "qmp_port": int((self.docker / "qmp-port").read_text("utf-8")),
            "kvm": False,
            "memory_gb": 0,
            **more,
        }
        return self._written(table)

    def machines_config(self, **more: object) -> str:
        """The same for the emulator's machines: each has Docker and Windows of its own, and the client of this stand-in."""
        python = getattr(sys, "_base_executable", sys.executable)
        return self._written({"client": str(self.client), "python": python, "kvm": False, "disk_gb": 0, **more})

    def _written(self, table: dict[str, object]) -> str:
        waa = "".join(f"{name} = {json.dumps(value)}\n" for name, value in table.items())
        return f'[waa]\n{waa}\n[llm]\nbase_url = "http://127.0.0.1:{self.port}/v1"\ntimeout = "5s"\npatience = "3s"\n{_PRICE}'

    def played(self) -> Counter[str]:
        """How often each task (an id) was played to its end."""
        ledger = self.client / LEDGER
        return Counter(ledger.read_text("utf-8").split()) if ledger.exists() else Counter()

    def fail_model(self, answer: str | None) -> None:
        """Let the model's endpoint answer so, such as `401 Incorrect API key` or `hang`; None: as it should."""
        file = self.docker / "model"
        if answer is None:
            file.unlink()
        else:
            file.write_text(answer, "utf-8")

    def model_keys(self) -> set[str]:
        """The keys that the model's endpoint was given."""
        return set((self.docker / "model-keys").read_text("utf-8").splitlines())

    def fail(self, task: str, *faults: str) -> None:
        """Let the next calls of that task (an id) fail, each in its way; see `examples.fake_waa.client`."""
        folder = self.client / "faults" / task
        folder.mkdir(parents=True, exist_ok=True)
        for number, fault in enumerate(faults, len(list(folder.iterdir())) + 1):
            (folder / f"{number}-{fault}").touch()

    def stick(self, container: str) -> None:
        """Let every task hang in that container after its first step, while its Windows answers probes."""
        (self.client / f"stuck-{container}").touch()

    def restarts(self) -> int:
        """How often a container was restarted."""
        return sum(container.restarts for container in state.load(self.docker).containers.values())

    def lose_image(self, *faults: str) -> None:
        """Let the image be gone, and the next pulls of it fail, each in its way: `fail` or `hang`."""
        self._set_images({})
        folder = self.docker / "pulls"
        folder.mkdir(exist_ok=True)
        for number, fault in enumerate(faults, 1):
            (folder / f"{number}-{fault}").touch()

    def bring_image(self) -> None:
        """Let the image be there again."""
        self._set_images({IMAGE: Image(name=IMAGE, gb=0)})

    def _set_images(self, images: dict[str, Image]) -> None:
        shelf = state.load(self.docker)
        shelf.images = images
        state.save(self.docker, shelf)

    def want_login(self, password: str) -> None:
        """Let the registry want a login with that password."""
        (self.docker / "registry-password").write_text(password, "utf-8")

    def break_container(self, container: str) -> None:
        """Let it be started no more."""
        (self.docker / f"broken-{container}").touch()

    def end(self, container: str) -> None:
        """Let a container end, as when the machine in it breaks down."""
        subprocess.run([self.docker / "docker", "kill", container], check=True, timeout=_START_S)

    def calls(self) -> list[list[str]]:
        """What Docker was asked for, each call with its first words."""
        return [json.loads(line) for line in (self.docker / "calls").read_text("utf-8").splitlines()]

    def silence(self) -> None:
        """Let Windows answer no more."""
        (self.docker / "silent").touch()


@contextmanager
def arena(
    folder: Path, containers: tuple[str, ...], *, pause_s: float = 0.05, guest_port: int | None = None
) -> Generator[Arena]:
    """Set up a stand-in in an empty folder, and end all of it afterwards. A step of a task takes `pause_s`.

    `guest_port`: where the client finds Windows, if that is not the stand-in's own.
    """
    commands, client = folder / "bin", folder / "client"
    commands.mkdir(parents=True)
    programs.install(commands, ("docker",))
    daemon = subprocess.Popen(
        [sys.executable, "-m", "examples.fake_waa.daemon", str(commands), *containers],
        cwd=_HERE.parents[1],
        start_new_session=True,
    )
    try:
        port = _port(commands / "guest-port", daemon)
        _write_client(client, guest_port or port, pause_s)
        yield Arena(folder=folder, containers=containers, port=port)
    finally:
        daemon.terminate()
        daemon.wait()


def _write_client(client: Path, port: int, pause_s: float) -> None:
    examples = client / FOLDER / "examples"
    for domain, ids in index().items():
        (examples / domain).mkdir(parents=True)
        for task in ids:
            (examples / domain / f"{task}.json").write_text(
                json.dumps({"id": task, "instruction": f"Do {task}."}), "utf-8"
            )
    (client / FOLDER / ALL).write_text(json.dumps(index()), "utf-8")
    (client / FOLDER / "test_small.json").write_text(json.dumps({"notepad": list(index()["notepad"])}), "utf-8")
    (client / "settings.json").write_text(json.dumps({"port": port, "pause_s": pause_s}), "utf-8")
    shutil.copyfile(_HERE / "client.py", client / "run.py")


def _port(file: Path, daemon: subprocess.Popen[bytes]) -> int:
    until = time.monotonic() + _START_S
    while not file.exists():
        if daemon.poll() is not None or time.monotonic() > until:
            raise RuntimeError("the stand-in's daemon did not start")
        time.sleep(0.01)
    return int(file.read_text("utf-8"))

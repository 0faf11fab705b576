"""Windows Agent Arena on rented machines: an emulated Azure whose VMs have Docker, and the stand-in for WAA in their containers."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from examples.fake_waa.arena import Arena, arena
from tests.support.fleet import Fleet
from tests.support.rented import PATIENCE_S, Rented, rented
from tests.support.wheelhouse import wheelhouse

from evalfleet.emulator.machines.guests import PORT

GOLDEN = "win11"
# The machines are as new as can be: they have a mirror of the packages, and nothing of ours.
_SETUP = "mkdir -p ~/.config/pip && printf '[global]\\nno-index = true\\nfind-links = {}\\n' >~/.config/pip/pip.conf\n"


@dataclass
class WaaCloud:
    """A person's shell with an account, Docker for the golden image, and a model's endpoint."""

    rented: Rented
    arena: Arena

    @property
    def fleet(self) -> Fleet:
        return self.rented.fleet

    def patient(self, *args: str) -> str:
        """Run a command to its end, however slow the machine under the test is. Returns what it printed."""
        process = self.fleet.start(*args)
        out = process.communicate(timeout=PATIENCE_S)[0]
        assert process.returncode == 0, out
        return out

    def build(self) -> None:
        """Build the golden image here; machines bring it from there."""
        images = self.fleet.folder.parent / "images"
        (self.fleet.folder / "setup.iso").write_bytes(b"an ISO")
        config = self.fleet.folder / "evalfleet.toml"
        config.write_text(self.arena.config(images=str(images), disk_gb=0, poll="50ms", install_timeout="60s"))
        self.patient("waa", "image", "build", GOLDEN, "--iso", "setup.iso", "--accept-eula")
        limits = {"guest_timeout": "60s", "poll": "200ms", "timeout": "150s", "stall": "100s", "reset": "overlay"}
        config.write_text(self.arena.machines_config(golden=GOLDEN, golden_from=str(images / GOLDEN), **limits))

    def bake(self, regions: str) -> None:
        """Let one machine bring everything, and keep its disk as the image of the next ones."""
        create = ("pool", "create", "first", "--backend", "azure-vm", "--benchmark", "waa", "--setup", "setup.sh")
        self.patient(*create, "--workers", "1", "--regions", regions, "--name-prefix", "first")
        self.patient("pool", "bake", "first", "--image", GOLDEN)
        self.patient("pool", "delete", "first", "--yes")


@contextmanager
def waa_cloud(folder: Path, speed: float, scenario: str, *, pause_s: float) -> Generator[WaaCloud]:
    """Start both, and end both with all their machines. A task has 3 steps of `pause_s` each."""
    (folder / "scenario.toml").write_text(scenario, "utf-8")
    wheels = wheelhouse(folder / "wheels")
    with (
        arena(folder / "arena", ("stand-in",), pause_s=pause_s, guest_port=PORT) as made,
        rented(folder, speed, "--scenario", str(folder / "scenario.toml")) as here,
    ):
        (here.fleet.folder / "setup.sh").write_text(_SETUP.format(wheels), "utf-8")
        here.fleet.env["OPENAI_API_KEY"] = "sk-hidden"
        yield WaaCloud(here, made)

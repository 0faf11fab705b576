"""Builds what a node needs to become a host: the pilot's program, its packages, and the command that starts it."""

from __future__ import annotations

import hashlib
import io
import shlex
import zipfile
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

import evalfleet.pilot
from evalfleet.hosts.mailbox.boxes import Box
from evalfleet.hosts.mailbox.carrier import Carrier
from evalfleet.hosts.wheels import pins_of, wheel_of
from evalfleet.pilot.__main__ import BOX, RUNNER, TOKEN
from evalfleet.runner.build import MOMENT, build

PACKAGE = "evalfleet_pilot"
PROGRAM = "program/"
MAIN = f"""\
import sys

from {PACKAGE}.__main__ import main

sys.exit(main(sys.argv[0], sys.argv[1:]))
"""
_APART = "bootstrap.py"
_NEEDS = "cryptography"


class PilotStart(Struct, frozen=True, kw_only=True):
    """How a job starts its pilot. `secrets` belong into secret environment settings, never into the command line."""

    command: str  # for /bin/sh
    secrets: dict[str, str]

    def __repr__(self) -> str:
        return f"PilotStart(secrets={sorted(self.secrets)})"


@lru_cache(maxsize=1)
def build_pilot() -> bytes:
    """pilot.pyz, with the runner in it: the same bytes for the same source, on every machine."""
    folder = Path(evalfleet.pilot.__file__).parent
    files = {f"{PACKAGE}/{path.name}": path.read_bytes() for path in folder.glob("*.py") if path.name != _APART}
    files |= {"__main__.py": MAIN.encode(), RUNNER: build()[0]}
    return _zipped(files)


@lru_cache(maxsize=1)
def build_wheels() -> bytes:
    """The wheels of the packages that the pilot needs, in one archive, for nodes that lack them and cannot reach an index.

    They are the ones installed here, so they fit nodes with the same processor and Python.
    """
    wheels = [wheel_of(name) for name in pins_of([_NEEDS])]
    return _zipped({wheel.name: wheel.data for wheel in wheels})


async def put_pilot(carrier: Carrier) -> None:
    """Lay the program and its packages into a box, before its job is submitted."""
    await carrier.put(f"{PROGRAM}pilot.pyz", build_pilot(), new=False)
    await carrier.put(f"{PROGRAM}wheels.zip", build_wheels(), new=False)


def pilot_start(box: Box, *, controller: str, token: str, slots: int, python: str = "python3") -> PilotStart:
    """The command that brings the pilot from its box and starts it.

    Args:
        controller: public identity of the home, see `keys.HomeKey`.
    """
    bootstrap = (Path(evalfleet.pilot.__file__).parent / _APART).read_text()
    words = [
        *(python, "-c", bootstrap, _sum(build_pilot()), _sum(build_wheels())),
        *pilot_arguments(box, controller=controller, slots=slots),
    ]
    return PilotStart(command=shlex.join(words), secrets={BOX: box.grant, TOKEN: token})


def pilot_arguments(box: Box, *, controller: str, slots: int) -> list[str]:
    """The arguments of pilot.pyz itself."""
    return [
        *("--controller", controller, "--generation", str(box.generation)),
        *("--slots", str(slots), "--stops-at", f"{box.stops_at:.0f}"),
    ]


def _sum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _zipped(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name, content in sorted(files.items()):
            entry = zipfile.ZipInfo(name, MOMENT)
            entry.create_system = 3
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content)
    return out.getvalue()

"""`python -m examples.fake_waa DIR`: a stand-in to try `evalfleet run waa` with, until Ctrl-C.

With `--azure` an emulated Azure comes with it, and DIR is a home: `DIR/env` has what a shell must export.
"""

from __future__ import annotations

import argparse
import shlex
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from examples.fake_waa.arena import Arena, arena

from evalfleet.emulator.machines.guests import PORT
from evalfleet.hosts.wheels import pins_of, wheel_of

_SPEED = "100"
_WAITS = {"guest_timeout": "2m", "poll": "200ms"}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.fake_waa")
    parser.add_argument("folder", type=Path, metavar="DIR", help="a new folder")
    parser.add_argument("--azure", action="store_true", help="emulate rented machines, too")
    asked = parser.parse_args()
    folder: Path = asked.folder.absolute()
    if folder.exists():
        raise SystemExit(f"{folder} is there already; name a new folder")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt):
        _with_azure(folder) if asked.azure else _alone(folder)


def _alone(folder: Path) -> None:
    with arena(folder, ("stand-in-1", "stand-in-2"), pause_s=0.5) as made:
        (folder / "evalfleet.toml").write_text(made.config(), "utf-8")
        print(f"cd {folder} && OPENAI_API_KEY=any evalfleet run waa --agent navi --model gpt-4o --tasks 6", flush=True)
        print("Ctrl-C ends the stand-in.", flush=True)
        signal.pause()


def _with_azure(folder: Path) -> None:
    with arena(folder / "stand-in", ("stand-in",), pause_s=0.5, guest_port=PORT) as made, _emulator(folder) as exports:
        _write_builder(folder, made)
        _write_machines(folder, made)
        partial = folder / "env.partial"
        own = {"EVALFLEET_HOME": str(folder), "OPENAI_API_KEY": "any"}
        lines = [*exports, *(f"export {name}={shlex.quote(value)}\n" for name, value in own.items())]
        partial.write_text("".join(lines), "utf-8")
        partial.rename(folder / "env")
        print(f". {folder / 'env'}    # in another shell; Ctrl-C ends the stand-in and the emulator", flush=True)
        signal.pause()


def _write_builder(folder: Path, made: Arena) -> None:
    """The machine that builds the golden image: it has Docker, and an ISO."""
    builder = folder / "builder"
    builder.mkdir()
    (builder / "windows11.iso").write_bytes(b"an ISO")
    config = made.config(images=str(folder / "images"), disk_gb=0, poll="50ms", install_timeout="2m")
    (builder / "evalfleet.toml").write_text(config, "utf-8")


def _write_machines(folder: Path, made: Arena) -> None:
    """What rented machines need to know of the stand-in. They reach no package index, so packages lie in a folder."""
    golden = folder / "images" / "win11"
    pool = f'[pool.waa]\nsetup = "{folder / "setup.sh"}"\n'
    (folder / "config.toml").write_text(made.machines_config(golden_from=str(golden), **_WAITS) + pool, "utf-8")
    wheels = folder / "wheels"
    wheels.mkdir()
    for name in pins_of(["evalfleet"]):
        if name != "evalfleet":  # that one evalfleet brings itself
            wheel = wheel_of(name)
            (wheels / wheel.name).write_bytes(wheel.data)
    index = f"[global]\\nno-index = true\\nfind-links = {wheels}\\n"
    (folder / "setup.sh").write_text(f"mkdir -p ~/.config/pip && printf '{index}' > ~/.config/pip/pip.conf\n", "utf-8")


@contextmanager
def _emulator(folder: Path) -> Generator[list[str]]:
    """Run `evalfleet emulator`; gives the lines that it prints for shells."""
    command = [sys.executable, "-m", "evalfleet", "emulator", "--speed", _SPEED]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            exports: list[str] = []
            for line in process.stdout:
                exports.append(line)
                if "SPEED" in line:  # the last line that it prints
                    break
            yield exports
        finally:
            process.terminate()


if __name__ == "__main__":
    main()

"""Controllers in folders of their own that share one store, as on several machines."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

EVALFLEET = (sys.executable, "-m", "evalfleet")


class Site:
    """Folders that share a store, and the processes that were started in them."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.env = {**os.environ, "EVALFLEET_STORE_URL": url, "NO_COLOR": "1"}
        self.started: list[subprocess.Popen[bytes]] = []

    def run(self, home: str, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        command = [*EVALFLEET, *words, "--home", str(self.folder / home)]
        return subprocess.run(
            command, env=self.env | env, cwd=self.folder, capture_output=True, text=True, check=False, timeout=120
        )

    def json(self, home: str, *words: str) -> Any:
        done = self.run(home, *words, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def controller(self, home: str, runs: int = 4, **env: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{home}.log").open("ab") as log:
            command = [*EVALFLEET, "controller", "--runs", str(runs), "--home", str(self.folder / home)]
            self.started.append(subprocess.Popen(command, env=self.env | env, cwd=self.folder, stdout=log, stderr=log))
        return self.started[-1]

    def submit(self, home: str, name: str, tasks: int, command: list[str], *, pool: str = "lab", **more: Any) -> str:
        file = self.folder / f"{name}.jsonl"
        rows = [{"key": f"{name}_{number}", "command": command, **more} for number in range(tasks)]
        file.write_text("\n".join(map(json.dumps, rows)))
        where = ["--pool", pool] if pool else []
        return self.json(home, "run", str(file), "--detach", *where, "--workers", "2")["run"]

    def states(self, home: str) -> dict[str, str]:
        return {run["run"]: run["state"] for run in self.json(home, "status")["runs"]}

    def end(self) -> None:
        for process in self.started:
            process.terminate()
        for process in self.started:
            process.wait(60)


def drivers(site: Site, home: str) -> Iterator[int]:
    """The processes that drive runs for the controller in that folder."""
    mark = os.fsencode(f"EVALFLEET_HOME={site.folder / home}")
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            driving = b"\0resume\0" in (entry / "cmdline").read_bytes()
            if driving and mark in (entry / "environ").read_bytes().split(b"\0"):
                yield int(entry.name)
        except OSError:
            continue


def kill_machine(site: Site, controller: subprocess.Popen[bytes], home: str) -> None:
    """Kill a controller and the processes that drive its runs, as the death of its machine does."""
    controller.kill()
    controller.wait()
    for pid in drivers(site, home):
        os.kill(pid, signal.SIGKILL)

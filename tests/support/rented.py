"""An emulator that runs as people start it, and a home whose commands take it for Azure."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support import azure_traffic
from tests.support.fleet import Fleet, fleet_at, wait_for

from evalfleet.azure.settings import EMULATOR_SUBSCRIPTION

NAME = "p1"
PATIENCE_S = 400
_EMPTY = {"leaks": [], "kept": [], "resources": {}}


@dataclass
class Rented:
    """A person's shell: the emulator's settings are exported in it."""

    fleet: Fleet
    settings: dict[str, str]
    homes: list[Fleet] = field(default_factory=list[Fleet])

    def control(self, method: str, path: str, body: Any = None) -> Any:
        """Ask the emulator itself."""
        data = None if body is None else json.dumps(body).encode()
        url = f"{self.settings['EVALFLEET_AZURE_EMULATOR']}/emulator/{path}"
        with urllib.request.urlopen(urllib.request.Request(url, data, method=method), timeout=60) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def arm(self, method: str, path: str, body: Any, api: str) -> Any:
        """Ask the cloud for something in the resource group, as another hand would."""
        group = f"subscriptions/{EMULATOR_SUBSCRIPTION}/resourceGroups/evalfleet/providers"
        url = f"{self.settings['EVALFLEET_AZURE_EMULATOR']}/{group}/{path}?api-version={api}"
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(url, data, method=method)
        asked.add_header("Authorization", "Bearer any")
        asked.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(asked, timeout=60) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def events(self, *types: str) -> list[dict[str, Any]]:
        """What happened in the cloud, of the types that are named or all of it."""
        return [one for one in self.control("GET", "events")["events"] if not types or one["type"] in types]

    def leaks(self) -> Any:
        """What is left there but for the resource group itself."""
        found = self.control("GET", "leaks")
        left = {kind: count for kind, count in found["resources"].items() if "resourceGroups" not in kind}
        return {"leaks": found["leaks"], "kept": found.get("kept", []), "resources": left}

    def is_empty(self) -> bool:
        return self.leaks() == _EMPTY

    def billed_usd(self, pool: str = NAME) -> float:
        return self.control("GET", f"bill?pool={pool}")["usd"]

    def create(self, *options: str, name: str = NAME) -> dict[str, Any]:
        return self.fleet.json("pool", "create", name, "--backend", "azure-vm", "--regions", "eastus", *options)

    def status(self, name: str = NAME) -> dict[str, Any]:
        return self.fleet.json("pool", "status", name)

    def states(self, name: str = NAME) -> dict[str, str]:
        return {row["host"]: row["state"] for row in self.status(name)["hosts"]}

    def delete(self, name: str = NAME) -> None:
        done = self.fleet.command("pool", "delete", name, "--yes")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "nothing of it is left" in done.stdout

    def leave(self) -> None:
        """Delete the pool, after which nothing of ours is in the cloud."""
        self.delete()
        assert self.is_empty(), self.leaks()

    def all_ok(self, count: int, run: str = "latest") -> None:
        """So many attempts were made, and each was a success: nothing was done twice."""
        attempts = self.fleet.json("report", run)["attempts"]
        assert attempts["by_outcome"]["ok"] == attempts["total"] == count, attempts

    def births(self) -> dict[str, int]:
        """How often a VM of each name was made; never two at a time."""
        alive: dict[str, int] = {}
        born: dict[str, int] = {}
        for event in self.events("vm.creating", "vm.deleted"):
            change = 1 if event["type"] == "vm.creating" else -1
            alive[event["subject"]] = alive.get(event["subject"], 0) + change
            born[event["subject"]] = born.get(event["subject"], 0) + max(0, change)
            assert alive[event["subject"]] <= 1, event
        return born

    def work(self, count: int, seconds: float, *, more: Iterable[dict[str, Any]] = (), **run: Any) -> str:
        """A file of tasks that write a line to the ledger when they begin and when they end."""
        script = f"echo b $1 >> {self.fleet.ledger}; sleep $2; echo e $1 >> {self.fleet.ledger}"
        rows = [{"key": f"t_{n}", "command": ["sh", "-c", script, "-", f"t_{n}", str(seconds)]} for n in range(count)]
        return self.fleet.tasks([*rows, *more], **{"retry_base": "200ms", **run})

    def run(self, *args: str) -> dict[str, Any]:
        """Drive a run to its end, however slow the machine under the test is. Returns its summary."""
        process = self.fleet.start(*args)
        out = process.communicate(timeout=PATIENCE_S)[0]
        assert process.returncode == 0, out
        return self.fleet.json("report")

    def begun(self) -> list[str]:
        return [line[2:] for line in self.fleet.lines() if line.startswith("b ")]

    def ended(self) -> list[str]:
        return [line[2:] for line in self.fleet.lines() if line.startswith("e ")]

    def told(self, kind: str, run: str = "latest") -> list[dict[str, Any]]:
        """The events of a run, or of `pool:NAME`, that have a type."""
        return [event for event in self.fleet.events(run) if event["type"] == kind]

    def another_home(self, folder: Path) -> Fleet:
        made = Fleet(folder=self.fleet.folder, home=folder, env=dict(self.settings))
        self.homes.append(made)
        return made


@contextmanager
def rented(folder: Path, speed: float, *args: str) -> Generator[Rented]:
    """Start an emulator, and end it with all its machines."""
    with contextmanager(fleet_at)(folder) as fleet:
        command = [sys.executable, "-m", "evalfleet", "emulator", "--speed", f"{speed:g}", *args]
        traffic = folder / "traffic.jsonl"
        command += [] if "--traffic" in args else ["--traffic", str(traffic)]
        log = (folder / "emulator.log").open("w")
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=fleet.folder)
        try:
            assert process.stdout is not None
            said = [process.stdout.readline() for _ in range(5)]
            settings = dict(line.removeprefix("export ").strip().split("=", 1) for line in said)
            fleet.env |= settings
            here = Rented(fleet, settings)
            yield here
            for home in here.homes:
                home.close()
            azure_traffic.check_file(traffic)
        finally:
            process.terminate()
            try:
                process.communicate(timeout=120)
            finally:
                process.kill()
                process.communicate()
                log.close()


def wait_until(here: Rented, states: dict[str, int], name: str = NAME) -> None:
    """Wait until the pool has so many machines in each of these states, and no others."""

    def holds() -> bool:
        found = list(here.states(name).values())
        return len(found) == sum(states.values()) and all(found.count(state) == n for state, n in states.items())

    wait_for(holds, f"{states} in pool {name}")

"""Checks what evalfleet assumes of Azure, with a real account, for about two dollars, and writes a report to send us.

    make real-azure            # after the settings of docs/reference/azure.md; asks before it buys anything

All of evalfleet is tested against an emulator. This program does the same things with the real service: one machine, a run on it
with the controller killed in the middle, stop and start, then two spot machines of which one is evicted. It ends with
nothing left, whatever happens in between. The report names each assumption, what was seen, and times; it holds no
subscription, address or key.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

POOL = "real-check"
IMDS = 'curl -sf -m 5 -H Metadata:true "http://169.254.169.254/metadata/scheduledevents?api-version=2020-07-01"'
TASKS = 6
_PRIVATE = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\b\d{1,3}(\.\d{1,3}){3}\b")


class Failed(Exception):
    """An assumption does not hold, or could not be looked at."""


class Trial:
    """What was looked at, and how it was."""

    def __init__(self, folder: Path, size: str, task_s: float) -> None:
        self.folder, self.size, self.task_s = folder, size, task_s
        self.rows: list[dict[str, Any]] = []

    def look(self, assumed: str, check: Callable[[], str]) -> bool:
        """Carry out one check, and note what it saw."""
        begun = time.monotonic()
        print(f"… {assumed}", flush=True)
        try:
            seen, holds = check(), True
        except (Failed, OSError, ValueError, KeyError, IndexError, subprocess.TimeoutExpired) as error:
            seen, holds = str(error) or type(error).__name__, False
        took_s = round(time.monotonic() - begun, 1)
        self.rows.append({"assumed": assumed, "holds": holds, "seen": hidden(seen), "took_s": took_s})
        print(f"{'+' if holds else '-'} {hidden(seen)} ({took_s} s)", flush=True)
        return holds

    def call(self, *words: str, timeout_s: float = 1800.0) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "evalfleet", *words]
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self.environ(),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def environ(self) -> dict[str, str]:
        return {**os.environ, "EVALFLEET_HOME": str(self.folder / "home")}

    def ok(self, *words: str, timeout_s: float = 1800.0) -> str:
        done = self.call(*words, timeout_s=timeout_s)
        if done.returncode:
            last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-3:]
            raise Failed(f"evalfleet {words[0]} ended with {done.returncode}: {' / '.join(last)}")
        return done.stdout

    def json(self, *words: str) -> dict[str, Any]:
        return json.loads(self.ok(*words, "--json"))

    # The checks

    def create(self, workers: int, *more: str) -> str:
        limits = ("--size", self.size, "--budget", "2", "--max-hours", "1")
        self.ok("pool", "create", POOL, "--backend", "azure-vm", "--workers", str(workers), *limits, *more)
        hosts = self.json("pool", "status", POOL)["hosts"]
        ready = [host for host in hosts if host["state"] == "ready"]
        if len(ready) != workers:
            raise Failed(f"{len(ready)} of {workers} machines are ready")
        return f"{workers} × {ready[0]['size']} in {ready[0]['region']}, price {ready[0]['price_usd_per_hour']} $/h"

    def deadline(self) -> str:
        (host, *_) = self.json("pool", "status", POOL)["hosts"]
        left_min = (host["deadline_at"] - time.time()) / 60
        if not 0 < left_min <= 61:
            raise Failed(f"the machine stops by itself in {left_min:.0f} min")
        return f"the machine stops by itself in {left_min:.0f} min"

    def exec(self, script: str) -> str:
        said = self.ok("pool", "exec", POOL, "--", "sh", "-c", script, timeout_s=120)
        return " ".join(line.partition("|")[2].strip() for line in said.splitlines())

    def clock(self) -> str:
        off_s = float(self.exec("date +%s").split()[0]) - time.time()
        if abs(off_s) > 30:
            raise Failed(f"the machine's clock is off by {off_s:.0f} s")
        return f"the machine's clock differs by {off_s:.0f} s"

    def started(self) -> subprocess.Popen[bytes]:
        """A run on the pool; returns when its first task is done."""
        tasks = [{"key": f"t_{n}", "command": ["sh", "-c", f"sleep {self.task_s}"]} for n in range(TASKS)]
        (self.folder / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks), "utf-8")
        before = len(self.json("status")["runs"])
        command = [sys.executable, "-m", "evalfleet", "run", "tasks.jsonl", "--pool", POOL]
        quiet = subprocess.DEVNULL
        run = subprocess.Popen(command, cwd=self.folder, env=self.environ(), stdout=quiet, stderr=quiet)
        until = time.monotonic() + 600
        while run.poll() is None and time.monotonic() < until:
            runs = self.json("status")["runs"]
            if len(runs) > before and self.json("report", "latest")["tasks"]["done"]:
                break
            time.sleep(0.2)
        return run

    def all_done(self) -> str:
        tasks = self.json("report", "latest")["tasks"]
        if tasks["done"] != TASKS:
            raise Failed(f"{tasks['done']} of {TASKS} tasks are done")
        return f"all {TASKS} tasks are done"

    def run_killed(self) -> str:
        """A run whose controller is killed in the middle loses nothing."""
        run = self.started()
        run.kill()
        run.wait()
        self.ok("resume", "latest")
        return f"{self.all_done()} after kill -9 and resume"

    def stop_and_start(self) -> str:
        self.ok("pool", "stop", POOL)
        states = [host["state"] for host in self.json("pool", "status", POOL)["hosts"]]
        if states != ["stopped"]:
            raise Failed(f"after pool stop: {states}")
        self.ok("pool", "start", POOL)
        states = [host["state"] for host in self.json("pool", "status", POOL)["hosts"]]
        if states != ["ready"]:
            raise Failed(f"after pool start: {states}")
        return "stopped, and ready again"

    def evicted(self) -> str:
        """A spot machine that Azure takes is replaced, and its task goes back to the queue."""
        name = self.json("pool", "status", POOL)["hosts"][0]["host"]
        run = self.started()
        evict(name)
        run.wait(1800)
        return f"{self.all_done()}, {name} was taken"

    def deleted(self) -> str:
        self.ok("pool", "delete", POOL, "--yes")
        left = self.json("reap", "--dry-run")
        if left["left"] or left["resources"]:
            raise Failed(f"left: {[one.get('name') for one in left['resources']]}")
        return "nothing is left"

    def _circumstances(self) -> str:
        service = "the emulator" if is_emulator() else "the real service"
        version = self.call("--version").stdout.strip()
        return f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {version}, Python {platform.python_version()}, {service}"

    def report(self) -> str:
        held = sum(row["holds"] for row in self.rows)
        lines = [
            f"# evalfleet on Azure: {held} of {len(self.rows)} assumptions hold",
            "",
            self._circumstances(),
            "",
            "| assumption | holds | seen | seconds |",
            "| --- | --- | --- | --- |",
            *(
                f"| {row['assumed']} | {'yes' if row['holds'] else '**no**'} | {row['seen']} | {row['took_s']} |"
                for row in self.rows
            ),
        ]
        return "\n".join(lines) + "\n"


def hidden(text: str) -> str:
    """Without ids and addresses."""
    return _PRIVATE.sub("…", " ".join(text.split()))[:400]


def is_emulator() -> bool:
    return os.environ.get("EVALFLEET_AZURE_PROFILE") == "emulator"


def evict(name: str) -> None:
    """Let Azure take a spot machine: its own simulation by `az`; of the emulator, its control."""
    if is_emulator():
        import urllib.request

        address = f"{os.environ['EVALFLEET_AZURE_EMULATOR']}/emulator/evictions"
        urllib.request.urlopen(urllib.request.Request(address, json.dumps({"count": 1}).encode()), timeout=10).close()
        return
    group = os.environ.get("EVALFLEET_AZURE_RESOURCE_GROUP", "evalfleet")
    command = ["az", "vm", "simulate-eviction", "--resource-group", group, "--name", name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise Failed(f"az vm simulate-eviction: {done.stderr.strip()[-200:]}")


def tried(trial: Trial) -> None:
    look = trial.look
    look("the account answers, and has quota", lambda: f"{len(trial.json('quota').get('quotas', []))} families")
    try:
        if look("a machine is made, and proves itself ready", lambda: trial.create(1)):
            look("it has a deadline of its own", trial.deadline)
            look("its clock is right", trial.clock)
            look("it has KVM or says that it has not", lambda: trial.exec("ls /dev/kvm 2>&1 || true"))
            if not is_emulator():
                look("the preemption notice is asked at its address", lambda: trial.exec(IMDS) or "no events")
            look("a killed controller loses nothing", trial.run_killed)
            look("stop and start", trial.stop_and_start)
        look("delete leaves nothing", trial.deleted)
        if look("two spot machines are made", lambda: trial.create(2, "--spot")):
            look("an eviction costs no task", trial.evicted)
    finally:
        look("at the end nothing is left", trial.deleted)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("real-azure"), help="for the home and the report")
    parser.add_argument("--size", default="Standard_D2s_v5")
    parser.add_argument("--task-seconds", type=float, default=20.0, help="of each of the six tasks")
    parser.add_argument("--yes", action="store_true", help="do not ask before buying")
    asked = parser.parse_args()
    if (
        not asked.yes
        and input("This buys up to three small machines for about an hour, below $2. Go on? [y/N] ") != "y"
    ):
        return 2
    asked.folder.mkdir(parents=True, exist_ok=True)
    trial = Trial(asked.folder.absolute(), asked.size, asked.task_seconds)
    try:
        tried(trial)
    finally:
        (asked.folder / "report.md").write_text(trial.report(), "utf-8")
        (asked.folder / "report.json").write_text(json.dumps(trial.rows, indent=2), "utf-8")
    print(f"report: {asked.folder / 'report.md'}")
    return 0 if all(row["holds"] for row in trial.rows) else 3


if __name__ == "__main__":
    sys.exit(main())

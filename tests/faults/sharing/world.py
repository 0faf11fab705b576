"""Hosts, homes and runs that share them, and a ledger that the tasks keep themselves."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.chaos_round import Broken
from tests.support import sshd
from tests.support.fleet import Fleet
from tests.support.sshd import Sshd

SLOTS = {"a": 2, "b": 1}
POLL_S = 0.02
_SETTINGS = {
    "EVALFLEET_RUNNER_IDLE": "5s",
    "EVALFLEET_BREAKER_PROBE_BASE": "0.2s",
    "EVALFLEET_LEASE_DURATION": "4s",
    "EVALFLEET_LEASE_GIVE_UP": "6s",
}

# Arguments: key, seconds, score, folder of the ledger, what it does besides. The host is seen by the path of the task.
# A slot's lock is held by whatever process of the task still lives, so that a task in too many is seen by the kernel.
PROGRAM = """\
host=${EVALFLEET_TASK#*/hosts/}; host=${host%%/*}
printf 'start %s %s %s %s\\n' "$1" "$EVALFLEET_ATTEMPT" "$host" $$ >> "$4/ledger"
free=no
for lock in "$4/slots/$host"/*; do
    exec 9>"$lock"
    if flock -n 9; then free=yes; break; fi
done
[ $free = yes ] || printf 'clash %s %s %s %s\\n' "$1" "$EVALFLEET_ATTEMPT" "$host" $$ >> "$4/ledger"
case $(cat "$4/broken/$host" 2>/dev/null) in
    gone) echo "sh: 1: tool: not found" >&2; exit 127 ;;
    exit) echo "library is broken" >&2; exit 1 ;;
    environment) printf '{"error_kind": "environment_failed", "error": "no display"}' > "$EVALFLEET_RESULT"; exit 1 ;;
esac
case $5 in
    killer) kill -9 $PPID; sleep 30 ;;
    family) setsid env -i PATH="$PATH" sh -c 'sleep 300 & sleep 300' & ;;
esac
sleep "$2"
printf '{"score": %s, "success": true}' "$3" > "$EVALFLEET_RESULT"
printf '%s' "$1" > "$EVALFLEET_ARTIFACTS/key.txt"
printf 'end %s %s %s %s\\n' "$1" "$EVALFLEET_ATTEMPT" "$host" $$ >> "$4/ledger"
"""


@dataclass(frozen=True, slots=True)
class Line:
    word: str  # start, end, clash
    key: str
    attempt: str
    host: str
    pid: int


@dataclass
class Submitted:
    """A run of a home, and the process that drives it."""

    home: Fleet
    name: str
    file: str
    good: dict[str, float]  # tasks that must get this score
    bad: frozenset[str] = frozenset()  # tasks that must be held
    driver: subprocess.Popen[str] | None = None
    deaths: int = 0
    said: str = ""

    def drive(self) -> None:
        is_there = any(run["name"] == self.name for run in self.home.json("status")["runs"])
        words = ("resume", self.name) if is_there else ("run", self.file, "--name", self.name, "--pool", "lab")
        self.driver = self.home.start(*words)

    def kill(self) -> bool:
        """Kill its controller; False: it had ended before."""
        if self.driver is None or self.driver.poll() is not None:
            return False
        os.killpg(self.driver.pid, signal.SIGKILL)
        self.driver.wait()
        self.deaths += 1
        return True

    def goes_on(self) -> bool:
        return self.driver is not None and self.driver.poll() is None


@dataclass
class EmulatorContext:
    folder: Path
    rng: random.Random
    hosts: dict[str, Sshd] = field(default_factory=dict)
    homes: list[Fleet] = field(default_factory=list)
    runs: list[Submitted] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    begun: float = field(default_factory=time.monotonic)
    limit_s: float = 110.0

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        (self.folder / "work.sh").write_text(PROGRAM)
        (self.folder / "ledger").touch()
        (self.folder / "broken").mkdir()
        key = sshd.make_key(self.folder / "user_key")
        for name, slots in SLOTS.items():
            place = self.folder / "slots" / name
            place.mkdir(parents=True)
            for number in range(slots):
                (place / str(number)).touch()
            self.hosts[name] = Sshd(self.folder / "hosts" / name, name, user_key=key)

    def home(self, name: str = "home") -> Fleet:
        """A home with a pool of all hosts."""
        made = Fleet(folder=self.folder, home=self.folder / name, env=dict(_SETTINGS))
        self.homes.append(made)
        rows = [sshd.hosts_file([host], slots=SLOTS[name]) for name, host in self.hosts.items()]
        path = self.folder / f"{name}-hosts.toml"
        path.write_text("\n".join(rows))
        done = made.command("pool", "create", "lab", "--backend", "ssh", "--hosts", str(path))
        if done.returncode:
            raise Broken(f"pool create: {done.stderr}")
        return made

    def submit(self, home: Fleet, name: str, tasks: int, *, killers: int = 0, **settings: Any) -> Submitted:
        """A run that begins now."""
        rng, good, rows = self.rng, dict[str, float](), list[dict[str, Any]]()
        for number in range(tasks + killers):
            key, score = f"{name}_{number:02d}", round((number % 97 + 1) / 100, 2)
            kind = "killer" if number < killers else "family" if rng.random() < 0.15 else "plain"
            words = ["sh", "work.sh", key, f"{rng.uniform(0.05, 0.5):.3f}", str(score), str(self.folder), kind]
            rows.append({"key": key, "command": words})
            if kind != "killer":
                good[key] = score
        rng.shuffle(rows)
        rules = {
            "attempts": 3,
            "max_lost": 8,
            "retry_base": 0.05,
            "retry_cap": 0.5,
            "timeout": "60s",
            "result": "required",
        }
        rules |= {"files": ["work.sh"]} | settings
        file = home.tasks(rows, name=f"{name}.jsonl", **rules)
        bad = frozenset(row["key"] for row in rows) - good.keys()
        made = Submitted(home, name, file, good, bad)
        self.runs.append(made)
        made.drive()
        return made

    def ledger(self) -> list[Line]:
        found: list[Line] = []
        for line in (self.folder / "ledger").read_text().splitlines():
            word, key, attempt, host, pid = line.split()
            found.append(Line(word, key, attempt, host, int(pid)))
        return found

    def until_ends(self, count: int) -> None:
        """Wait until so many tasks have come to their end, or every run is over."""
        while any(run.goes_on() for run in self.runs) and sum(line.word == "end" for line in self.ledger()) < count:
            self.check_time()
            time.sleep(POLL_S)

    def see_through(self) -> None:
        """Drive every run until it is over, whoever is killed on the way."""
        while True:
            self.check_time()
            for run in self.runs:
                if run.driver is not None and run.driver.poll() is not None:
                    self._ended(run)
            if all(run.driver is None for run in self.runs):
                return
            time.sleep(POLL_S)

    def _ended(self, run: Submitted) -> None:
        assert run.driver is not None
        code, stdout = run.driver.returncode, run.driver.stdout
        run.said = stdout.read() if stdout is not None and not stdout.closed else run.said
        if code < 0:
            run.drive()
            return
        run.driver = None
        wanted = 1 if run.bad else 0
        if code != wanted:
            raise Broken(f"{run.name} ended with {code} instead of {wanted}: {run.said[-1500:]}")

    def check_time(self) -> None:
        if time.monotonic() - self.begun > self.limit_s:
            shown = {run.name: run.home.command("status", run.name).stdout[-600:] for run in self.runs}
            raise Broken(f"the round took more than {self.limit_s:.0f} s: {shown}")

    def note(self, text: str) -> None:
        self.log.append(f"{time.monotonic() - self.begun:7.3f} s  {text}")

    def close(self) -> None:
        for run in self.runs:
            run.kill()
        for home in self.homes:
            home.close()
        for host in self.hosts.values():
            host.close()

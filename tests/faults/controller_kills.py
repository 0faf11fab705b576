"""Kills controllers that share one store, at seeded random moments, and counts what was lost or ran twice: nothing.

    python tests/faults/controller_kills.py [--controllers 10] [--runs 100] [--tasks 3] [--kills 60] [--seed 1]

A kill ends a controller with the processes that drive its runs (its machine dies), the controller alone, one of those processes, all
connections to the server, or the server (as `pg_ctl stop -m immediate`). What was killed is started again a moment later.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path

from msgspec import Struct, field

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.support import sshd
from tests.support.controllers import Site, drivers, kill_machine
from tests.support.postgres import Server, running

from evalfleet.model import AttemptState, Outcome, Policy, RunState, TaskSpec
from evalfleet.store.open import open_store

KINDS = ("machine", "machine", "controller", "driver", "driver", "connections", "server")


class Tally(Struct):
    kills: Counter[str] = field(default_factory=Counter[str])
    tasks: int = 0
    starts: int = 0
    lost: int = 0  # tasks without a verdict
    twice: int = 0  # tasks that started more than once, or have more than one verdict
    unended: int = 0  # attempts whose end was not stored
    takes: int = 0  # times that a run was taken by a process
    wall_s: float = 0.0


class Battle:
    def __init__(self, site: Site, server: Server, rng: random.Random, runs_each: int) -> None:
        self.tally = Tally()
        self._site, self._server, self._rng, self._runs_each = site, server, rng, runs_each
        self._up: dict[str, subprocess.Popen[bytes]] = {}
        self._down: dict[str, float] = {}  # since when each may start again

    def start(self, count: int) -> None:
        for number in range(count):
            home = f"c{number}"
            self._up[home] = self._site.controller(home, self._runs_each)

    def kill(self) -> None:
        kind = self._rng.choice(KINDS)
        home = self._rng.choice(sorted(self._up)) if self._up else None
        if kind == "connections":
            self._server.cut()
        elif kind == "server":
            self._server.stop()
            time.sleep(self._rng.uniform(0.0, 1.0))
            self._server.start()
        elif home is None:
            return
        elif kind == "driver":
            pids = list(drivers(self._site, home))
            if not pids:
                return
            with suppress(ProcessLookupError):
                os.kill(self._rng.choice(pids), signal.SIGKILL)
        else:
            process = self._up.pop(home)
            if kind == "machine":
                kill_machine(self._site, process, home)
            else:
                process.kill()
                process.wait()
            self._down[home] = time.monotonic() + self._rng.uniform(0.0, 4.0)
        self.tally.kills[kind] += 1

    def restart(self) -> None:
        """Start again what was killed, and what found no server when it started, as systemd would."""
        for home, process in list(self._up.items()):
            if process.poll() is not None:
                assert process.returncode != 70, f"{home} ended by itself: {self._log(home)}"
                del self._up[home]
                self._down[home] = time.monotonic() + 1.0
        for home, due in list(self._down.items()):
            if time.monotonic() >= due:
                del self._down[home]
                self._up[home] = self._site.controller(home, self._runs_each)

    def _log(self, home: str) -> str:
        return (self._site.folder / f"{home}.log").read_text()[-2000:]


def submit(site: Site, runs: int, tasks: int, ledger: Path, seconds: float) -> list[str]:
    """Runs in the pool `lab` whose tasks write down that they started."""
    with closing(open_store(site.folder / "a")) as store:
        return [
            store.runs.submit(
                f"run{number}",
                Policy(pool="lab", workers=2),
                [
                    TaskSpec(
                        key=f"t{task}",
                        domain="d",
                        command=("sh", "-c", f"echo $EVALFLEET_ATTEMPT >> {ledger}; sleep {seconds}"),
                    )
                    for task in range(tasks)
                ],
                folder=str(site.folder),
                base_env={},
            ).id
            for number in range(runs)
        ]


def fight(folder: Path, seed: str, *, controllers: int, runs: int, tasks: int, kills: int, limit_s: float) -> Tally:
    """Raises AssertionError where it does not end in time."""
    rng = random.Random(seed)
    ledger, begun = folder / "ledger", time.monotonic()
    with running(connections=400) as server, sshd.host(folder / "box") as box:
        os.environ["EVALFLEET_STORE_URL"] = url = server.url("public")
        site = Site(folder, url)
        (folder / "hosts.toml").write_text(sshd.hosts_file([box], slots=16))
        try:
            made = site.run("a", "pool", "create", "lab", "--backend", "ssh", "--hosts", str(folder / "hosts.toml"))
            assert made.returncode == 0, made.stderr
            names = submit(site, runs, tasks, ledger, 1.5)
            battle = Battle(site, server, rng, max(2, -(-runs // controllers) // 3))
            battle.start(controllers)
            left = kills
            next_kill = time.monotonic() + 2.0
            with closing(open_store(folder / "a")) as store:
                while store.runs.counts()[RunState.COMPLETED] < runs:
                    assert time.monotonic() - begun < limit_s, f"took more than {limit_s:.0f} s: {store.runs.counts()}"
                    battle.restart()
                    if left and time.monotonic() >= next_kill:
                        left -= 1
                        battle.kill()
                        next_kill = time.monotonic() + rng.uniform(0.5, 2.5)
                    time.sleep(0.1)
                _count(battle.tally, store, names, ledger)
            battle.tally.wall_s = time.monotonic() - begun
            return battle.tally
        finally:
            site.end()
            for home in (f"c{number}" for number in range(controllers)):  # of controllers that were killed alone
                for pid in drivers(site, home):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGTERM)


def _count(tally: Tally, store: object, names: list[str], ledger: Path) -> None:
    from evalfleet.store.store import Store

    assert isinstance(store, Store)
    started = Counter(line.rpartition(".")[0] for line in ledger.read_text().split())
    for name in names:
        attempts = store.attempts.all(name)
        verdicts = Counter(one.task_number for one in attempts if one.outcome is Outcome.OK)
        for task in store.tasks.all(name):
            tally.tasks += 1
            tally.lost += verdicts[task.number] == 0
            tally.twice += verdicts[task.number] > 1 or started[f"{name}.{task.number}"] > 1
        tally.starts += sum(count for key, count in started.items() if key.startswith(f"{name}."))
        tally.unended += sum(one.state is not AttemptState.ENDED for one in attempts)
        tally.takes += store.runs.get(name).epoch


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("controllers", 10), ("runs", 100), ("tasks", 3), ("kills", 60), ("seed", 1), ("limit", 1500)):
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="evalfleet-controllers-"))
    sizes = {"controllers": args.controllers, "runs": args.runs, "tasks": args.tasks, "kills": args.kills}
    tally = fight(folder, str(args.seed), **sizes, limit_s=args.limit)
    print(f"{tally}\n{folder}")
    return int(bool(tally.lost or tally.twice or tally.unended))


if __name__ == "__main__":
    sys.exit(main())

"""One round: a run that is killed again and again until it comes through."""

from __future__ import annotations

import random
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults import chaos_processes as processes
from tests.faults.chaos_command import EVALFLEET, environment
from tests.faults.chaos_plan import POSTGRES, Kill, Target, When, plan
from tests.faults.chaos_store import PostgresStore, SqliteStore, Store
from tests.faults.chaos_tasks import Ledger, write_tasks

IDLE_S = 3  # a runner whose run is over before its controller could say so ends by itself
POLL_S = 0.004
FIRST_VERDICTS = 12
MOMENT_S = 3.0
_MOMENTS = {
    When.COLLECTING: "select 1 from attempt where state = 'collecting' limit 1",
    When.COMPLETED: "select 1 from run where state = 'completed' limit 1",
}


class Broken(AssertionError):
    """Something that evalfleet promises does not hold."""


@dataclass(slots=True)
class Seen:
    """What the harness did, and what it saw at that moment. The checks compare it with what evalfleet recorded."""

    kills: Counter[str] = field(default_factory=Counter)
    moments: Counter[str] = field(default_factory=Counter)
    tasks_killed: set[str] = field(default_factory=set)  # attempts
    live_at_controller: set[str] = field(default_factory=set)  # attempts in flight when a controller died
    live_at_runner: set[str] = field(default_factory=set)  # attempts in flight when a runner died
    runner_kills: list[tuple[float, float]] = field(default_factory=list)  # just before, just after
    done: set[str] = field(default_factory=set)  # attempts whose end record was on the disk at some kill
    log: list[str] = field(default_factory=list)


class Round:
    """Drives one run through its kills. `home` and what the controllers said stay in `folder`."""

    def __init__(self, folder: Path, seed: str, flavour: str, *, tasks: int, workers: int, limit_s: float) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.tasks = tasks
        self.seen = Seen()
        self.ledger = Ledger(folder / "ledger")
        self._rng = random.Random(seed)
        self._kills = plan(self._rng, tasks, flavour)
        self._file = write_tasks(folder, tasks, self._rng)
        self._workers = workers
        self._begun = time.monotonic()
        self._deadline = self._begun + limit_s
        self._up_at = 0.0
        self._controller: subprocess.Popen[bytes] | None = None
        self.store: Store = PostgresStore() if flavour == POSTGRES else SqliteStore(self.home)
        self._env = environment(
            EVALFLEET_RUNNER_IDLE=f"{IDLE_S}s", EVALFLEET_BREAKER_PROBE_BASE="0.2s", **self.store.env
        )

    def run(self) -> None:
        """Let the run begin, kill what the plan says, and see it through."""
        try:
            self._drive()
            for kill in self._kills:
                if not self._reached(kill):
                    break
                self._carry_out(kill)
            while self._goes_on():
                time.sleep(POLL_S)
        finally:
            if self._controller is not None and self._controller.poll() is None:
                self._controller.kill()
                self._controller.wait()
        self.ledger.read()

    def stored(self) -> str | None:
        """The state of the run in the store; None: it was not submitted yet."""
        found = self.store.ask("select state, (select count(*) from task) as tasks from run")
        if not found:
            return None  # its first controller was killed before it got so far
        if len(found) > 1 or found[0]["tasks"] != self.tasks:
            raise Broken(f"the submission is half there: {found}")
        return found[0]["state"]

    # Controllers

    def _drive(self) -> None:
        """Start a controller: of the run that is there, or of a new one."""
        words = ["run", str(self._file), "--workers", str(self._workers)] if self.stored() is None else ["resume"]
        self._note(f"evalfleet {words[0]}")
        with (self.folder / "controllers.log").open("ab") as log:
            self._controller = subprocess.Popen(
                [EVALFLEET, *words, "--home", str(self.home)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._env, cwd=self.folder,
            )  # fmt: skip
        self._up_at = time.monotonic()

    def _goes_on(self) -> bool:
        """False when the run is over. Raises Broken when its controller gave up."""
        assert self._controller is not None
        if time.monotonic() > self._deadline:
            raise Broken(f"the round took more than {self._deadline - self._begun:.0f} s")
        code = self._controller.poll()
        if code is None:
            return True
        if code == 0:
            return False
        # A run whose controller died after its last word needs no other one.
        if code in (2, 3) and self.stored() == "completed" and b"is completed" in self._said():
            self._note("the run was completed already")
            return False
        raise Broken(f"a controller that nobody killed ended with {code}: {self._said().decode(errors='replace')}")

    def _said(self) -> bytes:
        return (self.folder / "controllers.log").read_bytes()[-2000:]

    # Kills

    def _reached(self, kill: Kill) -> bool:
        """Wait for the moment of a kill. False: the run ended before."""
        while self._goes_on() and not self._is_at(kill):
            time.sleep(POLL_S)
        if kill.when in (When.COLLECTING, When.COMPLETED) and not self._await_store(_MOMENTS[kill.when]):
            return self._goes_on()
        due = (self._up_at if kill.when is When.UP else time.monotonic()) + kill.delay_s
        while self._goes_on():
            if time.monotonic() >= due:
                return True
            time.sleep(min(POLL_S, max(0.0, due - time.monotonic())))
        return False

    def _is_at(self, kill: Kill) -> bool:
        self.ledger.read()
        have = len(self.ledger.starts) if kill.when is When.STARTS else len(self.ledger.ends)
        return kill.when is When.UP or have >= kill.count

    def _await_store(self, question: str) -> bool:
        """Wait until the answer is yes, closely: these moments are short. False: too late, or no controller is left."""
        deadline = time.monotonic() + MOMENT_S
        while time.monotonic() < deadline and self._is_up():
            if self.store.ask(question):
                return True
        return False

    def _carry_out(self, kill: Kill) -> None:
        self._note(f"kill {kill}")
        self.seen.moments[str(kill.when)] += 1
        for target in kill.targets:
            match target:
                case Target.CONTROLLER:
                    self._kill_controller()
                case Target.RUNNER | Target.STARTING_RUNNER:
                    self._kill_runner(target)
                case Target.TASK:
                    self._kill_task()
                case Target.SERVER:
                    self.store.crash()
                    self.seen.kills["server"] += 1
                case Target.CONNECTIONS:
                    self.seen.kills["connections"] += self.store.cut()
        if not self._is_up():
            resume_at = time.monotonic() + kill.pause_s
            while time.monotonic() < resume_at:
                time.sleep(POLL_S)
            self._drive()

    def _is_up(self) -> bool:
        return self._controller is not None and self._controller.poll() is None

    def _kill_controller(self) -> None:
        assert self._controller is not None
        since = time.time()
        self._controller.kill()
        if self._controller.wait() >= 0:
            return  # it was quicker
        self.seen.kills["controller"] += 1
        look = processes.look_at_spool(self.home, since, time.time())
        self.seen.live_at_controller |= look.live
        self.seen.done |= look.done

    def _kill_runner(self, target: Target) -> None:
        since = time.time()
        if target is Target.RUNNER:
            killed = processes.kill_runner(self.home)
        else:
            killed = processes.kill_starting_runner(self.home, time.monotonic() + (0.5 if self._is_up() else 0.1))
        if not killed:
            return
        until = time.time()
        self.seen.kills[str(target)] += 1
        self.seen.runner_kills.append((since, until))
        look = processes.look_at_spool(self.home, since, until)
        self.seen.done |= look.done
        if target is Target.RUNNER:  # of one that starts, two processes look alike, and only one of them is the runner
            self.seen.live_at_runner |= look.live

    def _kill_task(self) -> None:
        self.ledger.read()
        if len(self.ledger.ends) < FIRST_VERDICTS and len(self.seen.tasks_killed) >= 2:
            return  # more like failures before the first verdict would be an outage, and the breaker's affair
        live = self.ledger.live()
        self._rng.shuffle(live)
        for attempt, pid in live:
            if processes.kill_task(attempt, pid):
                self.seen.kills["task"] += 1
                self.seen.tasks_killed.add(attempt)
                return

    def _note(self, text: str) -> None:
        moment = time.monotonic() - self._begun
        counts = f"{len(self.ledger.starts)} starts, {len(self.ledger.ends)} ends"
        self.seen.log.append(f"{moment:7.3f} s  {text}  ({counts})")

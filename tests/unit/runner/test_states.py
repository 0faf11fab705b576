"""The state machines of the runner: an attempt on its host, and a lease of GPUs. Every edge is taken, and no other."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from evalfleet.runner import states
from evalfleet.runner.attempt import states as attempt_states
from evalfleet.runner.attempt.attempt import Attempt
from evalfleet.runner.attempt.journal import Journal
from evalfleet.runner.attempt.spec import AttemptSpec
from evalfleet.runner.gpu import lease as gpu_lease
from evalfleet.runner.gpu import states as lease_states
from evalfleet.runner.loop import Loop
from evalfleet.runner.redact import Redactor

MACHINES = {"attempt": attempt_states, "lease": lease_states}


@pytest.mark.parametrize("name", MACHINES)
def test_only_edges_are_followed(name: str):
    machine = MACHINES[name]
    for before, after in product(machine.STATES, machine.STATES):
        if before == after or (before, after) in machine.EDGES:
            assert states.moved(machine.EDGES, before, after) == after
        else:
            with pytest.raises(ValueError, match=f"from {before} to {after}"):
                states.moved(machine.EDGES, before, after)


@pytest.mark.parametrize("name", MACHINES)
def test_every_state_is_reached_and_the_last_one_is_the_end(name: str):
    machine = MACHINES[name]
    reached = {machine.STATES[0]}
    for _ in machine.STATES:
        reached |= {after for before, after in machine.EDGES if before in reached}
    assert reached == set(machine.STATES)
    assert [state for state in machine.STATES if not any(before == state for before, _ in machine.EDGES)] == [
        machine.STATES[-1]
    ]


# An attempt with real processes; what the runner does for it is done at once


class Moves(list[tuple[str, str]]):
    def of(self, kind: Any) -> Any:
        """The class, with its moves written down here."""
        moves = self

        class Watched(kind):
            def _move(self, state: str) -> None:
                before = self.state
                super()._move(state)
                if before != state:
                    moves.append((before, state))

        return Watched


class Turn:
    """A slot or GPUs that come when the test says so."""

    def __init__(self, go: Callable[[], object]) -> None:
        self.go = go
        self.settled: Callable[[list[Any]], None] = lambda _: None
        self.is_back = False

    def begin(self) -> None:
        pass

    def give_back(self) -> None:
        self.is_back = True

    def settle(self, done: Callable[[list[Any]], None]) -> None:
        self.settled = done

    def ready(self) -> None:
        pass


class FakeRunner:
    boot_id = "boot"
    now = staticmethod(time.time)

    def __init__(self) -> None:
        self.loop = Loop(self._raise)
        self.devnull = os.open(os.devnull, os.O_RDONLY)
        self.turns: list[Turn] = []
        self.trouble = ""  # the part of the runner that fails
        self.saves: list[Callable[[], None]] = []
        self.slots = self.gpus = self

    def close(self) -> None:
        os.close(self.devnull)
        self.loop.close()

    def lease(self, *given: Any) -> Turn:
        calls = [one for one in given if callable(one)]
        go = (lambda: calls[0]({}, [])) if len(calls) == 2 else (lambda: calls[0](self.devnull))
        self.turns.append(Turn(go))
        return self.turns[-1]

    def guard(self, attempt: Attempt, call: Callable[[], None]) -> None:
        try:
            call()
        except RuntimeError as error:
            attempt.fail(str(error))

    def oom_kills(self, fresh: bool = False) -> int:
        self._fail_at("run")
        return int(fresh) * 0

    def strays(self, _: Attempt) -> list[int]:
        self._fail_at("sweep")
        return []

    def save(self, save: Callable[[], None], saved: Callable[[], None]) -> None:
        save()
        self.saves.append(saved)

    def in_background(self, work: Callable[[], Any], done: Callable[[Any], None], _: float) -> None:
        self._fail_at("collect")
        done(work())

    def started(self, _: Attempt) -> None: ...
    def ended(self, _: Attempt) -> None: ...
    def limit_files(self, _: int) -> None: ...
    def cgroup(self, _: Attempt) -> None: ...

    def _fail_at(self, part: str) -> None:
        if self.trouble == part:
            raise RuntimeError(part)

    @staticmethod
    def _raise(error: Exception) -> None:
        raise error


class Bench:
    def __init__(self, folder: Path) -> None:
        self.runner = FakeRunner()
        self.moves = Moves()
        self._folder = folder
        self._count = 0

    def attempt(self, *command: str, gpus: bool = False) -> Any:
        self._count += 1
        folder = self._folder / str(self._count)
        for part in ("artifacts", "work"):
            (folder / part).mkdir(parents=True)
        journal = Journal(str(folder / "journal.jsonl"), "r.1.1", time.time)
        journal.create()
        fields: dict[str, Any] = {"command": list(command), "timeout_s": 60.0, "grace_s": 60.0}
        if gpus:
            fields["gpus"] = [{"uuid": "GPU-a", "index": 0, "memory_mb": None}]
        return self.moves.of(Attempt)(
            self.runner, "r.1.1", "r", str(folder), AttemptSpec(fields), Redactor({}), journal
        )

    def started(self, *command: str, gpus: bool = False) -> Any:
        made = self.attempt(*command, gpus=gpus)
        self.runner.guard(made, lambda: made.start({}))
        return made

    def reap(self, attempt: Any) -> None:
        _, status, usage = os.wait4(attempt.pid, 0)
        self.runner.guard(attempt, lambda: attempt.exited(status, usage.ru_utime, usage.ru_maxrss))

    def save(self) -> None:
        saves, self.runner.saves = self.runner.saves, []
        for saved in saves:
            saved()


@pytest.fixture
def bench(tmp_path: Path):
    made = Bench(tmp_path)
    yield made
    made.runner.close()


def test_an_attempt_takes_every_edge_and_no_other(bench: Bench):
    runner = bench.runner
    bench.reap(bench.started("true"))  # from start to end
    stopped = bench.started("sleep", "60")
    stopped.stop("cancelled")
    bench.reap(stopped)
    assert bench.started("/no/program").state == "saving"  # it cannot be executed
    waits = bench.started("true", gpus=True)
    waits.stop("cancelled")
    assert runner.turns[-1].is_back
    bench.started("true", gpus=True).fail("trouble")
    for fails in (False, True):  # its GPUs settle, or the runner stumbles meanwhile
        leased = bench.started("true", gpus=True)
        runner.turns[-1].go()
        bench.reap(leased)
        assert leased.state == "settling"
        if fails:
            leased.fail("trouble")
        else:
            runner.turns[-1].settled([])
    runner.trouble = "run"
    assert bench.started("true").state == "saving"
    runner.trouble = ""
    swept = bench.started("true")
    runner.trouble = "sweep"
    bench.reap(swept)
    runner.trouble = ""
    bench.save()
    assert set(bench.moves) == set(attempt_states.EDGES)


def test_an_attempt_that_was_stopped_before_it_began_starts_nothing(bench: Bench):
    made = bench.attempt("true")
    made.stop("cancelled")
    made.start({})
    bench.save()
    assert (made.pid, made.state) == (0, "ended")
    waits = bench.started("true", gpus=True)
    waits.stop("cancelled")
    with pytest.raises(ValueError, match="from saving to running"):
        bench.runner.turns[-1].go()
    assert waits.pid == 0


def test_files_that_come_after_the_end_change_nothing(bench: Bench):
    late: list[Callable[[], None]] = []
    bench.runner.in_background = lambda work, done, _: late.append(lambda: done(work()))  # type: ignore[method-assign]
    made = bench.attempt("true")
    with (Path(made.folder) / "artifacts" / "large").open("wb") as file:
        file.truncate(64 << 20)
    made.start({})
    bench.reap(made)
    assert made.state == "collecting"
    made.fail("trouble")
    bench.save()
    assert made.state == "ended"
    for come in late:
        come()
    assert made.state == "ended"


# A lease of GPUs

ROW = {
    "uuid": "GPU-a",
    "index": 0,
    "pci": "0",
    "name": "n",
    "memory_mb": 1000,
    "used_mb": 0,
    "reserved_mb": 0,
    "utilization": 0,
    "mig": None,
    "parent": None,
    "links": {},
    "processes": [],
    "settle_s": 0.0,
}


class Gpus:
    """Answers each look when the test says so."""

    def __init__(self, spool: Path) -> None:
        self.spool = str(spool)
        self.loop = Loop(FakeRunner._raise)
        self.looks: list[Callable[[Any], None]] = []
        self.startup_s = 60.0

    def look(self, done: Callable[[Any], None]) -> None:
        self.looks.append(done)

    def answer(self, *, driver: bool = True) -> None:
        looks, self.looks = self.looks, []
        for done in looks:
            done([dict(ROW, startup_s=self.startup_s)] if driver else None)


def test_a_lease_takes_every_edge_and_no_other(tmp_path: Path):
    moves, gpus = Moves(), Gpus(tmp_path)
    desk = gpu_lease.GpuLeases(gpus)  # type: ignore[arg-type]
    told: list[Any] = []

    def lease(name: str, memory_mb: int | None = None) -> Any:
        spec = AttemptSpec(
            {"command": ["true"], "timeout_s": 60.0, "gpus": [{"uuid": "GPU-a", "index": 0, "memory_mb": memory_mb}]}
        )
        made = moves.of(gpu_lease.AttemptGpus)(desk, name, spec, lambda *_: told.append("go"), told.append)
        made.begin()
        return made

    first = lease("a")
    second = lease("b")
    assert (first.state, second.state) == ("looking", "given_back"), "a whole card is not shared"
    gpus.answer()
    first.ready()
    first.settle(told.append)
    gpus.answer()
    assert first.state == "given_back"
    unanswered = lease("c")
    gpus.answer(driver=False)
    assert unanswered.state == "given_back"
    starting = lease("d")
    gpus.answer()
    assert starting.state == "starting"
    starting.give_back()
    starting.give_back()  # said again, nothing changes
    gpus.startup_s = 0.0
    quick = lease("e")
    gpus.answer()
    assert quick.state == "started"
    quick.give_back()
    assert set(moves) == set(lease_states.EDGES)
    gpus.loop.close()

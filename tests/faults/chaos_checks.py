"""What must hold after a round: the ledger and the harness's own notes against everything that evalfleet recorded."""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.faults import chaos_processes as processes
from tests.faults.chaos_command import evalfleet
from tests.faults.chaos_round import IDLE_S, Broken, Round
from tests.faults.chaos_store import Row
from tests.faults.chaos_tasks import score_of

from evalfleet.layout import Home


@dataclass(slots=True)
class Tally:
    """The figures of one round, or of all."""

    rounds: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    moments: Counter[str] = field(default_factory=Counter)  # of the kills
    tasks: int = 0
    attempts: int = 0
    reattached: int = 0
    runner_lost: int = 0
    signalled: int = 0
    lost: int = 0
    twice: int = 0
    restarted: int = 0
    left: int = 0

    def add(self, other: Tally) -> None:
        self.kills += other.kills
        self.moments += other.moments
        for name in ("rounds", "tasks", "attempts", "reattached", "runner_lost", "signalled", "lost", "twice",
                     "restarted", "left"):  # fmt: skip
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Check:
    """Collects everything that is wrong with one round, so that one failure shows the whole of it."""

    def __init__(self, done: Round) -> None:
        self._round = done
        self._seen = done.seen
        self._wrong: list[str] = []
        self.tally = Tally(rounds=1, kills=done.seen.kills, moments=done.seen.moments, tasks=done.tasks)
        self._starts = Counter(attempt for _, attempt, _ in done.ledger.starts)
        self._ends = Counter(attempt for _, attempt in done.ledger.ends)

    def all(self) -> Tally:
        """Raises Broken with everything that does not hold."""
        self._processes()
        rows = self._database()
        self._attempts(rows)
        self._tasks(rows)
        self._notes(rows)
        self._events(rows)
        self._report(rows)
        self._files(rows)
        if self._wrong:
            shown = "\n  ".join(self._wrong[:20])
            raise Broken(f"{len(self._wrong)} things are wrong:\n  {shown}")
        return self.tally

    def _expect(self, holds: object, text: str) -> bool:
        if not holds:
            self._wrong.append(text)
        return bool(holds)

    # What is left on the machine

    def _processes(self) -> None:
        left = _until(lambda: processes.left_of(self._round.home), IDLE_S + 10)
        self.tally.left = len(left)
        self._expect(not left, f"left: {', '.join(left)}")

    def _database(self) -> list[Row]:
        for fault in self._round.store.faults():
            self._expect(False, fault)
        found = self._round.store.ask(
            """select a.run_id || '.' || task_number || '.' || a.number as id, task_number, a.number, t.key, a.state, a.outcome,
                      a.kind, a.counted, a.score, claimed_at, started_at, ended_at, t.state as task_state, t.score as task_score,
                      t.consumed, t.lost, t.attempts as task_attempts, t.decided_by, a.run_id
               from attempt a join task t on t.run_id = a.run_id and t.number = a.task_number
               order by task_number, a.number"""
        )
        return found or []

    # Attempts: each has exactly one explanation

    def _attempts(self, rows: list[Row]) -> None:
        self.tally.attempts = len(rows)
        known = {row["id"] for row in rows}
        for attempt in self._starts.keys() - known:
            self._expect(False, f"{attempt} was started, and no attempt of that id is recorded")
        for row in rows:
            attempt, kind = row["id"], row["kind"] or row["outcome"]
            self._expect(row["state"] == "ended", f"{attempt} is {row['state']}, not ended")
            if self._starts[attempt] > 1:
                self.tally.restarted += 1
                self._expect(False, f"{attempt} was started {self._starts[attempt]} times")
            if kind == "ok":
                self._expect(
                    self._ends[attempt] == 1, f"{attempt} is ok, and the ledger has {self._ends[attempt]} ends of it"
                )
            elif kind == "signalled":
                self.tally.signalled += 1
                self._expect(attempt in self._seen.tasks_killed, f"{attempt} is signalled, and nobody killed it")
                self._expect(row["counted"] == "consumed", f"{attempt} is signalled and counts as {row['counted']}")
            elif kind == "runner_lost":
                self.tally.runner_lost += 1
                self._expect(self._runner_died_under(row), f"{attempt} is runner_lost, and no runner died under it")
                self._expect(row["counted"] == "lost", f"{attempt} is runner_lost and counts as {row['counted']}")
            else:
                self._expect(False, f"{attempt} ended as {kind}")

    def _runner_died_under(self, row: Row) -> bool:
        return any(
            row["claimed_at"] <= after and row["ended_at"] >= before for before, after in self._seen.runner_kills
        )

    # Tasks: one verdict each, of their last attempt

    def _tasks(self, rows: list[Row]) -> None:
        by_task: dict[int, list[Row]] = defaultdict(list)
        for row in rows:
            by_task[row["task_number"]].append(row)
        self._expect(len(by_task) == self._round.tasks, f"{len(by_task)} of {self._round.tasks} tasks have an attempt")
        for attempts in by_task.values():
            last, key = attempts[-1], attempts[-1]["key"]
            outcomes = [row["outcome"] for row in attempts]
            if not self._expect(outcomes.count("ok") >= 1, f"{key} has no verdict: {outcomes}"):
                self.tally.lost += 1
            if not self._expect(outcomes.count("ok") <= 1, f"{key} has several verdicts: {outcomes}"):
                self.tally.twice += 1
            if "ok" in outcomes[:-1]:
                self.tally.restarted += 1
                self._expect(False, f"{key} was started again after its verdict: {outcomes}")
            wanted = score_of(int(key.rpartition("_")[2]))
            self._expect(last["task_state"] == "done", f"{key} is {last['task_state']}")
            self._expect(last["task_score"] == last["score"] == wanted, f"{key} has score {last['task_score']}")
            self._expect(last["decided_by"] == last["number"], f"{key} was decided by attempt {last['decided_by']}")
            counts = Counter(row["counted"] for row in attempts)
            self._expect(last["consumed"] == counts["consumed"], f"{key}: {last['consumed']} consumed, {dict(counts)}")
            self._expect(last["lost"] == counts["lost"], f"{key}: {last['lost']} lost, {dict(counts)}")
            numbers = [row["number"] for row in attempts]
            self._expect(numbers == list(range(1, len(numbers) + 1)), f"{key} has the attempts {numbers}")
            self._expect(last["task_attempts"] == len(numbers), f"{key} counts {last['task_attempts']} attempts")

    # What was seen at the moments of the kills

    def _notes(self, rows: list[Row]) -> None:
        seen = self._seen
        kinds = {row["id"]: row["kind"] or row["outcome"] for row in rows}
        for attempt in seen.done:
            if not self._expect(kinds.get(attempt) == "ok", f"{attempt} was done and became {kinds.get(attempt)}"):
                self.tally.lost += 1
        for attempt in seen.live_at_runner:
            found = kinds.get(attempt)
            self._expect(found == "runner_lost", f"{attempt} was in flight when its runner died, and became {found}")
        for attempt in seen.tasks_killed - seen.live_at_runner:
            # The signal may come between the last line of the task and its exit.
            fine = ("signalled", "ok") if self._ends[attempt] else ("signalled",)
            found = kinds.get(attempt)
            lost = found == "runner_lost" and seen.runner_kills
            self._expect(found in fine or lost, f"{attempt} was killed and became {found}")
        for attempt in seen.live_at_controller - seen.live_at_runner - seen.tasks_killed:
            if kinds.get(attempt) == "runner_lost":
                continue  # its runner died later; checked above
            found = kinds.get(attempt)
            fine = found == "ok" and self._starts[attempt] == 1
            self._expect(fine, f"{attempt} was in flight when only its controller died, and became {found}, "
                               f"with {self._starts[attempt]} starts")  # fmt: skip
            self.tally.reattached += 1
        if not seen.runner_kills and not seen.tasks_killed:
            self._expect(len(rows) == self._round.tasks, f"only controllers died, and there are {len(rows)} attempts")

    # What evalfleet says of it

    def _ask(self, *words: str) -> str:
        asked = evalfleet(self._round.home, *words)
        self._expect(asked.returncode == 0, f"evalfleet {words[0]} ended with {asked.returncode}: {asked.stderr}")
        return asked.stdout

    def _events(self, rows: list[Row]) -> None:
        events = [json.loads(line) for line in self._ask("events", "latest", "--json").splitlines()]
        numbers = [event["number"] for event in events]
        self._expect(numbers == sorted(set(numbers)), "the numbers of the events do not rise")
        verdicts = Counter(event["task"] for event in events if event["type"] == "task.done")
        for key in {row["key"] for row in rows} | verdicts.keys():
            if not self._expect(verdicts[key] == 1, f"{key} has {verdicts[key]} events task.done"):
                self.tally.twice += verdicts[key] > 1
        for kind in ("attempt.claimed", "attempt.finished", "attempt.collected"):
            found = Counter(event["attempt"] for event in events if event["type"] == kind)
            self._expect(found == Counter(row["id"] for row in rows), f"{kind} is not there once for each attempt")
        self._expect(not any(event["type"] == "breaker.opened" for event in events), "the breaker opened")

    def _report(self, rows: list[Row]) -> None:
        told = json.loads(self._ask("report", "latest", "--json") or "{}")
        if not told:
            return
        outcomes = Counter(row["outcome"] for row in rows)
        self._expect(told["state"] == "completed", f"report: the run is {told['state']}")
        self._expect(told["tasks"]["done"] == self._round.tasks, f"report: {told['tasks']}")
        self._expect(told["attempts"]["total"] == len(rows), f"report: {told['attempts']}, {len(rows)} are recorded")
        shown = {name: count for name, count in told["attempts"]["by_outcome"].items() if count}
        self._expect(shown == outcomes, f"report: {shown}, and {dict(outcomes)} are recorded")
        kinds = Counter(row["kind"] for row in rows if row["kind"])
        self._expect(told["failures"] == kinds, f"report: {told['failures']}, and {dict(kinds)} are recorded")
        self._expect(told["scores"]["coverage"] == 1.0, f"report: coverage {told['scores']['coverage']}")

    # Files

    def _files(self, rows: list[Row]) -> None:
        home = Home(self._round.home)
        spooled = _until(lambda: [path.name for path in (home.spool / "attempts").glob("*")], 2)
        self._expect(not spooled, f"{len(spooled)} attempts are left in the spool: {', '.join(spooled[:5])}")
        for row in rows:
            folder = home.attempt(row["run_id"], row["key"], row["number"])
            journal = folder / "journal.jsonl"
            if not self._expect(journal.exists(), f"{row['id']} ({row['kind'] or 'ok'}) has no {journal}"):
                continue
            last = json.loads(journal.read_bytes().splitlines()[-1])
            self._expect(last["type"] == "ended", f"{row['id']}: its journal ends with {last['type']}")
            if row["outcome"] == "ok":
                kept = folder / "artifacts" / "key.txt"
                fine = kept.exists() and kept.read_text() == row["key"]
                self._expect(fine, f"{row['id']}: its artifact is not there")
                self._expect((folder / "stdout.log").exists(), f"{row['id']}: its output is not there")


def _until(look: Callable[[], list[str]], limit_s: float) -> list[str]:
    """What `look` still finds after at most that long."""
    deadline = time.monotonic() + limit_s
    while (found := look()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found

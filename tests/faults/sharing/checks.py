"""What must hold after a round: the ledger of the tasks against what every home recorded."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import Any

from tests.faults.chaos_processes import left_of
from tests.faults.chaos_round import Broken
from tests.faults.sharing.world import EmulatorContext, Submitted

_END_S = 20.0


class Check:
    def __init__(self, world: EmulatorContext) -> None:
        self._world = world
        self._lines = world.ledger()
        self._wrong: list[str] = []
        self.counts: Counter[str] = Counter()

    def all(self) -> Counter[str]:
        """Raises Broken with everything that does not hold."""
        for run in self._world.runs:
            self._run(run)
        clashes = [line for line in self._lines if line.word == "clash"]
        self._expect(not clashes, f"{len(clashes)} attempts ran in more slots than there are: {clashes[:3]}")
        starts = Counter(line.attempt for line in self._lines if line.word == "start")
        twice = [attempt for attempt, count in starts.items() if count > 1]
        self._expect(not twice, f"attempts that began twice: {twice}")
        self._nothing_left()
        if self._wrong:
            raise Broken("; ".join(self._wrong[:8]))
        return self.counts

    def _run(self, run: Submitted) -> None:
        told = json.loads(run.home.command("report", run.name, "--json").stdout)
        rows = {row["key"]: row for row in told["results"]}
        self.counts["tasks"] += len(rows)
        self.counts["attempts"] += told["attempts"]["total"]
        for key, score in run.good.items():
            row = rows[key]
            if not self._expect(row["score"] == score, f"{key} has {row['score']} instead of {score}: {row['state']}"):
                self.counts["wrong blames" if row["state"] in ("failed", "held") else "lost"] += 1
            self._once(run, key)
        for key in run.bad:
            self._expect(rows[key]["state"] == "held", f"{key} is {rows[key]['state']} instead of held")
        self._expect(told["scores"]["verdicts"] == len(run.good), f"{run.name}: {told['scores']}")

    def _once(self, run: Submitted, key: str) -> None:
        """One verdict, and no start after the end that it came from, unless that end was told late."""
        events: list[dict[str, Any]] = run.home.events(run.name)
        verdicts = [event for event in events if event["type"] == "task.done" and event["task"] == key]
        if not self._expect(len(verdicts) == 1, f"{key} has {len(verdicts)} verdicts"):
            self.counts["doubled"] += len(verdicts) > 1
            return
        late = [
            event["attempt"]
            for event in events
            if event["type"] == "attempt.claimed" and event["task"] == key and event["number"] > verdicts[0]["number"]
        ]
        self._expect(not late, f"{key} was started again after its verdict: {late}")

    def _nothing_left(self) -> None:
        deadline = time.monotonic() + _END_S
        while (left := self._left()) and time.monotonic() < deadline:
            time.sleep(0.1)
        self.counts["orphans"] += len(left)
        self._expect(not left, f"{len(left)} processes are left: {left[:4]}")

    def _left(self) -> list[str]:
        """Tasks of hosts and homes that still live; runners end by themselves later."""
        places = [host.home for host in self._world.hosts.values()] + [home.home for home in self._world.homes]
        return [name for place in places for name in left_of(place) if not name.startswith("runner")]

    def _expect(self, holds: bool, words: str) -> bool:
        if not holds:
            self._wrong.append(words)
        return holds

"""What quotas allow a run before it asks for a claim. The claim itself is guarded in its transaction; this saves useless ones, and
says why the run waits."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from evalfleet.core.budget import UNLIMITED
from evalfleet.core.shares.quota import ShareRule, Subject, Use, Wanted, gpu_room, merged, refusal, room, rule_for
from evalfleet.model import Run, Task
from evalfleet.store.store import Store

LOOK_S = 0.5  # how often what others use is looked up, where there is a quota
RULES_S = 2.0  # how often it is looked up whether there is one


class RunQuotas:
    """Used inside the dispatcher's steps."""

    def __init__(self, store: Store, run: Run, given: tuple[ShareRule, ...]) -> None:
        self._store = store
        self._run = run
        self.given = given  # by the configuration
        self._found: list[tuple[ShareRule, str, Use]] = []  # what holds for the run, of whom, and what is used of it
        self._live = 0  # attempts of the run at the last look
        self._look_at = 0.0
        self._full: str | None = None
        self._refused: str | None = None
        self.look_at = inf

    @property
    def limits_usd(self) -> bool:
        """Whether it matters what an attempt may cost."""
        return any(rule.usd_per_day is not None for rule, _, _ in self._found)

    @property
    def waits(self) -> str | None:
        """Why the run may start nothing more now, or not what it tried to start last; None: no quota hinders it."""
        return self._full or self._refused

    def allowance(self, live: int) -> int:
        """How many more attempts may start."""
        now = self._store.now()
        if now >= self._look_at:
            self._look(now, live)
        self._full, self.look_at = None, inf if self._refused is None else self._look_at
        if not self._found:
            self._refused = None
            return UNLIMITED
        most = UNLIMITED
        for rule, name, use in self._found:
            left = room(rule, use)
            if left is not None and left - (live - self._live) < most:
                most = max(0, left - (live - self._live))
            if most <= 0 and self._full is None:
                self._full, self.look_at = refusal(rule, use, Wanted(), name), self._look_at
        return most

    def admits(self, task: Task, usd: float) -> bool:
        """Whether one more attempt of a task is within the quotas, as far as it is known. If not, `waits` says why."""
        wanted = Wanted(gpus=task.spec.requests.gpus, usd=usd)
        for rule, name, use in self._found:
            why = refusal(rule, use, wanted, name)
            if why is not None:
                self._refused, self.look_at = why, self._look_at
                return False
        self._refused = None
        return True

    def within_gpus(self, tasks: Sequence[Task]) -> list[Task]:
        """The first of these that the quotas leave GPUs for: the others must not keep GPUs from other runs."""
        left = min((left for rule, _, use in self._found if (left := gpu_room(rule, use)) is not None), default=None)
        if left is None:
            return list(tasks)
        found: list[Task] = []
        for task in tasks:
            if task.spec.requests.gpus <= left:
                found.append(task)
                left -= task.spec.requests.gpus
        return found

    def claimed(self) -> None:
        """An attempt was made, or refused: what is used is another."""
        if self._found:
            self._look_at = 0.0

    def _look(self, now: float, live: int) -> None:
        rules = merged(self.given, self._store.shares.rules())
        whose = [(Subject.USER, self._run.owner), (Subject.PROJECT, self._run.project)]
        found = [
            (rule_for(rules, subject, name), subject, name)
            for subject, name in whose
            if name or subject is Subject.USER
        ]
        self._found = [
            (rule, name, self._store.shares.use(subject, name))
            for rule, subject, name in found
            if rule is not None and rule.limits
        ]
        self._live = live
        self._look_at = now + (LOOK_S if self._found else RULES_S)

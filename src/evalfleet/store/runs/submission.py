"""Submission: a run and all its tasks in one transaction, however many they are; and more tasks for an open run."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from evalfleet.core.statistics import stratify
from evalfleet.errors import InputError
from evalfleet.model import Policy, Run, Task, TaskSpec
from evalfleet.store.runs import rows
from evalfleet.store.runs.events import Recording
from evalfleet.store.runs.queries import Conflict

# Letters and digits that nobody confuses when reading an id aloud.
ID_ALPHABET = "23456789abcdefghjkmnpqrstuvwxyz"
_IN_MEMORY = 8_000_000


def new_id(length: int = 8) -> str:
    # Not the `secrets` module, which takes longer to load than the rest of a command: an id is a name, not a key.
    return "".join(ID_ALPHABET[byte % len(ID_ALPHABET)] for byte in os.urandom(length))


class _Head(msgspec.Struct):
    key: str
    domain: str


_head = msgspec.json.Decoder(_Head)


class Submitting(Recording):
    """The part of `Store` that takes in new runs."""

    def submit(
        self,
        name: str,
        policy: Policy,
        tasks: Iterable[TaskSpec],
        *,
        folder: str,
        base_env: dict[str, str],
        open: bool = False,
    ) -> Run:
        from tempfile import SpooledTemporaryFile  # heavy, and only needed here

        # The tasks may come from a slow pipe: they are drawn before the transaction, which other writers wait for.
        with SpooledTemporaryFile(max_size=_IN_MEMORY) as spool:
            for spec in tasks:
                spool.write(rows.to_json(spec).encode() + b"\n")
            spool.seek(0)
            with self._db.transaction():
                run_id = new_id()
                self._db.rows(
                    "insert_run",
                    id=run_id,
                    name=name,
                    open=int(open),
                    policy=rows.to_json(policy),
                    folder=folder,
                    base_env=rows.to_json(base_env),
                    now=self.now(),
                )
                count = self._insert_tasks(run_id, spool, after=0)
                self._rank(run_id, name, policy)
                self._event(run_id, "run.submitted", {"name": name, "tasks": count})
                return self.run(run_id)

    def add_tasks(self, run: Run, tasks: Sequence[TaskSpec]) -> list[Task]:
        with self._db.transaction():
            found = self._db.rows("select_room_for_tasks", id=run.id, epoch=run.epoch)
            if not found or not tasks:
                return []
            last: int = found[0]["last"]
            lines = (rows.to_json(spec).encode() + b"\n" for spec in tasks)
            self._insert_tasks(run.id, lines, after=last)
            added = [self.task_at(run.id, last + place) for place in range(1, len(tasks) + 1)]
            for task in added:
                self._event(run.id, "task.submitted", {"number": task.number}, task)
            return added

    def set_open(self, run: Run, open: bool, reason: str) -> Run | None:
        with self._db.transaction():
            found = self._db.rows("set_open", id=run.id, epoch=run.epoch, open=int(open))
            if not found:
                return None
            self._event(run.id, "run.opened" if open else "run.closed", {"reason": reason})
            return rows.run(found[0])

    def _insert_tasks(self, run_id: str, lines: Iterable[bytes], after: int) -> int:
        count, key = after, ""

        def values() -> Iterator[dict[str, Any]]:
            nonlocal count, key
            for line in lines:
                head = _head.decode(line)
                count, key = count + 1, head.key
                yield {
                    "run_id": run_id,
                    "number": count,
                    "key": key,
                    "domain": head.domain,
                    "spec": line[:-1].decode(),
                }

        try:
            self._db.many("insert_task", values())
        except Conflict as error:
            raise InputError(
                f"task {count}: the key {key!r} stands twice; every task of a run needs its own"
            ) from error
        return count

    def _rank(self, run_id: str, name: str, policy: Policy) -> None:
        """Longest expected first. Where a budget may end the run early: so that each beginning is a fair sample."""
        if self._db.rows("select_has_history"):
            self._longest_first(run_id, name)
        if policy.budget_usd is not None and policy.study is None:
            projected = self._projected_usd(run_id, name)
            if stratify.is_scarce(policy.budget_usd, projected):
                self._stratify(run_id)

    def _rank_again(self, run: Run, policy: Policy) -> None:
        """Put the waiting tasks in order for another budget."""
        self._db.rows("reset_ranks", run_id=run.id)
        self._rank(run.id, run.name, policy)

    def _longest_first(self, run_id: str, name: str) -> None:
        """A task without history counts as the median of its domain, else of all."""
        self._db.rows("expect_tasks", run_id=run_id, name=name)
        by_domain: dict[str, list[float]] = {}
        for row in self._db.stream("select_expected", run_id=run_id):
            by_domain.setdefault(row["domain"], []).append(row["expected_s"])
        known = sorted(value for values in by_domain.values() for value in values)
        if not known:
            return
        median = known[len(known) // 2]
        medians = {domain: values[len(values) // 2] for domain, values in by_domain.items()}
        ranks = (
            {"run_id": run_id, "number": row["number"], "rank": medians.get(row["domain"], median)}
            for row in self._db.rows("select_unexpected", run_id=run_id)
        )
        self._db.many("rank_task", ranks)

    def _projected_usd(self, run_id: str, name: str) -> float | None:
        """What the run should cost, by what its keys cost in earlier runs of its name; None where none is known."""
        (found,) = self._db.rows("project_cost", run_id=run_id, name=name)
        return found["mean_usd"] * found["tasks"] if found["mean_usd"] else None

    def _stratify(self, run_id: str) -> None:
        members = (
            stratify.Member(
                number=row["number"], key=row["key"], domain=row["domain"], begun=row["state"] not in ("queued", "held")
            )
            for row in self._db.stream("select_members", run_id=run_id)
        )
        found = stratify.places(members)
        self._db.many(
            "rank_task", ({"run_id": run_id, "number": number, "rank": 1 - place} for number, place in found.items())
        )

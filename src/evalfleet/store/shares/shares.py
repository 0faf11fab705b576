"""What users and projects may have, and what the runs that share a pool have and want.

Quotas are checked in the transaction of each claim, so that they hold however many controllers claim at once. Shares are an agreement
of controllers: each says what its run could use, reads what the others said, and holds itself to `core.shares.rule`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from evalfleet.core.shares.quota import ShareRule, Subject, Use, Wanted, day_begin, merged, refusal, rule_for
from evalfleet.model import Run
from evalfleet.store import rows
from evalfleet.store.database.base import Database

FRESH_S = 15.0  # what a controller said longer ago counts for nothing: it may be dead
HALF_S = 3600.0  # slot time counts half after this long
_OLD_S = 86_400.0


class PoolRun(Struct, frozen=True, kw_only=True):
    """Another run on a pool."""

    run_id: str
    owner: str
    project: str
    priority: int
    live: int  # attempts
    wanted: int  # slots that its controller could use, with those that it has; 0: it has no controller, or wants none
    used_s: float  # slot time of its live attempts
    waits_since: float | None


class ShareQueries:
    def __init__(self, database: Database) -> None:
        self._db = database

    def rules(self) -> list[ShareRule]:
        """What operators have set."""
        return [
            rows.record(ShareRule, row, subject=Subject(row["subject"])) for row in self._db.rows("select_share_rules")
        ]

    def use(self, subject: Subject, name: str) -> Use:
        """What a user or project has now, and what it has spent today."""
        now = self._db.now()
        [live] = self._db.rows("select_use", subject=str(subject), name=name, now=now)
        [spent] = self._db.rows("sum_spent_since", subject=str(subject), name=name, since=day_begin(now))
        return Use(
            running=live["running"],
            gpus=int(live["gpus"]),
            committed_usd=live["committed_usd"],
            spent_usd=spent["spent_usd"],
        )

    def holders(self) -> set[tuple[Subject, str]]:
        """The users and projects that have attempts now."""
        found = self._db.rows("select_holders")
        users = {(Subject.USER, row["owner"]) for row in found}
        return users | {(Subject.PROJECT, row["project"]) for row in found if row["project"]}

    def on_pool(self, pool: str, run_id: str) -> list[PoolRun]:
        """The other runs that have or want slots of a pool."""
        now = self._db.now()
        found = self._db.rows("select_demand", pool=pool, run_id=run_id, now=now, since=now - FRESH_S)
        return [rows.record(PoolRun, row) for row in found]

    def slot_use(self) -> Mapping[tuple[str, str], float]:
        """By user and project: the slot time of late of attempts that ended."""
        now = self._db.now()
        found = self._db.rows("select_slot_use", name=None, project=None)
        return {(row["user_name"], row["project"]): _faded(row["used_s"], now - row["noted_at"]) for row in found}


class Shares(ShareQueries):
    def set_rule(self, rule: ShareRule) -> None:
        """Say what a user or project may have, in place of what was said of it before."""
        with self._db.transaction():
            self._db.rows(
                "upsert_share_rule",
                subject=str(rule.subject),
                name=rule.name,
                weight=rule.weight,
                running_number=rule.running,
                gpus=rule.gpus,
                usd_per_day=rule.usd_per_day,
            )

    def remove_rule(self, subject: Subject, name: str) -> bool:
        """Forget what was said. False: nothing was."""
        with self._db.transaction():
            return bool(self._db.rows("delete_share_rule", subject=str(subject), name=name))

    def refusal(self, run: Run, wanted: Wanted, given: Sequence[ShareRule] = ()) -> str | None:
        """Why one more attempt of the run would be over a quota; None: it would not. Inside the transaction of a claim the
        answer still holds when the attempt is made.

        Args:
            given: rules of the configuration; what operators have set goes before them.
        """
        stored = self.rules()
        rules = merged(given, stored) if given else stored
        if not rules:
            return None
        for subject, name in ((Subject.USER, run.owner), (Subject.PROJECT, run.project)):
            rule = rule_for(rules, subject, name)
            if rule is None or not rule.limits or (subject is Subject.PROJECT and not name):
                continue
            why = refusal(rule, self.use(subject, name), wanted, name)
            if why is not None:
                return why
        return None

    def publish(self, run: Run, pool: str, wanted: int, waits_since: float | None) -> None:
        """Say how many slots of a pool the run could use. To be said again within `FRESH_S`."""
        with self._db.transaction():
            now = self._db.now()
            self._db.rows("drop_old_demand", since=now - _OLD_S)
            self._db.rows(
                "publish_demand",
                run_id=run.id,
                pool=pool,
                priority_number=run.policy.priority,
                wanted_number=wanted,
                waits_since=waits_since,
                now=now,
            )

    def add_use(self, run: Run, seconds: float) -> None:
        """Count slot time of an attempt that ended."""
        with self._db.transaction():
            now = self._db.now()
            found = self._db.rows("select_slot_use", name=run.owner, project=run.project)
            used_s = sum(_faded(row["used_s"], now - row["noted_at"]) for row in found)
            self._db.rows("upsert_slot_use", name=run.owner, project=run.project, used_s=used_s + seconds, now=now)


def _faded(used_s: float, age_s: float) -> float:
    return used_s * 0.5 ** (max(0.0, age_s) / HALF_S)

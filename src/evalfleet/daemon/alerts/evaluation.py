"""Which alerts hold in a home at one moment, and what of that is new: the rules applied to what the store knows.

Any process may evaluate. Alerts are compared inside the transaction that adds more, so that none is sent twice.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from evalfleet.answers.alerts import Alert
from evalfleet.config import Settings
from evalfleet.core.alerts.host_checks import host_conditions, pool_conditions, reap_conditions
from evalfleet.core.alerts.rules import NOTICES, Change, Condition, latch
from evalfleet.core.alerts.run_checks import RunFacts, conditions
from evalfleet.daemon.alerts.pool_facts import Idleness, host_facts, pool_facts, reap_facts
from evalfleet.daemon.alerts.run_facts import active_runs, facts_of
from evalfleet.daemon.alerts.state import FIRED, HOME, RESOLVED, fold
from evalfleet.model import JsonObject
from evalfleet.pools.kinds.registry import speed_of
from evalfleet.store.reader import StoreReader
from evalfleet.store.store import Store


class Evaluation(Struct, frozen=True, kw_only=True):
    """What was seen at one moment."""

    alerts: dict[int, Alert]  # as they were told
    holding: dict[str, list[Condition]]  # by run, or `pool:NAME`, `host:NAME`, home
    names: dict[str, str]
    over: frozenset[str]  # runs that have ended


class Evaluator:
    """Used by one thread at a time."""

    def __init__(self, settings: Settings) -> None:
        self._limits = settings.alerts
        self._settings = settings
        self._idleness = Idleness()

    def evaluate(self, store: StoreReader, begun: float) -> Evaluation:
        """Apply all rules.

        Args:
            begun: since when this home is watched: what ended before is no news.
        """
        limits = self._limits
        alerts = fold(store.events.alerts())
        firing = [alert for alert in alerts.values() if alert.state == "firing"]
        watched = {alert.about for alert in firing}
        holding: dict[str, list[Condition]] = {about: [] for about in watched}  # what is gone is resolved
        names: dict[str, str] = {}
        over: set[str] = set()
        for run_id in active_runs(store, begun, watched):
            facts = facts_of(store, run_id)
            names[run_id] = facts.name
            holding[run_id] = conditions(_since(facts, begun), limits)
            if facts.ended_at is not None:
                over.add(run_id)
        for pool in store.pools.all():
            seen = pool_facts(store, pool, self._idleness, speed_of(pool, self._settings))
            holding[f"pool:{pool.name}"] = pool_conditions(seen, limits)
        full = [(alert.host, alert.subject) for alert in firing if alert.rule == "overload" and alert.host]
        for host in host_facts(store, limits.load_for_s, full):
            holding[f"host:{host.name}"] = host_conditions(host, limits)
        holding[HOME] = reap_conditions(reap_facts(store.events.reaps(), begun), limits)
        return Evaluation(alerts=alerts, holding=holding, names=names, over=frozenset(over))

    def tell(self, store: Store, seen: Evaluation) -> None:
        """Write what began to hold, and what holds no more, unless another process has."""
        with store.batch():
            alerts = fold(store.events.alerts())
            for about in seen.holding:
                change = _change(seen, about, alerts)
                for one in change.fired:
                    data: JsonObject = {
                        "rule": one.rule,
                        "subject": one.subject,
                        "severity": str(one.severity),
                        "message": one.message,
                        "run_name": seen.names.get(about),
                        "action": str(self._limits.action(one.rule)),
                        "host": one.host,
                        "attempts": list(one.attempts),
                    }
                    store.events.note(about, FIRED, data)
                for number in change.resolved:
                    store.events.note(about, RESOLVED, {"alert": number})


def has_news(seen: Evaluation) -> bool:
    return any(_change(seen, about, seen.alerts) != Change() for about in seen.holding)


def _change(seen: Evaluation, about: str, alerts: dict[int, Alert]) -> Change:
    over = about in seen.over
    ours = [alert for alert in alerts.values() if alert.about == about]
    firing = {(one.rule, one.subject): one.id for one in ours if one.state == "firing"}
    told = {(one.rule, one.subject) for one in ours if over or one.rule in NOTICES}
    return latch(firing, told, seen.holding[about], over=over)


def _since(facts: RunFacts, begun: float) -> RunFacts:
    """A run that was over before the home was watched raises no alert."""
    return replace(facts, ended_at=None) if facts.ended_at is not None and facts.ended_at < begun else facts

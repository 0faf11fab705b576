"""One tier of a pool, as a run sees it: its hosts, what becomes of them, and what it may still have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evalfleet.core.tiers import FAILURES, Condition, Tier, TierBreaker, TierHost, TierTerms
from evalfleet.hosts.base import Fleet
from evalfleet.model import DesiredState, HostState, Pool, PoolHost, StoredTier
from evalfleet.pools.kinds.base import PoolKind
from evalfleet.pools.machine.facts import facts_of
from evalfleet.pools.settings import settings_of

# Why a pool makes no more machines: then it is not only short of them, but does not work.
_BROKEN = ("cloud", "server", "provisioning", "auth", "request", "locked", "image", "replaced", "not_found")
_STARTING = (HostState.REQUESTED, HostState.CREATING, HostState.PREPARING)
_JOIN_S = 10.0  # that is waited for a host before work goes to a later tier
_OVER = (HostState.LOST, HostState.GONE)


class Member:
    """Used in the loop's thread."""

    def __init__(self, kind: PoolKind, pool: Pool, fleet: Fleet, stored: StoredTier, most: int) -> None:
        """
        Args:
            most: workers that the run may have: a host without a limit has as many.
        """
        self.kind = kind
        self.fleet = fleet
        self.stored = stored
        self.pool = pool
        self.rows: Sequence[PoolHost] = ()
        self.taken = 0  # workers that are for other runs
        self.hosts: list[TierHost] = []
        self.busy: dict[str, int] = {}  # attempts of the run, by host
        self._faults: list[str] = []  # why tasks failed by the tier's fault, with no success on it since
        self.spare: frozenset[str] = frozenset()  # hosts that serve and shall get no new work
        self._most = most
        self._absent_since: dict[str, float] = {}
        self._starting_since: dict[str, float] = {}
        self._failed_since: dict[str, float] = {}  # machines; their rows are written again later
        self._refused_since: float | None = None
        self._began: float | None = None  # when a host of it served last, or it was looked at first
        self._met: set[str] = set()  # hosts that took work, or could have

    @property
    def name(self) -> str:
        return self.pool.name

    @property
    def breaker(self) -> TierBreaker:
        return TierBreaker.from_json(self.stored.breaker)

    def ended(self, host: str, fault: str | None) -> None:
        """An attempt ended on one of its hosts."""
        self._faults = [] if fault is None else [*self._faults, f"{host}: {fault}"]

    def look(self, absent: Mapping[str, str | None], now: float, terms: TierTerms, silence_s: float) -> TierBreaker:
        """See what became of its hosts. Returns the breaker after that.

        Args:
            absent: hosts of the run that get no new work, and why.
            silence_s: after it a host that is absent has failed.
        """
        there = {backend.name: backend.slots for backend in self.fleet.backends()}
        draining = set(self.fleet.draining())
        self._absent_since = {name: self._absent_since.get(name, now) for name in absent if name in there}
        rows = {row.name: row for row in self.rows}
        self._starting_since = {
            name: self._starting_since.get(name, now) for name, row in rows.items() if row.state in _STARTING
        }
        self.hosts = [
            self._there(name, slots, absent, now, silence_s, is_leaving=name in draining)
            for name, slots in there.items()
            if name not in rows or rows[name].state is HostState.READY
        ]
        self.hosts += [
            one for row in self.rows if (one := self._machine(row, now, terms, is_there=row.name in there)) is not None
        ]
        if self._began is None or any(host.condition is Condition.SERVING for host in self.hosts):
            self._began = now
        if len(self._faults) >= FAILURES:
            said, self._faults = self._faults[-1], []
            return self.breaker.observe(self.hosts, now, terms, began=self._began).opened(
                f"tasks fail on {said}", now, terms
            )
        return self.breaker.observe(self.hosts, now, terms, self._refusal(now, silence_s), began=self._began)

    def _there(
        self,
        name: str,
        slots: int | None,
        absent: Mapping[str, str | None],
        now: float,
        silence_s: float,
        *,
        is_leaving: bool,
    ) -> TierHost:
        """A host that the run has a way to."""
        made = TierHost(
            name=name,
            workers=self._most if slots is None else slots,
            condition=Condition.LEAVING if is_leaving else Condition.SERVING,
            busy=self.busy.get(name, 0),
        )
        if is_leaving or name not in absent:
            self._met.add(name)
            return made
        since, why = self._absent_since[name], absent[name]
        if why is None or now - since < silence_s:
            is_new = name not in self._met and now - since < _JOIN_S
            return _with(made, Condition.JOINING if is_new else Condition.STARTING)
        return _with(made, Condition.FAILED, since + silence_s, f"{name}: {why}")

    def _machine(self, row: PoolHost, now: float, terms: TierTerms, *, is_there: bool) -> TierHost | None:
        """A machine of a cloud that the run has no way to, or that is out of use; None: it says nothing of the tier."""
        facts = facts_of(row)
        made = TierHost(
            name=row.name,
            workers=settings_of(self.pool).slots,
            condition=Condition.LEAVING,
            busy=self.busy.get(row.name, 0),
        )
        reason = f"{row.name}: {row.reason or f'is {row.state}'}"
        if row.state in _STARTING:
            since = self._starting_since[row.name]
            if row.desired is not DesiredState.RUNNING:
                return made
            self._failed_since.pop(row.name, None)
            if now - since < terms.start_s:
                return _with(made, Condition.STARTING)
            check = f" (readiness check {row.readiness_check})" if row.readiness_check else ""
            return _with(made, Condition.FAILED, since + terms.start_s, f"{reason} after {terms.start_s:g} s{check}")
        if row.state is HostState.READY:
            return None if is_there else _with(made, Condition.STARTING)
        was_lost = row.state in _OVER and row.desired is DesiredState.RUNNING and not facts.preempted
        if row.state is HostState.QUARANTINED or facts.unwell is not None or (was_lost and row.made_at is not None):
            return _with(made, Condition.FAILED, self._failed_since.setdefault(row.name, row.updated_at), reason)
        return made if row.state not in _OVER else None

    def _refusal(self, now: float, silence_s: float) -> str | None:
        """Why nothing can be had of the tier, once it has been so for a while and none of its hosts serves."""
        why = self.pool.reason
        is_broken = why is not None and why.get("cause") in _BROKEN
        if not is_broken or any(host.condition is Condition.SERVING for host in self.hosts):
            self._refused_since = None
            return None
        self._refused_since = now if self._refused_since is None else self._refused_since
        return str(why["message"]) if why is not None and now - self._refused_since >= silence_s else None

    def state(self, now: float, terms: TierTerms) -> Tier:
        """What is known of it, for `divide`."""

        def workers(condition: Condition) -> int:
            return sum(host.workers for host in self.hosts if host.condition is condition)

        busy = sum(self.busy.values())
        capacity = 0 if self.pool.deleting else max(busy, self.kind.slots(self.pool) - self.taken)
        return Tier(
            name=self.name,
            breaker=self.breaker,
            capacity=capacity,
            serving=min(capacity, workers(Condition.SERVING) + workers(Condition.JOINING)),
            starting=workers(Condition.STARTING),
            busy=busy,
            shortage=self._shortage(now, terms),
            usd_per_hour=self.stored.usd_per_hour,
        )

    def _shortage(self, now: float, terms: TierTerms) -> str | None:
        if self.pool.reason is not None:
            return str(self.pool.reason["message"])
        lately = [
            host
            for host in self.hosts
            if host.condition is Condition.FAILED and host.since >= max(now - terms.cool_down_s, self.breaker.since)
        ]
        return lately[-1].reason if lately else None

    def limit(self, use: int, *, is_open: bool) -> None:
        """Let `use` workers of those that serve take new work, those at work first."""
        serving = [host for host in self.hosts if host.condition in (Condition.SERVING, Condition.JOINING)]
        serving.sort(key=lambda host: -host.busy)
        spare: set[str] = set()
        for host in serving:
            if use <= 0:
                spare.add(host.name)
            use -= host.workers
        if is_open:
            spare |= {host.name for host in self.hosts}
        self.spare = frozenset(spare)


def _with(host: TierHost, condition: Condition, since: float = 0.0, reason: str = "") -> TierHost:
    return TierHost(
        name=host.name, workers=host.workers, condition=condition, busy=host.busy, since=since, reason=reason
    )

"""GPUs as they were last seen, leases on them, and requests that wait for some."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct, field

from evalfleet.model import JsonObject

SLACK_MB = 64  # what a card may use more than at its base without anybody being on it
NO_LINK = 6  # between cards that do not say how they are linked: worse than the worst that they can say

Reserved = tuple[str, tuple[str, ...]]  # a host, and UUIDs of its cards


class Card(Struct, frozen=True, kw_only=True):
    """A GPU. What it does not tell is None, and then it is not free."""

    host: str
    index: int
    uuid: str
    name: str | None = None
    memory_mb: int | None = None
    used_mb: int | None = None
    utilization: int | None = None  # percent
    processes: tuple[JsonObject, ...] | None = None  # {"pid", "memory_mb", "name", "ours"}
    foreign: tuple[int, ...] = ()  # processes on it that are not ours
    unexplained_mb: int | None = None  # memory that no process and no lease explains
    held: str | None = None  # who else on its host has locked it, for a person
    mig: bool | None = None
    links: Mapping[str, int] = field(default_factory=dict[str, int])  # to other cards, by UUID; small is near
    seen_at: float = 0.0
    base_mb: int | None = None  # what it used when nobody of ours was on it: a driver needs some
    released_at: float = 0.0  # when the last lease on it ended; what was seen before says nothing of its memory now
    avoid_until: float = 0.0  # an attempt that was to start there found it taken
    quarantine: str | None = None  # why nobody gets it
    quarantined_at: float | None = None
    clean_since: float | None = None  # since when a card in quarantine looks well

    @property
    def is_current(self) -> bool:
        return self.seen_at >= self.released_at

    @property
    def size_mb(self) -> int | None:
        """What leases can have of it in all."""
        return None if self.memory_mb is None else self.memory_mb - (self.base_mb or 0)

    @property
    def shown_mb(self) -> int | None:
        """What it shows as free, or shows when nobody of ours is on it, where it was not seen since."""
        used = self.used_mb if self.is_current else self.base_mb
        return None if self.memory_mb is None or used is None else max(0, self.memory_mb - used)

    @property
    def idle(self) -> float:
        return 1 - self.utilization / 100 if self.is_current and self.utilization is not None else 0.0

    def strangers(self, known: Collection[int] = ()) -> tuple[int, ...]:
        """Processes on it that no lease has; `known` are those of programs that lease it."""
        return tuple(pid for pid in self.foreign if pid not in known)

    def is_clean(self) -> bool:
        """Whether the card appears to be unused."""
        extra = 0 if self.used_mb is None or self.base_mb is None else self.used_mb - self.base_mb
        unexplained = self.unexplained_mb or 0
        return not self.foreign and self.held is None and extra <= SLACK_MB and unexplained <= SLACK_MB


class Lease(Struct, frozen=True, kw_only=True):
    """A part of a card, or the whole card, that is leased to an attempt or a program."""

    host: str
    uuid: str
    index: int
    memory_mb: int | None  # None: the whole card
    holder: str  # an attempt's id, or a program's token
    run_id: str | None = None
    task_number: int | None = None
    program: str | None = None  # for a person, where it is no attempt's
    pid: int | None = None  # of the program
    since_at: float = 0.0


class Ticket(Struct, frozen=True, kw_only=True):
    """A waiting request."""

    number: int
    owner: str  # a run's id, or a program's token
    gpus: int
    hosts: frozenset[str]  # those that it may go to now
    line: int = 0  # since when its owner stands in the line of owners, who all have one place each
    memory_mb: int = 0  # of each; 0: whole cards
    least_mb: int = 0  # of a whole card so much must be free
    places: tuple[int, ...] = ()  # which cards of a host, by index; (): all
    pack: bool = False
    reserved: Reserved | None = None  # what it will take
    task_number: int | None = None  # of a run's
    program: str | None = None  # who asks, for a person, where it is no run
    since_at: float = 0.0


def blocked(card: Card, now: float, known: Collection[int] = ()) -> str | None:
    """Why the card cannot be given to any request, whatever its leases leave free; None: it can."""
    if card.quarantine is not None:
        return f"in quarantine: {card.quarantine}"
    if card.held is not None:
        return f"locked by {card.held}"
    if strangers := card.strangers(known):
        return f"used by process {', '.join(map(str, strangers))}, which evalfleet did not start"
    if (card.unexplained_mb or 0) > SLACK_MB:
        return f"has {card.unexplained_mb} MB in use by an unknown process"
    if card.used_mb is None and card.processes is None:
        return "does not report whether it is free"
    if card.avoid_until > now:
        return "was in use a moment ago"
    return None


def has_room(card: Card | None, leases: Sequence[Lease], memory_mb: int | None) -> bool:
    """Whether one more lease stays within what the card has. None: of the whole card."""
    if memory_mb is None:
        return not leases
    if card is None or card.size_mb is None or any(lease.memory_mb is None for lease in leases):
        return False
    return sum(lease.memory_mb or 0 for lease in leases) + memory_mb <= card.size_mb


def link(one: Card, other: Card) -> int:
    return one.links.get(other.uuid, other.links.get(one.uuid, NO_LINK))

"""What callers tell the store when they want GPUs, and what it tells them."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from evalfleet.core.gpus.allocation import Grant

CLEAN_S = 30.0  # a card in quarantine that looks well for this long leaves it
AVOID_S = 10.0  # how long a card is not given out after an attempt found it taken
RENEW_S = 1.0  # how often a waiting owner renews its ticket
TICKET_S = 5.0  # a ticket that was not renewed for this long is passed over, until it is
PROGRAM_S = 30.0  # the same for a lease of a program on another machine, where we cannot see whether it lives


class Ask(Struct, frozen=True, kw_only=True):
    """Wanted: GPUs of one host, for one task or program."""

    gpus: int
    hosts: frozenset[str]  # on which it may start now
    task_number: int | None = None
    memory_mb: int = 0  # of each; 0: whole cards
    least_mb: int = 0  # of a whole card that must be free
    places: tuple[int, ...] = ()  # which cards, by index; (): all
    pack: bool = False
    waits: bool = True  # False: it takes what is free now or nothing, and gets no ticket


class Program(Struct, frozen=True, kw_only=True):
    """A process that leases GPUs for itself. Pids are used again, so it is known by when it began on which boot as well."""

    token: str
    name: str  # for a person
    pid: int
    born: str
    boot: str


class Turn(Struct, frozen=True, kw_only=True):
    """The answer to asking for GPUs."""

    grants: Mapping[int | None, Grant]  # by task number; a task that is not among them waits
    number: int  # of `turn()`, at that moment

"""The allocation of GPUs: which request gets which cards, and which requests wait.

Requests stand in one queue of tickets. Each asks for GPUs of one host: whole cards, or so many MB of each, and then several
leases share a card. Every waiting process, of a run or a program, decides by the same pure function on the same rows, in one
transaction, and takes only what the decision gives to its own ticket. So there is one queue, and no process that must live.

**Turns.** Owners stand in line: each run, and each program. When the oldest ticket of an owner is served, the owner goes to the end
of the line with all that it still waits for; so a study with fifty waiting trials and one with three take turns, and programs,
which have one ticket each, are served as they came. What is left when everybody in the line had his turn goes round again.

**Safe back-fill.** A ticket that cannot be served reserves the set that it will take. It is made of cards that leases of ours
keep busy, as far as there are such, so that most of what is free stays free for others. A later ticket gets no card of that
set, and the set stays the same while it can still come true: so a large request neither blocks the box nor starves. What
only a stranger's leaving or a person can make true reserves nothing.

**Free.** A card that is not known to be free is not free: in quarantine, used by a stranger, locked by another home, with memory
in use by an unknown process, or silent about both its memory and its processes. What it has left is the smaller of what leases
leave and what the card shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from evalfleet.core.gpus.cards import Card, Lease, Reserved, Ticket
from evalfleet.core.gpus.room import Room
from evalfleet.model import Requests


class Grant(Struct, frozen=True, kw_only=True):
    ticket: Ticket
    host: str
    cards: tuple[Card, ...]  # in the order of their places


class Decision(Struct, frozen=True, kw_only=True):
    grants: tuple[Grant, ...]
    reserved: Mapping[int, Reserved | None]  # by ticket, of those that wait


def in_turn(tickets: Iterable[Ticket]) -> list[Ticket]:
    """The tickets in the order in which they are served."""
    rounds: dict[str, int] = {}
    ranked: list[tuple[int, int, int, Ticket]] = []
    for ticket in sorted(tickets, key=lambda one: one.number):
        turn = rounds.get(ticket.owner, 0)
        rounds[ticket.owner] = turn + 1
        ranked.append((turn, ticket.line, ticket.number, ticket))
    return [ticket for *_, ticket in sorted(ranked, key=lambda one: one[:3])]


def grant(tickets: Iterable[Ticket], cards: Sequence[Card], leases: Sequence[Lease], now: float) -> Decision:
    """Decide about all tickets at once. `tickets` are those of owners that live."""
    room = Room(cards, leases, now)
    grants: list[Grant] = []
    reserved: dict[int, Reserved | None] = {}
    for ticket in in_turn(tickets):
        found = room.best(ticket)
        if found is not None:
            room.take(ticket, found)
            grants.append(Grant(ticket=ticket, host=found[0].host, cards=tuple(found)))
        else:
            reserved[ticket.number] = room.reserve(ticket)
    return Decision(grants=tuple(grants), reserved=reserved)


def never(asked: Requests, places: Sequence[int], hosts: Mapping[str, Sequence[Card]]) -> str | None:
    """Why no host could serve the request even if all its GPUs were free; None: one could.

    Args:
        hosts: all that there are, with their GPUs.
    """
    most = 0
    for cards in hosts.values():
        usable = [card for card in cards if (not places or card.index in places) and _is_large(card, asked)]
        most = max(most, len(usable))
    if asked.gpus <= most:
        return None
    each = f" with {asked.gpu_memory_mb} MB each" if asked.gpu_memory_mb else ""
    only = f" among its GPUs {', '.join(map(str, places))}" if places else ""
    has = f"the most is {most}" if most else "none has one"
    if not any(hosts.values()):
        has = "none shows a GPU (no NVIDIA driver answers there; `evalfleet gpus` says more)"
    elif asked.gpu_memory_mb and all(card.memory_mb is None for cards in hosts.values() for card in cards):
        has = "their GPUs do not report their memory; ask for whole cards"
    return f"asks for {asked.gpus} GPU{'s' * (asked.gpus > 1)}{each}; no host has that much{only}: {has}"


def _is_large(card: Card, asked: Requests) -> bool:
    return not asked.gpu_memory_mb or (card.size_mb is not None and card.size_mb >= asked.gpu_memory_mb)

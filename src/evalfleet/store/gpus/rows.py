"""Between rows and records of GPUs, their leases and their queue."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from evalfleet.core.gpus.cards import Card, Lease, Reserved, Ticket
from evalfleet.model import JsonObject
from evalfleet.store.database.base import Row
from evalfleet.store.rows import from_json, record, to_json

_SEEN = ("index", "name", "memory_mb", "used_mb", "utilization", "foreign", "unexplained_mb", "held", "mig", "links")
_reserved = msgspec.json.Decoder(tuple[str, tuple[str, ...]])


def card(row: Row) -> Card:
    facts = cast("JsonObject", from_json(row["facts"]))
    processes = cast("list[JsonObject] | None", facts["processes"])
    seen = {name: facts[name] for name in _SEEN}
    seen["foreign"] = tuple(facts["foreign"])
    return record(Card, row, **seen, processes=None if processes is None else tuple(processes))


def facts(card: Card) -> str:
    return to_json({**{name: getattr(card, name) for name in _SEEN}, "processes": card.processes})


def lease(row: Row) -> Lease:
    return record(Lease, row, index=row["place"])


def reserved(text: str | None) -> Reserved | None:
    return None if text is None else _reserved.decode(text)


def ticket(row: Row) -> Ticket:
    return record(
        Ticket,
        row,
        hosts=frozenset(cast("list[str]", from_json(row["hosts"]))),
        places=tuple(cast("list[int]", from_json(row["places"]))),
        pack=bool(row["pack"]),
        reserved=reserved(row["reserved"]),
    )


def ticket_columns(ticket: Ticket) -> dict[str, Any]:
    return {
        "owner": ticket.owner,
        "line": ticket.line,
        "task_number": ticket.task_number,
        "gpus": ticket.gpus,
        "memory_mb": ticket.memory_mb,
        "least_mb": ticket.least_mb,
        "hosts": to_json(sorted(ticket.hosts)),
        "places": to_json(ticket.places),
        "pack": int(ticket.pack),
    }

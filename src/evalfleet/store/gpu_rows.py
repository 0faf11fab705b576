"""Between rows and records of GPUs, their leases and their queue."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from evalfleet.core.gpu_cards import Card, Lease, Reserved, Ticket
from evalfleet.model import JsonObject
from evalfleet.store.rows import Row, from_json, to_json

_SEEN = ("index", "name", "memory_mb", "used_mb", "utilization", "foreign", "unexplained_mb", "held", "mig", "links")
_reserved = msgspec.json.Decoder(tuple[str, tuple[str, ...]])


def card(row: Row) -> Card:
    facts = cast("JsonObject", from_json(row["facts"]))
    processes = cast("list[JsonObject] | None", facts["processes"])
    return Card(
        host=row["host"],
        uuid=row["uuid"],
        **{name: facts[name] for name in _SEEN if name != "foreign"},
        foreign=tuple(facts["foreign"]),
        processes=None if processes is None else tuple(processes),
        seen_at=row["seen_at"],
        base_mb=row["base_mb"],
        released_at=row["released_at"],
        avoid_until=row["avoid_until"],
        quarantine=row["quarantine"],
        quarantined_at=row["quarantined_at"],
        clean_since=row["clean_since"],
    )


def facts(card: Card) -> str:
    return to_json({**{name: getattr(card, name) for name in _SEEN}, "processes": card.processes})


def lease(row: Row) -> Lease:
    return Lease(
        host=row["host"],
        uuid=row["uuid"],
        index=row["place"],
        memory_mb=row["memory_mb"],
        holder=row["holder"],
        run_id=row["run_id"],
        task_number=row["task_number"],
        program=row["program"],
        pid=row["pid"],
        since_at=row["since_at"],
    )


def reserved(text: str | None) -> Reserved | None:
    return None if text is None else _reserved.decode(text)


def ticket(row: Row) -> Ticket:
    return Ticket(
        number=row["number"],
        owner=row["owner"],
        gpus=row["gpus"],
        memory_mb=row["memory_mb"],
        least_mb=row["least_mb"],
        hosts=frozenset(cast("list[str]", from_json(row["hosts"]))),
        places=tuple(cast("list[int]", from_json(row["places"]))),
        pack=bool(row["pack"]),
        reserved=reserved(row["reserved"]),
        task_number=row["task_number"],
        program=row["program"],
        since_at=row["since_at"],
    )


def ticket_columns(ticket: Ticket) -> dict[str, Any]:
    return {
        "owner": ticket.owner,
        "task_number": ticket.task_number,
        "gpus": ticket.gpus,
        "memory_mb": ticket.memory_mb,
        "least_mb": ticket.least_mb,
        "hosts": to_json(sorted(ticket.hosts)),
        "places": to_json(ticket.places),
        "pack": int(ticket.pack),
    }
